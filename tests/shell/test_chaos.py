"""A chaos run on a real ensemble, each kind of trouble once, and that it would notice.

``python3 -m tests.interop.chaos`` is the long one. Nothing asserted here is a matter of speed: the
run goes on until each kind of trouble had its turn, and each contender has acquired before and
after it.
"""

from __future__ import annotations

import faulthandler
import sys
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.interop import chaos, chaos_faults, chaos_log, chaos_queues
from tests.interop.chaos_log import Disowned, Line
from tests.interop.chaos_queues import Place, QueueWatch
from tests.interop.chaos_stage import Stage
from tests.interop.chaos_ways import clock
from tests.interop.chaos_workers import FAIR, KINDS
from tests.support import history
from tests.support.installed_servers import InstalledBackend
from tests.support.server_control import Backend
from zkwire import Client, OutcomeUnknownError, Stat, ZooKeeperError
from zkwire.testing import FaultProxy, Server

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
    assert report.overlap == 0.0, str(report)
    assert {*report.faults, *report.idle} == {fault.__name__ for fault in chaos_faults.ALL}
    assert report.grants.total() >= 2 * WORKERS * len(KINDS), str(report)
    assert {who.rpartition("-")[2] for who in report.grants} == set(KINDS)


SLOW, OF_CALLS = chaos_faults.links_slow, [
    chaos_faults.links_slow, chaos_faults.requests_truncated, chaos_faults.replies_lost,
]  # fmt: skip
OF_LINKS = [
    *(chaos_faults.links_cut, chaos_faults.links_reset, chaos_faults.links_silent),
    *(chaos_faults.clients_cut_off, chaos_faults.member_refuses),
]


