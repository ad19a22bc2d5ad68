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

from tests.interop import chaos, chaos_faults, chaos_log
from tests.interop.chaos_log import Disowned, Line
from tests.interop.chaos_stage import Stage
from tests.interop.chaos_workers import KINDS
from tests.support import history
from tests.support.installed_servers import InstalledBackend
from tests.support.server_control import Backend
from zkwire import Client, ZooKeeperError
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
