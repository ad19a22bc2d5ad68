"""What callers ask of a supervisor: to wait, for the client of a session, for each session.

To services it is what a driver is for one session
(:class:`zkwire.recipes.services.service.Sessions`).  When a session begins and ends is decided
in :mod:`zkwire.recipes.services.succession`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from zkwire.errors import ClientClosedError, UnreachableError
from zkwire.recipes.services.service import Condition
from zkwire.recipes.services.succession import Succession
from zkwire.session.waitable import Either, check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from zkwire.recipes.supervised import SupervisedRuntime


class SessionSequence(Succession):
    """The sessions of a supervisor, seen from outside."""

    @property
    def _sessions(self) -> SessionSequence:
        return self  # in the place of the supervisor

    @property
    def _recipe_runtime(self) -> SupervisedRuntime:
        return self._runtime

    async def newest(self) -> Any:
        """The driver of the newest session, which may have to be connected first.

        Its next request comes after a ``sync``, so that no answer is older than those in the
        session before.
        """
        self.begin()
        while True:
            client = self._newest
            driver = client._driver
            if not driver.session.ended and driver.closing is None:
                if client is not self._present[1] and self._present[0] > 0:
                    driver.operations.sync("/")
                return driver
            replaced = Condition(partial(self._is_replaced, client))
            self._waiting.add(replaced)
            try:
                await self.holds(replaced, None)
            finally:
                self._waiting.discard(replaced)

    def _is_replaced(self, client: Any) -> bool:
        return self._newest is not client

    def check_callback(self, function: Any) -> None:
        """TypeError for a function of a user's that the shell cannot call."""
        self._shell.check_function(function)

    def check(self) -> None:
        """Raise ForkedError in a forked child, RuntimeError in another event loop."""
        self._shell.check()

    @property
    def forked(self) -> bool:
        """Whether this is the copy in a forked child."""
        return self._shell.forked

    @property
    def operations(self) -> Any:
        """The operations of a client of its, for rehearsals."""
        return self._newest._driver.operations

    def dispatch(self, function: Callable[[], object]) -> None:
        """Call a user's function, in order, where a user's code may run."""
        self._shell.dispatch(function)

    async def holds(self, condition: Condition, timeout: float | None) -> bool:
        """Wait until ``condition`` holds; raises what has ended the supervisor."""
        self._shell.check()
        await self._shell.within(Either(condition, self._stopped), timeout)
        if not condition.ready:
            self._check()
        return condition.ready

    async def _newer(self, number: int, timeout: float | None) -> tuple[int, Any]:
        """A later session than that one, and its client, which is None when the time runs out."""
        self.begin()
        found: tuple[int, Any] = (number, None)

        def is_newer() -> bool:
            nonlocal found
            present = self._present
            if present[1] is not None and present[0] > number:
                found = present
            return found[1] is not None

        newer = Condition(is_newer)
        self._waiting.add(newer)
        try:
            await self.holds(newer, timeout)
            return found
        finally:
            self._waiting.discard(newer)

    async def later(self, number: int) -> tuple[int, Any] | None:
        """The number and the client of a session behind that one, of several the last.

        None at the end of the supervisor; raises what has ended it.
        """
        with suppress(ClientClosedError):
            return await self._newer(number, None)
        self._shell.check()
        self.raise_error()
        return None

    async def client(self, timeout: float | None = None) -> Any:
        """The client of the present session, for requests now; wait up to ``timeout`` s for one.

        For what comes later ask again: once its session is over each call to it raises
        SessionExpiredError.  UnreachableError when the time runs out; raises what has ended the
        supervisor.
        """
        limit = check_timeout("timeout", timeout)
        _, client = await self._newer(0, limit)
        if client is None:
            raise UnreachableError(f"there was no session within {limit:.3g} s{self._refusal}")
        return client

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the supervisor ends, at most ``timeout`` seconds; whether it has.

        Raises the error of a function that has failed.
        """
        limit = check_timeout("timeout", timeout)
        self._shell.check()
        with suppress(ClientClosedError):  # there is nothing to wait for
            self.begin()
        over = await self._shell.within(self._stopped, limit)
        self.raise_error()
        return over

    def run(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run ``work()`` beside the sessions; an error of it ends the supervisor."""
        self.begin()
        self._shell.begin(partial(self._reported, work, name), name)

    async def _reported(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        try:
            await work()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            driver = self._newest._driver
            driver.log_failure(f"{driver.name}: {name} has ended the supervisor", error)
            await self.stop(error)
        finally:
            self._end(None)  # whatever has ended it, a cancellation from outside, too
