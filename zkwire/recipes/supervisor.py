"""Sessions one after another, and what shall be true in each of them.

It decides when a session is begun, what runs in it, and what must have ended before the next.  It
must not know how a client is made or what a thread is: that is its shell's matter.

Invariants:

* There is one session at a time.  The client of the one before is closed before the next is made,
  so what was made with it (a lock, a watch, a term of leadership) can never go on: each call to it
  raises.
* A service runs in the newest session.  A function is not called again before it has returned.
* A later session begins with a ``sync``: what is read in it is never older than what was read in
  the one before.
* Sessions that end at once are followed by pauses that double; one that has lasted, by none.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import ClientClosedError, UnreachableError, ZooKeeperError
from zkwire.recipes.runtime import persist
from zkwire.recipes.service import SESSION_OVER, Condition
from zkwire.session.waitable import check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    from zkwire.recipes.service import Service

    class Shell(Protocol):
        """What a supervisor needs of threads, of an event loop, or of a simulation."""

        mutex: AbstractContextManager[object]
        now: Callable[[], float]

        def check(self) -> None:
            """Raise where the supervisor cannot be used: in a forked child, in another loop."""
            ...

        def jitter(self) -> float:
            """A random number from 0.5 to 1."""
            ...

        def make_client(self) -> Any:
            """A client that nothing has used."""
            ...

        async def close_client(self, client: Any) -> None:
            """Close it, and with it end what runs in its session.  Idempotent."""
            ...

        def make_lock(self, client: Any, path: str, text: str) -> Any:
            """A fair lock of that client."""
            ...

        async def under(self, lock: Any, function: Callable[[Any], Any]) -> None:
            """Acquire the lock, call the function with it, release it."""
            ...

        def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
            """Run ``work`` in a thread or a task of its own."""
            ...

        async def within(self, condition: Condition, timeout: float | None) -> bool:
            """Wait until it holds, at most ``timeout`` seconds; whether it does."""
            ...

        def dispatch(self, function: Callable[[], object]) -> None: ...


LASTED = 0.1  # seconds: a session that was connected that long is followed by no pause
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0


class Sequence:
    """The sessions of one supervisor; to services it is what a driver is for one session."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._newest: Any = shell.make_client()  # so that bad options are refused here
        self._client: Any = None  # the newest, while it is connected or may be again
        self._number = 0  # how many sessions there have been
        self._begun = False
        self._services: dict[Service, None] = {}
        self._waiting: set[Condition] = set()  # for a session
        self._error: BaseException | None = None
        self._closed = False
        self._stopped = Condition(lambda: self._closed)

    # --- for services, see recipes.service.Sessions -----------------------------------------------

    def serve(self, service: Service) -> None:
        """Run the service in this session and in each later one, until :meth:`dismiss`."""
        self.begin()
        with self._shell.mutex:
            self._services[service] = None
            if self._client is not None:
                with suppress(*SESSION_OVER):  # the next session serves it
                    self._client._driver.serve(service)

    def dismiss(self, service: Service) -> None:
        """Stop the service soon, in the middle of a wait.  Idempotent."""
        with self._shell.mutex:
            self._services.pop(service, None)
            if self._client is not None:
                self._client._driver.dismiss(service)

    def dispatch(self, function: Callable[[], object]) -> None:
        """Call a user's function, in order, where a user's code may run."""
        self._shell.dispatch(function)

    async def holds(self, condition: Condition, timeout: float | None) -> bool:
        """Wait until ``condition`` holds; raises what has ended the supervisor."""
        self._shell.check()
        either = Condition(lambda: condition.ready or self._closed)
        condition._add_waker(either.notify)
        self._stopped._add_waker(either.notify)
        try:
            await self._shell.within(either, timeout)
        finally:
            condition._drop_waker(either.notify)
            self._stopped._drop_waker(either.notify)
        if not condition.ready:
            self._check()
        return condition.ready

    def _check(self) -> None:
        self._shell.check()
        self.raise_error()
        if self._closed:
            raise ClientClosedError("this supervisor has been closed")

    # --- the sessions -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to connect unless that has been done; raises what has ended the supervisor."""
        self._check()
        with self._shell.mutex:
            if not self._begun:
                self._begun = True
                self._shell.begin(self._supervise(), "sessions")

    async def _supervise(self) -> None:
        pause = 0.0
        try:
            while True:
                if await self._run(self._newest):
                    pause = 0.0
                if await self._shell.within(self._stopped, pause * self._shell.jitter()):
                    return
                pause = min(max(FIRST_PAUSE, 2 * pause), LONGEST_PAUSE)
                self._newest = self._shell.make_client()
        except Exception as error:  # a certificate that is gone, say
            await self.stop(error)

    async def _run(self, client: Any) -> bool:
        """One session, to its end; whether it has lasted."""
        driver, lasted = client._driver, False
        try:
            with suppress(*SESSION_OVER):
                if not self._closed:
                    await driver.connected(None)
                    if self._number > 0:
                        with suppress(ZooKeeperError):  # a read-only server refuses it
                            await persist(driver, None, driver.operations.sync, "/")
                    began = self._shell.now()
                    self._enter(client)
                    await driver.until_ended()
                    lasted = self._shell.now() - began >= LASTED
        finally:
            with self._shell.mutex:
                self._client = None
            await self._shell.close_client(client)
            for service in tuple(driver.services):
                driver.dismiss(service)
        return lasted

    def _enter(self, client: Any) -> None:
        with self._shell.mutex:
            self._client = client
            self._number += 1
            for service in self._services:
                client._driver.serve(service)
        for condition in tuple(self._waiting):
            condition.notify()

    async def stop(self, error: BaseException | None = None) -> None:
        """End the session and make no other; ``error`` is what each wait raises from now on."""
        self._error = self._error or error
        self._closed = True
        self._stopped.notify()
        await self._shell.close_client(self._newest)

    async def _newer(self, number: int, timeout: float | None) -> Any:
        """The client of a later session than that one; None when the time runs out."""
        self.begin()
        newer = Condition(lambda: self._client is not None and self._number > number)
        self._waiting.add(newer)
        try:
            while await self.holds(newer, timeout):
                if (client := self._client) is not None:
                    return client
            return None
        finally:
            self._waiting.discard(newer)

    async def clients(self) -> AsyncGenerator[Any, None]:
        """The client of each session as it comes; of sessions missed meanwhile the last."""
        number = 0
        while not self._closed:
            try:
                client = await self._newer(number, None)
            except ClientClosedError:
                break
            number = self._number
            yield client
        self.raise_error()

    async def client(self, timeout: float | None = None) -> Any:
        """The client of the present session, for requests now; wait up to ``timeout`` s for one.

        For what comes later ask again: once its session is over each call to it raises
        SessionExpiredError.  UnreachableError when the time runs out; raises what has ended the
        supervisor.
        """
        client = await self._newer(0, check_timeout("timeout", timeout))
        if client is None:
            raise UnreachableError(f"there was no session within {timeout:.3g} s")
        return client

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the supervisor ends, at most ``timeout`` seconds; whether it has.

        Raises the error of a function that has failed.
        """
        limit = check_timeout("timeout", timeout)
        self._shell.check()
        over = await self._shell.within(self._stopped, limit)
        self.raise_error()
        return over

    def raise_error(self) -> None:
        """Raise the error that a function, or the making of a client, has ended with."""
        if self._error is not None:
            raise self._error

    def run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run ``work`` beside the sessions; an error of it ends the supervisor."""
        self.begin()
        self._shell.begin(self._reported(work), name)

    async def _reported(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            await self.stop(error)
