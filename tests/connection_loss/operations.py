"""The document's sections about operations: all of them, and their runs."""

from __future__ import annotations

from functools import partial

from tests.connection_loss import points
from tests.connection_loss.case import AT_ONCE, Case, Row, Rows, Setting, run_each
from tests.connection_loss.changes import CHANGES
from tests.connection_loss.lagging import Lag
from tests.connection_loss.points import Experiment, Operation
from tests.connection_loss.reads import READS

OPERATIONS = CHANGES + READS


def run_all(setting: Setting, *, by_ensemble: bool = False) -> Rows:
    """At every point that one server is enough for; in an ensemble one after the other."""
    asked = [op for op in known(setting) if op.by_ensemble == by_ensemble]
    cells = [(op, point) for op in asked for point in points.ON_ONE_SERVER]
    return run_points(setting, cells, 1 if by_ensemble else AT_ONCE)


def run_behind(setting: Setting, lag: Lag) -> Rows:
    """Every operation, ended by a move to a server that is behind; one after the other."""
    moved = lag.around(partial(points.behind, lag=lag))
    return run_points(setting, [(op, moved) for op in known(setting)], 1)


def known(setting: Setting) -> list[Operation]:
    """What the servers know."""
    return [op for op in OPERATIONS if op.since <= setting.server.release]


def run_points(setting: Setting, cells: list[tuple[Operation, Experiment]], at_once: int) -> Rows:
    def run(op: Operation, point: Experiment) -> Row:
        with Case(setting) as case:
            op.prepare(case)
            return point(op, case)

    return run_each(setting, [(op.title, partial(run, op, point)) for op, point in cells], at_once)
