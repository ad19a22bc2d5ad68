"""docs/atlas.json: what is recorded, and the comparison with a run."""

from __future__ import annotations

import json
from typing import Any

from tests.interop.atlas import answers, changes, locks, silence
from tests.interop.atlas.cells import told
from tests.interop.atlas.clients import CLIENTS
from tests.interop.pages import DOCUMENTS

DATA = DOCUMENTS / "atlas.json"
SAME = 0.98
"""So many of the cells say nothing new in another run."""

SITUATIONS = (
    *changes.SITUATIONS, answers.WATCHES, silence.EXPIRY, locks.LOCK,
    answers.FRAMES, answers.SERVERS, silence.END,
)  # fmt: skip
"""In the order of the page."""

Cells = dict[str, dict[str, Any]]


def stored() -> Cells:
    """The recorded cells, by point and client."""
    return json.loads(DATA.read_text())["cells"] if DATA.exists() else {}


def differences(old: Cells, new: Cells) -> list[str]:
    """The cells of the new run that say what the old ones have not said."""
    lines = []
    for key, row in new.items():
        for name, cell in row.items():
            before = old.get(key, {}).get(name)
            if before is None:
                lines.append(f"{key}, {name}: not recorded")
            elif fresh := [one for one in told(cell) if one not in told(before)]:
                lines.append(f"{key}, {name}: {fresh}; recorded: {told(before)}")
    return lines


def write(found: Cells) -> None:
    """Put a run into the data, in place of what is there."""
    data = stored()
    for key, row in found.items():
        data.setdefault(key, {}).update(row)
    names = [client.name for client in CLIENTS]
    keys = [point.key for s in SITUATIONS for point in s.points if point.key in data]
    cells = {k: {name: data[k][name] for name in names if name in data[k]} for k in keys}
    clients = {
        c.name: {"title": c.title, "language": c.language, "advice": c.advice} for c in CLIENTS
    }
    text = json.dumps({"clients": clients, "cells": cells}, ensure_ascii=False)
    DATA.write_text(text.replace('}, "', '},\n"') + "\n")


def settle(found: Cells, *, writing: bool) -> int:
    """Compare, or write; the exit status."""
    count = sum(map(len, found.values()))
    lines = differences(stored(), found)
    print("\n".join(lines))
    print(f"{count - len(lines)} of {count} cells say nothing new")
    if writing:
        write(found)
        return 0
    return int(len(lines) > (1 - SAME) * count)
