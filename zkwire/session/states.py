"""The states of a session: which follows which, and which observers are told.

TRANSITIONS is the whole of the state machine; :meth:`StateMachine.enter` is the only place that
assigns the state.  Observers are told in the step that makes the transition, so a wait for a state
does not miss a short one.  This module must not know why a transition is taken.

Beside its state a session keeps six facts.  Each counts in some states only and decides what a
connection or a caller may do there:

* ``Handshake.greeted``, handshake and connected: the server has accepted the session.
* ``Handshake.restored``, handshake and connected: it has been sent credentials and watches.
* ``Session.usable``, connected: False if the server closes the connection because it does not know
  an operation; nothing more is sent then (``Session.refused``).
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


class StateChange(Waitable):
    """Ready while the session is usable, and when it has ended."""

    __slots__ = ("_machine",)

    def __init__(self, machine: StateMachine) -> None:
        super().__init__()
        self._machine = machine

    @property
    def ready(self) -> bool:
        """Whether requests are sent at once, or will never be sent any more."""
        return self._machine.state.usable or self._machine.state.terminal


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


class StateMachine:
    """The state of one session; ``callbacks`` is the state machine's list of functions to call."""

    __slots__ = ("_callbacks", "_told", "change", "observers", "state")

    def __init__(self, callbacks: list[Waker]) -> None:
        self.state: State = State.NOT_STARTED
        self.observers: Observers = Observers()
        self.change: StateChange = StateChange(self)
        self._callbacks = callbacks
        self._told = self.state

    def enter(self, by: str) -> None:
        """Take the transition ``by``; KeyError if there is none."""
        self.state = TRANSITIONS[self.state][by]
        self.tell()

    def tell(self) -> None:
        """Tell the observers the state, unless they know it.  Idempotent."""
        if self._told is not self.state:
            self._callbacks += self.observers.tell(self.state)
            self._told = self.state
        if self.change.ready:
            self._callbacks += self.change._take_wakers()
