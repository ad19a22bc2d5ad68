"""The end of a thread that holds a re-entrant lock, which nobody else could release.

A thread's own values are finalized when it ends, in that thread, which is at nothing else then; the
I/O thread does the rest.  In a forked child threads end that have never run there, and at the end
of the interpreter nothing can be done any more.
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
    from zkwire.operations import Operations
    from zkwire.recipes.lock import Lock


class _Owner:
    """A thread, and the locks that it alone releases; finalized at the thread's end."""

    _process = 0  # of none, while it is being made

    def __init__(self) -> None:
        self.cores: WeakSet[Lock] = WeakSet()
        self._name = f"the thread {threading.current_thread().name}"
        self._process = os.getpid()

    def __del__(self) -> None:
        if sys.is_finalizing() or os.getpid() != self._process:
            return
        for core in self.cores:
            if core.owned:
                with suppress(ZooKeeperError):  # the session is over, and its nodes go with it
                    core.world.spawn(partial(_bereave, core, self._name))


async def _bereave(core: Lock, owner: str, _: Operations) -> None:
    core.bereave(owner)


_locals: dict[object, threading.local] = {}  # gevent's threads have others


def belongs_to_this_thread(core: Lock) -> None:
    """Release the lock when this thread ends and holds it."""
    thread = _locals.setdefault(threading.get_ident, threading.local())
    owner: _Owner | None = getattr(thread, "owner", None)
    if owner is None:
        owner = thread.owner = _Owner()
    owner.cores.add(core)