@pytest.mark.parametrize("fault", OF_LINKS + OF_CALLS)
def test_a_fault_that_hits_nobody_comes_to_nothing(
    fault: chaos_faults.Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server() as server, FaultProxy(server.hosts) as proxy:
        stage = cast(Stage, SimpleNamespace(rng=Random(1), proxies=[proxy] * 3))
        monkeypatch.setattr(chaos_faults, "_pause", lambda *_: None)
        assert fault(stage) is False
        proxy.clear()
        with Client(proxy.hosts) as client:

            def meanwhile(*_: object) -> None:
                with suppress(ZooKeeperError):
                    for name in "a" if fault is SLOW else "abcd":
                        client.create_with_stat(f"/{name}")
                        client.get_children("/")
                        client.get_data(f"/{name}")
                        client.delete(f"/{name}")

            if fault in OF_CALLS:
                monkeypatch.setattr(chaos_faults, "_pause", meanwhile)
            assert fault(stage) is True
            proxy.clear()


# --- what the processes tell becomes claims -------------------------------------------------------


def line(what: str, at: float, who: str = "a", **more: object) -> Line:
    usual = {"key": "sq", "role": "", "fence": 1, "session": 7, "downgrade": False}
    return {"what": what, "at": at, "who": who, **usual, **more}


def held(grant: float, end: float, who: str = "b", **more: object) -> list[Line]:
    return [line("grant", grant, who, **more), line("end", end, who, **more)]


def checked(*told: list[Line], takings: tuple[Disowned, ...] = ()) -> list[str]:
    return history.check(chaos_log.history(told, takings, {}))


GRANTED = [line("grant", 1.0), line("look", 2.0)]
OTHER = held(1.5, 3.5, fence=2, session=8)


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


@pytest.mark.parametrize("taken", [{"fence": 1}, {"session": 7}])
def test_what_was_taken_is_no_claim_and_who_goes_on_claiming_it_is_found(
    taken: dict[str, Any],
) -> None:
    ended = [*GRANTED, line("end", 2.0)]
    assert checked(ended, OTHER)
    assert checked(ended, OTHER, takings=(Disowned(1.2, **taken),)) == []
    taking = Disowned(1.2, answered=1.3, **taken)
    told = [line("grant", 1.0), line("look", taking.known_at + 0.1), line("end", 30.0)]
    (found,) = chaos_log.untold([told, OTHER], [taking])
    assert found.startswith("STATE: sq: a claims 8.2 s after its ")
    assert any(text.startswith("ME") for text in checked(told, OTHER, takings=(taking,)))
    told[1]["at"] = taking.known_at - 0.1
    assert chaos_log.untold([told, OTHER], [taking]) == []
    assert checked(told, OTHER, takings=(taking,)) == []


def test_a_session_whose_end_was_not_answered_may_live_on() -> None:
    """And later claims of it count."""
    taking = Disowned(1.2, session=7)
    told = [line("grant", 20.0), line("look", 22.0), line("end", 22.0)]
    assert chaos_log.untold([told], [taking]) == []
    assert checked(told, [line("grant", 21.0, "b", fence=2)], takings=(taking,))


def test_what_was_taken_before_the_first_look_stands_beside_all_others() -> None:
    """Its holder could not know; when it would have been granted, nobody can say."""
    second = [line("grant", 1.5, "b", fence=2), line("look", 1.6, "b"), line("end", 1.7, "b")]
    first = [*GRANTED, line("end", 2.0)]
    assert checked(first, second)
    assert checked(first, second, takings=(Disowned(1.4, fence=2),)) == []


@pytest.mark.parametrize("error", [None, OutcomeUnknownError("lost")])
def test_a_delete_has_happened_for_sure_if_it_was_answered(error: ZooKeeperError | None) -> None:
    def delete(_: str) -> None:
        if error is not None:
            raise error

    outsider: Any = SimpleNamespace(exists=lambda _: stat(czxid=5), delete=delete)
    stage: Any = SimpleNamespace(rng=Random(0), takings=[])
    with suppress(ZooKeeperError):
        chaos_faults._delete(stage, outsider, ["/chaos/sq/a"])
    [taking] = stage.takings
    assert taking.fence == 5
    assert (taking.answered is None) == (error is not None)


def test_what_is_no_claim_and_what_counts_once() -> None:
    """A loss before the first look, a write of a killed process, a downgrade; how much overlaps."""
    told = [line("ask", 1.0), line("end", 2.0)]
    records = chaos_log.history([told], (), {})
    assert [record.what for record in records if record.key == "sq"] == ["ask", "give up"]
    intent: Line = {
        "what": "intent",
        "at": 1.1,
        "who": "a",
        "key": "/r",
        "value": "a 1",
        "fence": 1,
    }
    records = chaos_log.history([[line("grant", 1.0), intent]], (), {})
    assert [each.ok for each in records if each.what == "write"] == [None]
    grants: list[dict[str, Any]] = [
        {"key": "ma"},
        {"key": "mb"},
        {"key": "rw", "downgrade": True},
    ]
    assert chaos_log.grants([[line("grant", 1.0, **more) for more in grants]]).total() == 1
    for start, key, overlap in ((2.0, "sq", 0.5), (2.0, "sem", 0.0), (4.0, "sq", 0.0)):
        beside = [line("grant", start, "b", key=key), line("look", start + 0.5, "b", key=key)]
        first = [line("grant", 1.0, key=key), line("look", 4.0, key=key)]
        assert chaos_log.overlap(chaos_log.counted([first, beside], ())) == pytest.approx(overlap)


# --- the order of arrival -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (Place("sq", 5, 1.0, 3.1), "FIFO: sq: c7 has overtaken place 0x5"),
        (Place("sq", 5, 1.0, 2.9), None),  # gone, for all that is known
        (Place("sq", 7, 1.0, 3.1), None),  # its own
        (Place("sq", 9, 1.0, 3.1), None),  # behind it
        (Place("el", 5, 1.0, 3.1), None),  # elsewhere
    ],
)
def test_who_passes_somebody_in_the_queue_is_found(place: Place, found: str | None) -> None:
    """Whatever became of that one: here it never says a word."""
    told = chaos_log.history([[line("grant", 3.0, "c7", fence=7)]], (), {})
    said = history.check([*told, *chaos_queues.records_of([place])])
    assert [text[: len(found or "")] for text in said] == [found] * (found is not None)


def stat(**fields: int) -> Stat:
    return Stat(**{**dict.fromkeys(Stat.__fields__, 0), **fields})


def member(newest: int, *names: str) -> Any:
    """A server as one who watches sees it: its newest transaction, and who stands in the queue."""
    return SimpleNamespace(
        set_data=lambda *_: stat(mzxid=newest),
        get_children=lambda path: names if path == "/chaos/sq" else (),
        exists=lambda path: stat(czxid=int(path.rpartition("/")[2])),
    )


def looked(*members: Any) -> tuple[QueueWatch, list[float]]:
    """Who watches, after a look at each of these; and when the looks began."""
    watch, moments = QueueWatch((), 1.0), []
    for each in members:
        moments.append(clock())
        watch.look(each, dict.fromkeys(FAIR, 0.0))
    return watch, moments


def last_of(watch: QueueWatch, fence: int) -> float:
    who = f"place {fence:#x}"
    (last,) = [r.at for r in watch.records() if r.who == who and r.what == "give up"]
    return last


def test_what_one_member_alone_goes_on_showing_has_gone() -> None:
    """Seen in a run on 3.8.0: three deletes that one follower had lost (ZOOKEEPER-4712)."""
    watch, moments = looked(member(8, "5", "7"), member(9, "7"), member(10, "5", "7"))
    assert last_of(watch, 5) < moments[1]
    assert last_of(watch, 7) >= moments[2]
    assert watch.disputed == 1
    watch, moments = looked(member(8, "5"), member(4), member(9, "5"))  # which cannot know it yet
    assert last_of(watch, 5) >= moments[2]
    assert watch.disputed == 0
