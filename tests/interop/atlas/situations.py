"""All situations, in the order of the page."""

from __future__ import annotations

from tests.interop.atlas import changes, ends, lies, lists, locks, sessions, watches

SITUATIONS = (
    *changes.SITUATIONS, *watches.SITUATIONS, *sessions.SITUATIONS, *locks.SITUATIONS,
    *lies.SITUATIONS, *lists.SITUATIONS, *ends.SITUATIONS,
)  # fmt: skip
