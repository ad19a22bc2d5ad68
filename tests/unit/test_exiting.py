"""The end of the interpreter, while daemon threads still make clients."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from zkwire.net import lifetime
from zkwire.net.lifetime import clean_up_at_exit

if TYPE_CHECKING:
    import pytest


class Remembered:
    """Something to clean up: it counts how often it was wound up."""

    def __init__(self) -> None:
        self.times = 0
        clean_up_at_exit(self)

    def wind_up(self, seconds: float) -> None:
        self.times += 1


def test_a_thread_that_makes_clients_does_not_keep_the_others_from_being_wound_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifetime, "_unfinished", type(lifetime._unfinished)())
    kept = [Remembered() for _ in range(500)]
    first = kept[:]
    done = threading.Event()

    def make() -> None:
        while not done.is_set() and len(kept) < 50_000:
            kept.append(Remembered())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=make)
    thread.start()
    try:
        for _ in range(20):
            lifetime._wind_up()
    finally:
        done.set()
        sys.setswitchinterval(interval)
        thread.join()
    assert {each.times for each in first} == {20}
