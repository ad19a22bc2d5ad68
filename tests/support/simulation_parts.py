"""How much of a search one check makes: a sixth of its places, by its seed.

`ZKWIRE_SIMULATION=2` makes all of it at once.
"""

from __future__ import annotations

import os

from tests.conftest import SEED

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))

A_SIXTH = {"first": SEED % 6, "every": 6} if FACTOR <= 1 else {}
"""The steps of a sweep: which sixth of them, `ZKWIRE_SEED` says."""
