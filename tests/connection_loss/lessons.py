"""Which lesson plays the failure of a line, for a link to the playground.

Only `lost-reply` does so: for a line whose request and fault are those of the lesson.
Every other line is repeated by ``python3 -m tests.connection_loss``, as all are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LESSON = "lost-reply"
_REQUESTS = {
    ("create", "ephemeral and sequential"): "--op create",
    ("create", "sequential"): "--op sequential-persistent",
    ("set_data", "with a version"): "--op set",
    ("delete", ""): "--op delete",
}
_FAULTS = {
    "not-sent": "--before",
    "request-lost": "--lost",
    "reply-lost": "",
    "session-expired": "--expire",
}


def flags_of(row: Mapping[str, Any]) -> str | None:
    """The flags of the lesson for a line of the data; None if it does not play that failure."""
    request = _REQUESTS.get((row["call"], row["options"]))
    fault = _FAULTS.get(row["failure"])
    if row["part"] != "operations" or request is None or fault is None:
        return None
    return f"{request} {fault}".rstrip()
