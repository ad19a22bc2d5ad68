"""What the worlds of both clients have in common; see :mod:`zkwire.recipes.runtime`."""

from __future__ import annotations

from functools import partial
from itertools import count

from zkwire.errors import ClientClosedError
from zkwire.session.outcomes import CLOSING
from zkwire.session.states import StateWait
from zkwire.session.waitable import Awaited
from zkwire.wire.model import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from random import Random
    from typing import Any

    from zkwire.net.pipeline import Pipeline
    from zkwire.operations import Operations
    from zkwire.recipes.runtime import Engaged
    from zkwire.session.watch import Watch


class ClientWorld:
    """A client as its recipes see it, but for waiting: that is the shells' own."""

    operation_timeout: float | None = None  # seconds

    def __init__(self, pump: Any, operations: Pipeline, background: Pipeline, rng: Random) -> None:
        self.operations = operations
        self.background = background
        self.now: Any = pump.now
        self.caller: Any = pump.caller
        self.hold: Any = pump.hold
        self.unhold: Any = pump.unhold
        self.shortly: Any = pump.shortly
        self.withdraw: Any = pump.withdraw
        self.dispatch: Any = pump.dispatch
        self.wait: Any = pump.wait
        self.when_ready: Any = pump.when_ready
        self.engaged: set[Engaged] = set()
        self.going: set[str] = set()
        self._pump = pump
        # Drawn once: from the system's source of randomness it takes 3 µs.
        self._prefix = f"{rng.getrandbits(64):016x}"
        self._attempts = count(1)

    def spawn(self, work: Callable[[Operations], Coroutine[Any, Any, object]]) -> None:
        """Run ``work(background)``: its first step at once, the rest behind the caller's back."""
        self._pump.spawn(lambda: work(self.background))

    def check_open(self) -> None:
        """Raise what has ended the session, or ClientClosedError as soon as that is wanted."""
        session = self._pump.session
        if session.ended:
            raise session.ending()
        if self._pump.closing is not None:
            raise ClientClosedError(CLOSING)

    async def another_state(self) -> None:
        """In a coroutine given to ``spawn``: wait until the session is in another state."""
        state = self._pump.session.state
        wait = StateWait(set(State) - {state}, state)
        self._pump.attach(wait)
        try:
            await Awaited(wait)
        finally:
            self._pump.detach(wait)

    def warn(self, message: str) -> None:
        """Tell the people who read the log."""
        from zkwire.net.observe import warn

        self.dispatch(partial(warn, message))

    def forget(self, watch: Watch) -> None:
        """Take a watch out of the client's table, without telling the server."""
        self._pump.close_watch(watch, tell=False)

    @property
    def session_timeout(self) -> float:
        """The session timeout in seconds."""
        return self._pump.session.timeout

    def unique(self) -> str:
        """An id that no other attempt in the world has."""
        return f"{self._prefix}{next(self._attempts):08x}"

    @property
    def session_id(self) -> int:
        """The session's id; 0 before the first handshake."""
        return self._pump.session.session_id

    @property
    def resumed(self) -> bool:
        """Whether the session was another client's before."""
        return self._pump.session.resumed

    @property
    def usable(self) -> bool:
        """Whether requests go out at once."""
        return self._pump.session.usable

    @property
    def lease_deadline(self) -> float:
        """Until then, on the clock ``now``, the session is surely alive."""
        return 0.0 if self._pump.forked else self._pump.session.lease_deadline

    @property
    def connection(self) -> object:
        """Another object for each connection, to be compared by ``is``."""
        return self._pump.session.connection

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self.now())
