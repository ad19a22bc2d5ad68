"""docs/atlas.json, which is recorded; the parts of docs/atlas.md and the picture made of it.

python3 -m tests.interop.atlas.document     writes the page and the picture
"""

from __future__ import annotations

import json
from typing import Any

from tests.interop import pages
from tests.interop.atlas import answers, changes, locks, silence
from tests.interop.atlas.cells import HUNG, LACKS, LESS, NOTHING, TRUTH, WRONG, told
from tests.interop.atlas.clients import CLIENTS
from tests.support.diagrams import box, drawing, words

DATA = pages.DOCUMENTS / "atlas.json"
PATH = pages.DOCUMENTS / "atlas.md"
PICTURE = pages.DOCUMENTS / "atlas.svg"
SHORT = {TRUTH: "truth", LESS: "less", NOTHING: "**nothing**", WRONG: "**wrong**", HUNG: "**hung**"}
SQUARES = {TRUTH: "alive", LESS: "doubt", NOTHING: "blind", WRONG: "over", HUNG: "held"}
SIDE, LEFT, TOP, GAP = 14, 500, 170, 10
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


def record(found: Cells) -> None:
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
        record(found)
        write()
        return 0
    return int(len(lines) > (1 - SAME) * count)


# --- the page -------------------------------------------------------------------------------------

# Begins of points' keys, a client or the first word of its name, and what explains those cells in
# the client's own project: the title of an issue or a change, and its place.
GITHUB = "https://github.com"
ISSUES = """
watch-data-, watch-children-: kazoo: kazoo 151: python-zk/kazoo/issues/151
lock-giveup-before: kazoo: kazoo 760: python-zk/kazoo/pull/760
retried-after: kazoo: ClickHouse 105707: ClickHouse/ClickHouse/pull/105707
end-fork: kazoo: kazoo 519: python-zk/kazoo/issues/519
create-after, delete-after: curator: CURATOR-268: apache/curator/issues/788
set-after, multi-after: curator: CURATOR-584: apache/curator/issues/1101
lock-partition, lock-stopped: curator: CURATOR-206: apache/curator/issues/727
session-good: java: ZOOKEEPER-4508: apache/zookeeper/pull/2058
watch-persistent-away, watch-recursive-away: java: ZOOKEEPER-1416: apache/zookeeper/pull/1106
watch-persistent-lost, watch-recursive-lost: java: ZOOKEEPER-4655: apache/zookeeper/pull/1950
list-renamed: java: ZOOKEEPER-2184: apache/zookeeper/pull/451
list-renamed: go: go-zookeeper 44: samuel/go-zookeeper/issues/44
watch-: go: go-zookeeper 83: samuel/go-zookeeper/issues/83
lock-partition, lock-stopped: go: go-zookeeper 20: samuel/go-zookeeper/issues/20
session-good: node: node-zookeeper-client 20: alexguan/node-zookeeper-client/issues/20
lie-cut, lie-minus: node: node-zookeeper-client 39: alexguan/node-zookeeper-client/issues/39
lie-short: node: node-zookeeper-client 39: alexguan/node-zookeeper-client/issues/39
end-away: node: node-zookeeper-client 60: alexguan/node-zookeeper-client/issues/60
"""


def known(key: str, name: str) -> str:
    """A link, or nothing."""
    for line in ISSUES.split("\n")[1:-1]:
        begins, client, title, place = line.split(": ")
        of_client = name in (client, f"{client}-3.8.0", f"{client}-3.9.5")
        if of_client and key.startswith(tuple(begins.split(", "))):
            return f"[{title}]({GITHUB}/{place})"
    return ""


def shown(cell: dict[str, Any] | None, key: str, name: str) -> str:
    """A cell of a table: the kind, the words, the seconds, and where the issue is known."""
    if cell is None:
        return "not recorded"
    if cell["kind"] == LACKS:
        return "\N{EN DASH}"
    said = cell["said"]
    times = "" if len(said) == 1 else " {}\N{MULTIPLICATION SIGN}"
    parts = [f"{SHORT[kind]}: `{text}`{times.format(number)}" for kind, text, number in said]
    if cell["seconds"]:
        low, high = (f"{second:.2f}" for second in cell["seconds"])
        parts.append(f"{low} s" if low == high else f"{low} to {high} s")
    if cell["kind"] != TRUTH and (issue := known(key, name)):
        parts.append(issue)
    return "<br>".join(parts)


