"""What asks a command to end that has something to put away first: Ctrl-C, SIGTERM and SIGHUP.

All three raise KeyboardInterrupt in the main thread; the exit status of the command says which it
was.  A signal that was ignored when the process was started stays so (``nohup``).
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager

from zkwire.cli.exits import BY_SIGNAL, with_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

_LIKE_CTRL_C = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending() -> Generator[None]:
    """Within it SIGTERM and SIGHUP are as Ctrl-C."""
    with handled(_LIKE_CTRL_C, lambda number, _: _interrupt(number)):
        yield


@contextmanager
def delayed() -> Generator[None]:
    """Within it none of the three comes; at its end the first that has come does."""
    came: list[int] = []
    try:
        with handled((signal.SIGINT, *_LIKE_CTRL_C), lambda number, _: came.append(number)):
            yield
    finally:
        if came:
            _interrupt(came[0])


def _interrupt(number: int) -> None:
    raise with_status(KeyboardInterrupt(), BY_SIGNAL + number)


@contextmanager
def handled(numbers: tuple[int, ...], handler: Callable[[int, object], object]) -> Generator[None]:
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
