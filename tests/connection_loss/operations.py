"""The document's sections about operations: all cells, run and rendered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from tests.connection_loss import points
from tests.connection_loss.case import Case, Setting
from tests.connection_loss.changes import CHANGES
from tests.connection_loss.document import table
from tests.connection_loss.lagging import Lag
from tests.connection_loss.operation import Operation
from tests.connection_loss.points import Experiment, Row
from tests.connection_loss.reads import READS

# The experiments wait for sockets most of the time.
AT_ONCE = 6
OPERATIONS = CHANGES + READS
HEADS = ("point of failure", "on the server", "the caller gets", "what is safe to do next", "then")

Rows = dict[str, list[Row]]


def run_all(setting: Setting) -> Rows:
    """Every operation at every point that one server is enough for."""
    return run_points(setting, [op for op in known(setting) if not op.by_ensemble], AT_ONCE)


def run_in_ensemble(setting: Setting) -> Rows:
    """What a server alone refuses; one after the other."""
    return run_points(setting, [op for op in known(setting) if op.by_ensemble], 1)


def known(setting: Setting) -> list[Operation]:
    """What the servers know."""
    return [op for op in OPERATIONS if op.since <= setting.server.release]


def run_points(setting: Setting, ops: Iterable[Operation], at_once: int) -> Rows:
    """These operations at every point but the last."""
    cells = [(op, point) for op in ops for point in points.ON_ONE_SERVER]
    rows: Rows = {}
    with ThreadPoolExecutor(at_once, thread_name_prefix="experiment") as pool:
        found = pool.map(lambda cell: explained(cell[0], cell[1], setting), cells)
        for (op, _), row in zip(cells, found, strict=True):
            rows.setdefault(op.title, []).append(row)
    return rows


def run_behind(setting: Setting, lag: Lag) -> Rows:
    """Every operation, ended by a move to a server that is behind; one after the other."""

    def moved(op: Operation, case: Case) -> Row:
        try:
            return points.behind(op, case, lag)
        finally:
            lag.end()

    return {op.title: [explained(op, moved, setting)] for op in known(setting)}


def explained(op: Operation, point: Experiment, setting: Setting) -> Row:
    """One experiment, from the beginning; whatever goes wrong says whose it is."""
    try:
        with Case(setting) as case:
            op.prepare(case)
            return point(op, case)
    except Exception as error:
        error.add_note(f"in an experiment on {op.title}, with {setting.client_kind.title}")
        raise


def render(rows: Mapping[str, Iterable[Row]]) -> str:
    """One section for each group of operations about which exactly the same is to be said."""
    groups: dict[str, list[str]] = {}
    for op in OPERATIONS:
        lines = [row for row in rows[op.title] if any(row[1:])]
        body = f"Recover: {op.again}.\n\n{table(HEADS, lines)}"
        groups.setdefault(body, []).append(op.title)
    return "\n\n".join(f"### {'; '.join(titles)}\n\n{body}" for body, titles in groups.items())
