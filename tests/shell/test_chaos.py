"""A chaos run on a real ensemble, each kind of trouble once, and that it would notice.

``python3 -m tests.interop.chaos`` is the long one. Nothing asserted here is a matter of speed: the
run goes on until each kind of trouble had its turn, and each contender has acquired before and
after it.
"""

from __future__ import annotations

import faulthandler
import sys
from typing import Any

import pytest

from tests.interop import chaos, chaos_faults, chaos_log, chaos_recipes
from tests.interop.chaos_log import Line
from tests.interop.chaos_workers import KINDS
from tests.support import history
from tests.support.installed_servers import InstalledBackend
from tests.support.server_control import Backend

WORKERS = 4


@pytest.mark.apache
def test_chaos(backend: Backend, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever happens, nothing wrong, nobody stuck, nothing left."""
    if not isinstance(backend, InstalledBackend):
        pytest.skip(f"stops, wipes and limits servers, which are {backend}")
    # pytest's limit is for tests that end within seconds wherever they run.
    assert sys.__stderr__ is not None
    faulthandler.dump_traceback_later(chaos.GRACE_SECONDS, exit=True, file=sys.__stderr__)
    report = chaos.run_chaos(backend, 0.0, seed, workers=WORKERS)
    with capsys.disabled():
        print(f"\n{report}")
    assert report.found == [], str(report)
    assert {*report.faults, *report.idle} == chaos_faults.ALL.keys()
    assert report.grants.total() >= 2 * WORKERS * len(KINDS), str(report)
    assert {who.rpartition("-")[2] for who in report.grants} == set(KINDS)


# --- what the processes tell becomes claims -------------------------------------------------------


def line(what: str, at: float, who: str = "a", **more: object) -> Line:
    usual = {"key": "sq", "role": "", "fence": 1, "downgrade": False}
    return told(what, at, who, **{**usual, **more})


def told(what: str, at: float = 1.0, who: str = "a", **more: object) -> Line:
    return {"what": what, "at": at, "who": who, **more}


def held(grant: float, end: float, who: str = "b", **more: object) -> list[Line]:
    return [line("grant", grant, who, **more), line("end", end, who, **more)]


def checked(*told: list[Line]) -> list[str]:
    return history.check(chaos_log.history(told, {}))


GRANTED = [line("grant", 1.0), line("look", 2.0)]


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ([[*GRANTED, line("end", 9.0)], held(3.0, 3.5, fence=2)], None),  # it says so only later
        ([GRANTED, held(3.0, 3.5, fence=2)], None),  # it was killed
        ([[*GRANTED, line("end", 9.0)], held(1.5, 3.5, fence=2)], "ME: sq: a "),
        ([held(1.0, 2.0, "a", fence=5), held(3.0, 3.5, fence=4)], "FENCE: sq: b "),
    ],
)
def test_a_claim_ends_with_the_last_look(told: list[list[Line]], found: str | None) -> None:
    said = checked(*told)
    assert len(said) == (found is not None)
    assert not found or said[0].startswith(found)


def test_what_is_no_claim_and_what_counts_once() -> None:
    """A loss before the first look, a write of a killed process, a downgrade."""
    records = chaos_log.history([[line("ask", 1.0), line("end", 2.0)]], {})
    assert [record.what for record in records if record.key == "sq"] == ["ask", "give up"]
    intent: Line = told("intent", 1.1, key="/r", value="a 1", fence=1)
    records = chaos_log.history([[line("grant", 1.0), intent]], {})
    assert [each.ok for each in records if each.what == "write"] == [None]
    grants: list[dict[str, Any]] = [{"key": "ma"}, {"key": "mb"}, {"key": "rw", "downgrade": True}]
    assert chaos_log.grants([[line("grant", 1.0, **more) for more in grants]]).total() == 1


# --- the other recipes ----------------------------------------------------------------------------


PUT = [told("put", value="x", ok=True), told("began", 2.0, value="x")]
IN = [told("in", 3.0, round=1, called=1.0), told("in", 3.1, "b", round=1, called=2.0)]


@pytest.mark.parametrize(
    ("lines", "number", "left", "found"),
    [
        ([told("add", value="1", ok=True)], 1, "", ""),
        ([told("add", value="1", ok=True)], 2, "", "SUM: 2 for 1"),
        ([told("intent", of="add", value="1"), told("add", 2.0, "b", value="1", ok=None)], 3, "",
         "SUM: 3 for 0 additions and 2 in doubt"),
        (PUT[:1], 0, "x", ""),
        (PUT[:1], 0, "", "QUEUE: x was lost"),
        ([told("put", value="x", ok=False), *PUT[1:]], 0, "", "QUEUE: x was put after all"),
        ([*PUT, told("removed", 3.0, value="x")], 0, "", ""),
        ([*PUT, told("removed", 3.0, value="x")] * 2, 0, "", "QUEUE: x was begun"),
        ([*PUT, told("removed", 3.0, value="x"), told("began", 4.0, "b", value="x")], 0, "",
         "QUEUE: x was begun"),
        (IN, 0, "", ""),
        ([told("in", 1.5, round=1, called=1.0), *IN], 0, "", "BARRIER: 1: entered before"),
        ([*IN, told("out", 5.0, round=1, called=4.0), told("out", 7.0, "b", round=1, called=6.0)],
         0, "", "BARRIER: 1: left before"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_recipe_is_found(
    lines: list[Line], number: int, left: str, found: str
) -> None:
    said = list(chaos_recipes.judge([lines], chaos_recipes.End(number, set(left))))
    assert [text[: len(found)] for text in said] == [found] * bool(found)
