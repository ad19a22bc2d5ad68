"""docs/operations.md says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import zkwire
from tests.support.operation_samples import SAMPLES
from zkwire.operations import Operations
from zkwire.wire import ops
from zkwire.wire.ops import OPS

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text()
COLUMNS = 8


def rows() -> dict[str, list[str]]:
    """The cells of each row that describes an operation, by its name."""
    found: dict[str, list[str]] = {}
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == COLUMNS and re.fullmatch(r"-?\d+", cells[1]):
            assert cells[0] not in found, f"{cells[0]} stands there twice"
            found[cells[0]] = cells
    return found


def test_every_operation_has_its_row() -> None:
    assert rows().keys() == {op.name for op in OPS.values()}


def test_every_operation_that_a_user_calls_has_a_sample() -> None:
    sent_by_the_client = {"check_watches", "close_session", "ping", "sasl", "set_watches"}
    part_of_a_multi = {"check"}
    called = {op.name for op in OPS.values()} - sent_by_the_client - {"set_watches2"}
    assert {sample.op.name for sample in SAMPLES} == called - part_of_a_multi


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_row_is_true(op: ops.Op) -> None:
    _, opcode, client, since, changes, watch, _, after = rows()[op.name]
    assert (int(opcode), since) == (op.opcode, op.since)
    assert changes == ("yes" if op.changes else "no")
    if op is not ops.ADD_WATCH:
        assert watch == (op.watch.name.lower() if op.watch is not None else "")
    assert client
    assert after or op is ops.PING


def test_every_operation_of_the_client_is_named() -> None:
    named = {name for cells in rows().values() for name in re.findall(r"`(\w+)`", cells[2])}
    public = {name for name in dir(Operations) if not name.startswith("_")}
    assert named - {"Check", "Watch", "close", "transaction", "multi"} == public - {"multi"}
    assert all(hasattr(zkwire.Client, name) or hasattr(zkwire, name) for name in named)


def test_every_error_exists() -> None:
    names = set(re.findall(r"`(\w+Error)`", TEXT))
    assert len(names) > 20
    assert all(issubclass(getattr(zkwire, name), zkwire.ZooKeeperError) for name in names)
