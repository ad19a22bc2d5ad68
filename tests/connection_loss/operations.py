"""The document's sections about operations: all cells, run and rendered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.connection_loss import points
from tests.connection_loss.case import Case
from tests.connection_loss.changes import CHANGES
from tests.connection_loss.document import table
from tests.connection_loss.lagging import Lag
from tests.connection_loss.operation import Operation
from tests.connection_loss.points import Experiment, Row
from tests.connection_loss.reads import READS
from tests.server_control import ZooKeeperServer
from zkwire import Client

# The experiments wait for sockets most of the time.
AT_ONCE = 6
OPERATIONS = CHANGES + READS
HEADS = ("point of failure", "on the server", "the caller gets", "what is safe to do next", "then")

Rows = dict[str, list[Row]]


def run_all(server: ZooKeeperServer, observer: Client, root: str) -> Rows:
    """Every operation at every point that one server is enough for."""
    cells = [(op, point) for op in OPERATIONS for point in points.ON_ONE_SERVER]

    def run(cell: tuple[Operation, Experiment]) -> Row:
        op, point = cell
        with Case(server, observer, root) as case:
            return explained(op, lambda: prepared(op, case, point))

    rows: Rows = {op.title: [] for op in OPERATIONS}
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="experiment") as pool:
        for (op, _), row in zip(cells, pool.map(run, cells), strict=True):
            rows[op.title].append(row)
    return rows


def prepared(op: Operation, case: Case, point: Experiment) -> Row:
    """One experiment, from the beginning."""
    op.prepare(case)
    return point(op, case)


def run_behind(lag: Lag, observer: Client, root: str) -> Rows:
    """Every operation, ended by a move to a server that is behind; one after the other."""

    def moved(op: Operation, case: Case) -> Row:
        return points.behind(op, case, lag)

    rows: Rows = {}
    for op in OPERATIONS:
        with Case(lag.up_to_date, observer, root) as case:
            try:
                rows[op.title] = [explained(op, partial(prepared, op, case, moved))]
            finally:
                lag.end()
    return rows


def explained(op: Operation, run: Callable[[], Row]) -> Row:
    """A row; whatever goes wrong says whose it is."""
    try:
        return run()
    except Exception as error:
        error.add_note(f"in an experiment on {op.title}")
        raise


def render(rows: Mapping[str, Iterable[Row]]) -> str:
    """One section for each group of operations about which exactly the same is to be said."""
    groups: dict[str, list[str]] = {}
    for op in OPERATIONS:
        lines = [row for row in rows[op.title] if any(row[1:])]
        body = f"Recover: {op.again}.\n\n{table(HEADS, lines)}"
        groups.setdefault(body, []).append(op.title)
    return "\n\n".join(f"### {'; '.join(titles)}\n\n{body}" for body, titles in groups.items())
