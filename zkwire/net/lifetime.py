"""How a client ends if nobody closes it: with the interpreter, in a forked child, or unreachable.

*The normal end of the interpreter*: clean-ups that are under way get a moment to finish.  The
threads that do them are daemons, and would otherwise end in the middle of them.  This module only
decides how long all of them get together; each client knows what it has to clean up.  Asyncio
clients are not concerned: their loops do not run any more.

*A forked child* closes its parent's clients, without a byte or a FIN.  The connection belongs to
the parent, and the threads that would serve it do not exist in the child.

*A client that nothing refers to*: its own thread or event loop does not keep it alive between two
turns.  Whatever the caller refers to (the client itself, a lock, a watch, a reply) keeps the whole
client alive.  When the caller refers to none of these any more, the collector runs the client's
finalizer.  That has the thread or the loop hold the client again, until the client is closed.  A
finalizer runs in any thread and at any moment, so this one takes no lock and waits for nothing.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import warnings
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any


SECONDS = 1.0  # for all together

# Not a WeakSet: `list` copies a set in one step, while daemon threads still add to it.
_unfinished: set[weakref.ref[Any]] = set()


def clean_up_at_exit(unfinished: Any) -> None:
    """Have ``unfinished.wind_up`` called when the interpreter ends; this keeps nothing alive."""
    _unfinished.add(weakref.ref(unfinished, _unfinished.discard))


@atexit.register
def _wind_up() -> None:
    latest = time.monotonic() + SECONDS
    for unfinished in [found for each in list(_unfinished) if (found := each()) is not None]:
        unfinished.wind_up(max(0.0, latest - time.monotonic()))


_drivers: weakref.WeakSet[Any] = weakref.WeakSet()


def close_in_child(driver: Any) -> None:
    """Have ``driver.after_fork`` called in every forked child."""
    _drivers.add(driver)


def _after_fork_in_child() -> None:
    for driver in list(_drivers):
        driver.after_fork()
    _drivers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class OwnerRef:
    """A reference that can be made weak, and strong again.

    ``get()`` is the target.  While the finalizer runs it may be None for a moment: the collector
    ends weak references first.  ``sockets`` are the sockets that the close will need: the collector
    calls the finalizers of everything that it has found, and a socket's finalizer would close it.
    """

    __slots__ = ("get", "sockets")
    get: Callable[[], Any]

    def __init__(self, target: object) -> None:
        self.sockets: set[socket.socket] = set()
        self.hold(target)

    def hold(self, target: object) -> None:
        """Keep the target alive from now on."""
        self.get = lambda: target

    def release(self) -> None:
        """Leave it to others to keep the target alive."""
        self.get = weakref.ref(self.get())


class AllocationSite:
    """Made with a client: up to Python 3.11 tracemalloc does not know objects with attributes."""

    __slots__ = ("__weakref__",)


def warn_unclosed(client: object, made: AllocationSite) -> None:
    """Say that the client was never closed; tracemalloc knows where it was made."""
    source = client if sys.version_info >= (3, 12) else made
    warnings.warn(f"unclosed client {client!r}", ResourceWarning, stacklevel=2, source=source)
