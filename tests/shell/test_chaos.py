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
from typing import cast

import pytest

from tests.interop import chaos, chaos_faults, chaos_log, chaos_queues
from tests.interop.chaos_log import Disowned, Line
from tests.interop.chaos_queues import Place, QueueWatch
from tests.interop.chaos_stage import Stage
from tests.interop.chaos_ways import clock
from tests.interop.chaos_workers import FAIR, KINDS
from tests.support import history
from tests.support.history import Record
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


def test_there_is_enough_trouble() -> None:
    kinds = {fault.__name__ for fault in chaos_faults.ALL}
    assert len(kinds) == len(chaos_faults.ALL) >= 14


@pytest.mark.parametrize(
    "fault",
    [
        chaos_faults.links_cut,
        chaos_faults.links_reset,
        chaos_faults.links_silent,
        chaos_faults.clients_cut_off,
        chaos_faults.member_refuses,
        chaos_faults.links_slow,
        chaos_faults.requests_truncated,
        chaos_faults.replies_lost,
    ],
)
def test_a_fault_that_hits_nobody_comes_to_nothing(
    fault: chaos_faults.Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server() as server, FaultProxy(server.hosts) as proxy:
        stage = cast(Stage, SimpleNamespace(rng=Random(1), proxies=[proxy] * 3))
        monkeypatch.setattr(chaos_faults, "_pause", lambda *_: None)
        assert fault(stage) is False
        proxy.clear()
        slow = chaos_faults.links_slow
        with Client(proxy.hosts) as client:

            def meanwhile(*_: object) -> None:
                with suppress(ZooKeeperError):
                    for name in "a" if fault is slow else "abcd":
                        client.create_with_stat(f"/{name}")
                        client.get_children("/")
                        client.get_data(f"/{name}")
                        client.delete(f"/{name}")

            if fault in (chaos_faults.requests_truncated, chaos_faults.replies_lost, slow):
                monkeypatch.setattr(chaos_faults, "_pause", meanwhile)
            assert fault(stage) is True
            proxy.clear()


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


DELETED = Disowned(1.2, fence=1, answered=1.3)
ENDED = Disowned(1.2, session=7, answered=1.3)


@pytest.mark.parametrize("taking", [DELETED, ENDED])
def test_who_goes_on_claiming_what_was_taken_is_found(taking: Disowned) -> None:
    told = [line("grant", 1.0), line("look", taking.known_at + 0.1), line("end", 30.0)]
    second = [line("grant", 1.5, "b", fence=2, session=8), line("end", 3.5, "b")]
    (found,) = chaos_log.untold([told, second], [taking])
    assert found.startswith("STATE: sq: a claims 8.2 s after its ")
    assert any(text.startswith("ME") for text in checked(told, second, takings=(taking,)))
    told[1]["at"] = taking.known_at - 0.1
    assert chaos_log.untold([told, second], [taking]) == []
    assert checked(told, second, takings=(taking,)) == []


def test_a_session_whose_end_was_not_answered_may_live_on() -> None:
    """And later claims of it count."""
    taking = Disowned(1.2, session=7)
    told = [line("grant", 20.0), line("look", 22.0), line("end", 22.0)]
    assert chaos_log.untold([told], [taking]) == []
    assert checked(told, [line("grant", 21.0, "b", fence=2)], takings=(taking,))


class Outsider:
    """A client that deletes, and is told so or not."""

    def __init__(self, error: ZooKeeperError | None) -> None:
        self._error = error

    def exists(self, path: str) -> Stat:
        return stat(czxid=5)

    def delete(self, path: str) -> None:
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("error", [None, OutcomeUnknownError("lost")])
def test_a_delete_has_happened_for_sure_if_it_was_answered(error: ZooKeeperError | None) -> None:
    stage = cast(Stage, SimpleNamespace(rng=Random(0), takings=[]))
    with suppress(ZooKeeperError):
        chaos_faults._delete(stage, cast(Client, Outsider(error)), ["/chaos/sq/a"])
    [taking] = stage.takings
    assert taking.fence == 5
    assert (taking.answered is None) == (error is not None)


def test_who_lost_it_before_the_first_look_has_claimed_nothing() -> None:
    told = [line("ask", 1.0), line("end", 2.0)]
    records = chaos_log.history([told], (), {})
    assert [record.what for record in records if record.key == "sq"] == ["ask", "give up"]


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


# --- the order of arrival -------------------------------------------------------------------------


def places(*seen: Place) -> list[Record]:
    return list(chaos_queues.records_of(list(seen)))


def told_of(*grants: tuple[float, int]) -> list[Record]:
    lines = [line("grant", at, f"c{fence}", fence=fence) for at, fence in grants]
    return chaos_log.history([[one] for one in lines], (), {})


def test_who_passes_somebody_in_the_queue_is_found() -> None:
    """Whatever became of that one: here it never says a word."""
    (found,) = history.check([*told_of((3.0, 7)), *places(Place("sq", 5, 1.0, 3.1))])
    assert found.startswith("FIFO: sq: c7 has overtaken place 0x5")


@pytest.mark.parametrize(
    "place",
    [
        Place("sq", 5, 1.0, 2.9),  # gone, for all that is known
        Place("sq", 7, 1.0, 3.1),  # its own
        Place("sq", 9, 1.0, 3.1),  # behind it
        Place("el", 5, 1.0, 3.1),  # elsewhere
    ],
)
def test_who_passes_nobody_is_not(place: Place) -> None:
    assert history.check([*told_of((3.0, 7)), *places(place)]) == []


class Member:
    """A server as one who watches sees it: its newest transaction, and who stands in the queue."""

    def __init__(self, newest: int, *names: str) -> None:
        self.newest = newest
        self.names = names

    def set_data(self, path: str, _: bytes) -> Stat:
        assert path == chaos_queues.MARK
        return stat(mzxid=self.newest)

    def get_children(self, path: str) -> tuple[str, ...]:
        return self.names if path == "/chaos/sq" else ()

    def exists(self, path: str) -> Stat:
        return stat(czxid=int(path.rpartition("/")[2]))


def stat(**fields: int) -> Stat:
    return Stat(**{**dict.fromkeys(Stat.__fields__, 0), **fields})


def looked(*members: Member) -> tuple[QueueWatch, list[float]]:
    """Who watches, after a look at each of these, a second apart; and when the looks began."""
    watch, moments = QueueWatch((), 1.0), []
    before = dict.fromkeys(FAIR, 0.0)
    for member in members:
        moments.append(clock())
        watch.look(cast(Client, member), before)
    return watch, moments


def last_of(watch: QueueWatch, fence: int) -> float:
    (last,) = [
        r.at for r in watch.records() if r.who == f"place {fence:#x}" and r.what == "give up"
    ]
    return last


def test_what_one_member_alone_goes_on_showing_has_gone() -> None:
    """Seen in a run on 3.8.0: three deletes that one follower had lost (ZOOKEEPER-4712)."""
    watch, moments = looked(Member(8, "5", "7"), Member(9, "7"), Member(10, "5", "7"))
    assert last_of(watch, 5) < moments[1]
    assert last_of(watch, 7) >= moments[2]
    assert watch.disputed == 1


def test_what_a_member_cannot_know_yet_has_not_gone() -> None:
    watch, moments = looked(Member(8, "5"), Member(4), Member(9, "5"))
    assert last_of(watch, 5) >= moments[2]
    assert watch.disputed == 0


# --- figures --------------------------------------------------------------------------------------


def test_overlap_is_measured() -> None:
    told = [
        [line("grant", 1.0), line("look", 4.0)],
        [line("grant", 2.0, "b"), line("look", 2.5, "b")],
    ]
    assert chaos_log.overlap(chaos_log.counted(told, ())) == pytest.approx(0.5)
    told[0][1]["at"] = 2.0
    assert chaos_log.overlap(chaos_log.counted(told, ())) == 0.0


def test_readers_and_leases_overlap_rightly() -> None:
    for key, role in (("rw", "read"), ("sem", "")):
        told = [
            [
                line("grant", 1.0, who, key=key, role=role),
                line("look", 4.0, who, key=key, role=role),
            ]
            for who in "abc"
        ]
        assert chaos_log.overlap(chaos_log.counted(told, ())) == 0.0


def test_what_was_taken_before_the_first_look_stands_beside_all_others() -> None:
    """Its holder could not know; when it would have been granted, nobody can say."""
    first = [line("grant", 1.0), line("look", 2.0), line("end", 2.0)]
    second = [line("grant", 1.5, "b", fence=2), line("look", 1.6, "b"), line("end", 1.7, "b")]
    assert checked(first, second)
    assert checked(first, second, takings=(Disowned(1.4, fence=2),)) == []
