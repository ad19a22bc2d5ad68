"""All situations, in the order of the page."""

from __future__ import annotations

from tests.interop.atlas import answers, changes, locks, silence

SITUATIONS = (
    *changes.SITUATIONS, answers.WATCHES, silence.EXPIRY, locks.LOCK,
    answers.FRAMES, answers.SERVERS, silence.END,
)  # fmt: skip
