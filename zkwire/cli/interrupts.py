"""What asks a command to end that has something to put away first: Ctrl-C, SIGTERM and SIGHUP.

All three end as KeyboardInterrupt; the exit status of the command says which it was.  A signal that
was ignored when the process was started stays so (``nohup``).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NoReturn

from zkwire.cli.output import BY_SIGNAL, with_status

SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


def interrupt(number: int) -> NoReturn:
    """End the command as this signal does."""
    raise with_status(KeyboardInterrupt(), BY_SIGNAL + number)


@contextmanager
def ending() -> Generator[None]:
    """Within it SIGTERM and SIGHUP are as Ctrl-C."""
    with handled(lambda number, _: interrupt(number)):
        yield


@contextmanager
def handled(handler: Callable[[int, object], object]) -> Generator[None]:
    """Within it the three are for this handler; in another thread than the main one for none."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in map(int, SIGNALS):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
