"""A short chaos run on a real ensemble, and that it would notice.

``python3 -m tests.chaos`` is the long one. Safety is asserted strictly; how soon somebody gets a
lock in calm, with the generous limits of `tests.chaos`.
"""

from __future__ import annotations

import pytest

from tests import chaos, chaos_faults, chaos_log, history
from tests.chaos_log import Disowned, Line
from tests.chaos_workers import KINDS
from tests.installed_servers import InstalledBackend
from tests.server_control import Backend

SECONDS = 45.0
FAULTS = 5  # on a machine that is busy with other things, too
ACQUISITIONS = 100


@pytest.mark.apache
def test_chaos(backend: Backend, seed: int) -> None:
    """Whatever happens, nothing wrong, nobody stuck, nothing left."""
    if not isinstance(backend, InstalledBackend):
        pytest.skip(f"stops, wipes and limits servers, which are {backend}")
    report = chaos.run_chaos(backend, SECONDS, seed)
    print(report)
    assert report.found == [], str(report)
    assert report.faults.total() >= FAULTS, str(report)
    assert report.grants.total() >= ACQUISITIONS, str(report)
    assert {who.rpartition("-")[2] for who in report.grants} == set(KINDS)


def test_there_is_enough_trouble() -> None:
    kinds = {fault.__name__ for fault in chaos_faults.ALL}
    assert len(kinds) == len(chaos_faults.ALL) >= 14


# --- what the processes tell becomes claims -------------------------------------------------------


def line(what: str, at: float, who: str = "a", **more: object) -> Line:
    usual = {"key": "sq", "role": "", "fence": 1, "session": 7, "downgrade": False}
    return {"what": what, "at": at, "who": who, **usual, **more}


def checked(*told: list[Line], takings: tuple[Disowned, ...] = ()) -> list[str]:
    return history.check(chaos_log.history(told, takings, {}))


def test_a_claim_ends_with_the_last_look() -> None:
    """Nobody has claimed anything after it, whenever the process went on to say so."""
    first = [line("grant", 1.0), line("look", 2.0), line("end", 9.0)]
    assert checked(first, [line("grant", 3.0, "b", fence=2), line("end", 3.5, "b")]) == []
    (found,) = checked(first, [line("grant", 1.5, "b", fence=2), line("end", 3.5, "b")])
    assert found.startswith("ME: sq: a ")


def test_a_killed_process_has_claimed_until_its_last_look() -> None:
    first = [line("grant", 1.0), line("look", 2.0)]
    assert checked(first, [line("grant", 3.0, "b", fence=2), line("end", 3.5, "b")]) == []


def test_a_lower_fence_is_found() -> None:
    first = [line("grant", 1.0, fence=5), line("end", 2.0)]
    (found,) = checked(first, [line("grant", 3.0, "b", fence=4), line("end", 3.5, "b")])
    assert found.startswith("FENCE: sq: b ")


@pytest.mark.parametrize("taking", [Disowned(1.2, fence=1), Disowned(1.2, session=7)])
def test_what_was_taken_is_no_claim_any_more(taking: Disowned) -> None:
    first = [line("grant", 1.0), line("look", 2.0), line("end", 2.0)]
    second = [line("grant", 1.5, "b", fence=2, session=8), line("end", 3.5, "b")]
    assert checked(first, second)
    assert checked(first, second, takings=(taking,)) == []


def test_who_lost_it_before_the_first_look_has_claimed_nothing() -> None:
    told = [line("ask", 1.0), line("end", 2.0)]
    assert [record.what for record in chaos_log.history([told], (), {})] == [
        "lock", "ask", "give up",
    ]  # fmt: skip


def test_a_write_of_a_killed_process_may_have_worked() -> None:
    told = [
        line("grant", 1.0),
        {"what": "intent", "at": 1.1, "who": "a", "key": "/r", "value": "a 1", "fence": 1},
    ]
    (write,) = [each for each in chaos_log.history([told], (), {}) if each.what == "write"]
    assert write.ok is None


def test_acquisitions_are_counted_once() -> None:
    told = [
        line("grant", 1.0, key="ma"),
        line("grant", 1.0, key="mb"),
        line("grant", 1.0, key="rw", downgrade=True),
    ]
    assert chaos_log.grants([told]).total() == 1
