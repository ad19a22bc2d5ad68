"""Where the embedded server and ZooKeeper's differ for a client, line by line.

A line that ZooKeeper alone has brought about begins with `-`, one of the embedded server's with
`+`.  `DIFFERENT` has those that cannot be alike, each with the reason.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

DIFFERENT: dict[str, dict[str, str]] = {}
"""By client and line."""


def differences(real: Sequence[str], embedded: Sequence[str]) -> list[str]:
    """The lines that only one of the two has, at their place."""
    compared = difflib.unified_diff(real, embedded, n=0, lineterm="")
    return [line for line in list(compared)[2:] if not line.startswith("@@")]
