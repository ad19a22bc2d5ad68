"""How many examples a test of a property looks at: a tenth in `check.py fast`, many for hours."""

from __future__ import annotations

import os

TENTH = os.environ.get("ZKWIRE_EXAMPLES") == "tenth"
MANY = os.environ.get("ZKWIRE_EXAMPLES") == "many"

STRIDE = 10 if TENTH else 1
"""How far apart the places are that a test tries one by one."""


def examples(count: int) -> int:
    """So many of these."""
    return -(-count // 10) if TENTH else count * (400 if MANY else 1)
