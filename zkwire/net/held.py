"""What keeps a client alive: its own thread or event loop does not, between two turns.

What the caller refers to (the client itself, a lock, a watch, a reply) keeps all of it alive, and
the collector finds out when the caller refers to none of these any more.  The client's finalizer
then has the thread or the loop hold the client again until that is closed.

Invariant: a finalizer runs in any thread and at any moment, so here it takes no lock and waits for
nothing.
"""

from __future__ import annotations

import sys
import warnings
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any


class Held:
    """A reference that can be made weak, and strong again.

    ``get()`` is the target.  While the finalizer runs it may be None for a moment: the collector
    ends weak references first.  ``sockets`` are those that the close will need: the collector calls
    the finalizers of all that it has found, and a socket's would close it.
    """

    __slots__ = ("get", "sockets")
    get: Callable[[], Any]

    def __init__(self, target: object, sockets: set[socket.socket]) -> None:
        self.sockets: set[socket.socket] = sockets
        self.hold(target)

    def hold(self, target: object) -> None:
        """Keep the target alive from now on."""
        self.get = lambda: target

    def release(self) -> None:
        """Leave it to others to keep the target alive."""
        self.get = weakref.ref(self.get())


class Made:
    """Made with a client: up to Python 3.11 tracemalloc does not know objects with attributes."""

    __slots__ = ("__weakref__",)


def warn_unclosed(client: object, made: Made) -> None:
    """Say that the client was never closed; tracemalloc knows where it was made."""
    source = client if sys.version_info >= (3, 12) else made
    warnings.warn(f"unclosed client {client!r}", ResourceWarning, stacklevel=2, source=source)
