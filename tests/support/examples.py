"""How many examples a test of a property looks at: all of them, or a tenth in `check.py fast`."""

from __future__ import annotations

import os

TENTH = os.environ.get("ZKWIRE_EXAMPLES") == "tenth"

ROUNDS = 400 if os.environ.get("ZKWIRE_EXAMPLES") == "many" else 1
"""How often a test that can be repeated for hours looks at so many, each time at others."""

STRIDE = 10 if TENTH else 1
"""How far apart the places are that a test tries one by one."""


def examples(count: int) -> int:
    """So many of these."""
    return -(-count // 10) if TENTH else count