def table(number: int, cells: Cells) -> str:
    """One situation."""
    situation = SITUATIONS[number - 1]
    rows = []
    for point in situation.points:
        found = cells.get(point.key, {})
        title = f"{point.title}<br>`{point.key}`"
        rows.append([title, *(shown(found.get(c.name), point.key, c.name) for c in CLIENTS)])
    return pages.table(["", *(c.title for c in CLIENTS)], rows)


def count(cells: Cells, name: str, keys: list[str]) -> str:
    """Of a client: in how many of the rows it tells the truth, of those that it has."""
    kinds = [cells[key][name]["kind"] for key in keys if name in cells.get(key, {})]
    having = [kind for kind in kinds if kind != LACKS]
    return f"{having.count(TRUTH)} of {len(having)}" if having else "\N{EN DASH}"


def summary(cells: Cells) -> str:
    """A line for each client."""
    rows = []
    for client in CLIENTS:
        kinds = [found[client.name]["kind"] for found in cells.values() if client.name in found]
        counts = [count(cells, client.name, [p.key for p in s.points]) for s in SITUATIONS]
        others = [kinds.count(kind) for kind in (WRONG, HUNG, NOTHING)]
        if kinds:
            rows.append([client.title, client.language, *counts, *others])
    numbers = [s.number for s in SITUATIONS]
    return pages.table(["client", "language", *numbers, "wrong", "hung", "nothing"], rows)


def clients() -> str:
    """What each was, and whose advice its program follows."""
    rows = [
        [c.title, f"`{c.program}`", f"<{c.advice}>" if c.advice.startswith("http") else c.advice]
        for c in CLIENTS
    ]
    return pages.table(["client", "program", "as advised by"], rows)


def replaced(text: str, cells: Cells) -> str:
    """The page with its generated parts."""
    parts = {
        "summary": summary(cells),
        "clients": clients(),
        **{f"situation {s.number}": table(s.number, cells) for s in SITUATIONS},
    }
    return pages.with_parts(text, parts)


def picture() -> str:
    """A square for each cell: a column for each client, a row for each point."""
    cells = stored()
    titles = [c for c in CLIENTS if any(c.name in found for found in cells.values())]
    lines = [
        f'<text class="ink" transform="translate({LEFT + SIDE * n + 10} {TOP - 8}) rotate(-45)">'
        f"{client.title}</text>"
        for n, client in enumerate(titles)
    ]
    y = TOP
    for situation in SITUATIONS:
        lines.append(words(4, y + 11, f"{situation.number}. {situation.title}", "start"))
        y += SIDE + 4
        for point in situation.points:
            title = point.title.partition(" (")[0]
            lines.append(words(LEFT - 6, y + 11, title[:74], "end", "dim"))
            found = cells.get(point.key, {})
            for n, client in enumerate(titles):
                kind = found.get(client.name, {}).get("kind", LACKS)
                if kind in SQUARES:
                    lines.append(box(LEFT + SIDE * n, y, SIDE - 2, SIDE - 2, SQUARES[kind]))
            y += SIDE
        y += GAP
    for n, (kind, square) in enumerate(SQUARES.items()):
        lines.append(box(10 + 130 * n, y, SIDE - 2, SIDE - 2, square))
        lines.append(words(28 + 130 * n, y + 10, kind, "start"))
    about = "A row for each point at which the connection breaks, a column for each client"
    size = (LEFT + SIDE * len(titles) + 150, y + 30)
    return drawing("What clients tell when the connection breaks", about, size, lines)


def write() -> None:
    PATH.write_text(replaced(PATH.read_text(), stored()))
    PICTURE.write_text(picture())


if __name__ == "__main__":
    write()
