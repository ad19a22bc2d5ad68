"""The states of a session: which follows which, and which observers are told.

TRANSITIONS is the whole of the state machine; ``SessionStatus._enter`` is the only place that takes
one.  Observers are told in the step that makes the transition, so a wait for a state does not miss
a short one.  This module must not know why a transition is taken.

Beside its state a session keeps six facts.  Each counts in some states only and decides what a
connection or a caller may do there:

* ``Handshake.greeted``, handshake and connected: the server has accepted the session.
* ``Handshake.restored``, handshake and connected: it has been sent credentials and watches.
* ``Session.usable``, connected: False once nothing more is sent on the connection, which is to
  end; for one, because the server does not know an operation (``Session.refused``).
* ``Session.broken``, connecting to connected: why the I/O layer must drop the connection.
* ``Session._closing``, all but the terminal states: ``close`` was called; new requests are refused
  and a session that the server does not know ends as closed instead of expired.
* ``Session._all_ended``, terminal: every request, watch and lease holder knows of the end.
"""

from __future__ import annotations

from functools import partial

from zkwire.jute.record import Record
from zkwire.session.waitable import Waitable
from zkwire.wire.model import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Protocol

    from zkwire.session.waitable import Waker

    class Observer(Protocol):
        """Something that is told every state; returns the functions to call because of it."""

        def see(self, state: State) -> Sequence[Waker]: ...


_WITH_CONNECTION = {
    "lost": State.DISCONNECTED,
    "expire": State.EXPIRED,
    "reject": State.AUTH_FAILED,
    "close": State.CLOSED,
}
TRANSITIONS: dict[State, dict[str, State]] = {
    State.NOT_STARTED: {"start": State.CONNECTING, "close": State.CLOSED},
    State.CONNECTING: {
        "dialled": State.HANDSHAKE,
        "lost": State.DISCONNECTED,
        "close": State.CLOSED,
    },
    State.HANDSHAKE: {
        "usable": State.CONNECTED,
        "usable read-only": State.CONNECTED_READ_ONLY,
        **_WITH_CONNECTION,
    },
    State.CONNECTED: _WITH_CONNECTION,
    State.CONNECTED_READ_ONLY: _WITH_CONNECTION,
    State.DISCONNECTED: {"start": State.CONNECTING, "close": State.CLOSED},
    State.EXPIRED: {},
    State.AUTH_FAILED: {},
    State.CLOSED: {},
}


class StateWait(Waitable):
    """Ready once one of some states has been seen; ``reached`` is the first of them."""

    __slots__ = ("_wanted", "reached")

    def __init__(self, wanted: Iterable[State], current: State) -> None:
        super().__init__()
        self._wanted = frozenset(wanted)
        self.reached: State | None = None
        self.see(current)

    @property
    def ready(self) -> bool:
        """Whether it has been seen."""
        return self.reached is not None

    def see(self, state: State) -> Sequence[Waker]:
        """The session has entered ``state``.  A terminal state ends every wait."""
        if self.reached is None and (state in self._wanted or state.terminal):
            self.reached = state
            return self._take_wakers()
        return ()


class Listener(Record):
    """A user's function that ``dispatch`` calls with every state."""

    function: Callable[[State], object]
    dispatch: Callable[[Callable[[], object]], object]

    def see(self, state: State) -> list[Waker]:
        """The session has entered ``state``."""
        return [partial(self.dispatch, partial(self.function, state))]


class Observers(dict["Observer", None]):
    """All observers of one session, in order."""

    __slots__ = ()

    def add(self, observer: Observer) -> None:
        """From now on tell ``observer`` every state."""
        self[observer] = None

    def remove(self, observer: Observer) -> None:
        """Undo :meth:`add`.  Idempotent."""
        self.pop(observer, None)

    def tell(self, state: State) -> list[Waker]:
        """The session has entered ``state``; returns the functions to call."""
        return [waker for observer in list(self) for waker in observer.see(state)]
