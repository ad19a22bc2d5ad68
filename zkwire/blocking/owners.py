"""What is one thread's own, and the end of a thread that holds a re-entrant lock.

No other thread could release that.  A thread's own values are finalized when it ends, in that
thread, which is at nothing else then; the I/O thread does the rest.  In a forked child threads end
that have never run there, and at the end of the interpreter nothing can be done any more.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from functools import partial
from weakref import WeakSet

from zkwire.errors import ZooKeeperError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from zkwire.operations import Operations
    from zkwire.recipes.runtime import Owned

    T = TypeVar("T")


def value_of_each_thread(make: Callable[[], T]) -> Callable[[], T]:
    """A function that returns the value of the thread that calls it, made at the first call."""
    kinds: dict[object, Any] = {}  # gevent replaces threads, and their values with them

    def value() -> T:
        kind = threading.get_ident
        # In one step: of two threads that begin at once, one would lose its value.
        values = kinds.get(kind) or kinds.setdefault(kind, threading.local())
        try:
            return values.value
        except AttributeError:
            values.value = made = make()
            return made

    return value


class _Owner:
    """A thread, and the locks that it alone releases; finalized at the thread's end."""

    _process = 0  # of none, while it is being made

    def __init__(self) -> None:
        self.locks: WeakSet[Owned] = WeakSet()
        self._name = f"the thread {threading.current_thread().name}"
        self._process = os.getpid()

    def __del__(self) -> None:
        if sys.is_finalizing() or os.getpid() != self._process:
            return
        for lock in self.locks:
            if lock._owned:
                with suppress(ZooKeeperError):  # the session is over, and its nodes go with it
                    lock._runtime.spawn(partial(_tell, lock, self._name))


async def _tell(lock: Owned, owner: str, _: Operations) -> None:
    lock._owner_ended(owner)


_owner_of_this_thread = value_of_each_thread(_Owner)


def tell_at_the_end_of_this_thread(lock: Owned) -> None:
    """Tell the lock when this thread ends and still owns it."""
    _owner_of_this_thread().locks.add(lock)
