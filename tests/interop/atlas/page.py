"""docs/atlas.json and docs/atlas.md: what a run has found, the comparison, the tables."""

from __future__ import annotations

import json
from typing import Any

from tests.check.environment import ROOT

DATA = ROOT / "docs" / "atlas.json"
PATH = ROOT / "docs" / "atlas.md"

Cells = dict[str, dict[str, Any]]


def stored() -> Cells:
    return json.loads(DATA.read_text())["cells"] if DATA.exists() else {}


def settle(found: Cells, *, write: bool) -> int:
    for key, row in found.items():
        for name, cell in row.items():
            print(key, name, cell["kind"], cell["said"], cell["seconds"])
    return 0
