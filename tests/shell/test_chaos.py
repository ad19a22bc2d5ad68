"""A chaos run on a real ensemble, each kind of trouble once, and that it would notice.

``python3 -m tests.interop.chaos`` is the long one. Nothing asserted here is a matter of speed: the
run goes on until each kind of trouble had its turn, and each contender has acquired before and
after it.
"""

from __future__ import annotations

import faulthandler
import sys

import pytest

from tests.interop import chaos, chaos_faults
from tests.interop.chaos_workers import KINDS
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
    assert {*report.faults, *report.idle} == {fault.__name__ for fault in chaos_faults.ALL}
    assert report.grants.total() >= 2 * WORKERS * len(KINDS), str(report)
    assert {who.rpartition("-")[2] for who in report.grants} == set(KINDS)
