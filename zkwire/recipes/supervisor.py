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
from functools import partial

from zkwire.errors import (
    ClientClosedError,
    ConnectionLossError,
    LockLostError,
    OperationTimeoutError,
    ZooKeeperError,
)
from zkwire.recipes.runtime import persist
from zkwire.recipes.service import SESSION_OVER, Condition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    from zkwire.recipes.service import Service

    class Shell(Protocol):
        """What a supervisor needs of threads, of an event loop, or of a simulation."""

        mutex: AbstractContextManager[object]

        def now(self) -> float: ...
        def dispatch(self, function: Callable[[], object]) -> None: ...

        def jitter(self) -> float:
            """A random number from 0.5 to 1."""
            ...

        def make_client(self) -> Any:
            """A client that nothing has used."""
            ...

        def make_lock(self, client: Any, path: str, text: str) -> Any:
            """A fair lock of that client."""
            ...

        async def under(self, lock: Any, function: Callable[[Any], Any]) -> None:
            """Acquire the lock, call the function with it, release it."""
            ...

        async def close_client(self, client: Any) -> None:
            """Close it; with it end the services that run in its session."""
            ...

        def check(self) -> None:
            """Raise where the supervisor cannot be used: in a forked child, in another loop."""
            ...

        def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
            """Run ``work`` in a thread or a task of its own."""
            ...

        async def within(self, condition: Condition, timeout: float | None) -> bool:
            """Wait until it holds, at most ``timeout`` seconds; whether it does."""
            ...


LASTED = 1.0  # seconds: a session that was connected that long is followed by no pause
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0


class Sequence:
    """The sessions of one supervisor; for services it is what a driver is in one session."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._next: Any = shell.make_client()  # so that bad options are refused here
        self._client: Any = None  # of the present session, once it is connected
        self._number = 0  # of the present session, from 1
        self._services: dict[Service, None] = {}
        self._error: BaseException | None = None
        self._closed = False
        self._stopped = Condition(lambda: self._closed)
        self._present: Any = None  # the client of the present session, from its beginning
        self._waiting: set[Condition] = set()  # for a newer session

    # --- for services, see recipes.service.Sessions -----------------------------------------------

    def serve(self, service: Service) -> None:
        """Run the service in this session and in each later one, until :meth:`dismiss`."""
        self._shell.check()
        with self._shell.mutex:
            self._check()
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
        if condition.ready:
            return True
        self._check()
        return False

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise ClientClosedError("this supervisor has been closed")

    # --- the sessions -----------------------------------------------------------------------------

    async def supervise(self) -> None:
        """Make one session after another until :meth:`stop`."""
        pause = 0.0
        while not self._closed:
            client, self._next = self._next or self._shell.make_client(), None
            began = await self._run(client)
            lasted = began is not None and self._shell.now() - began >= LASTED
            pause = 0.0 if lasted else pause
            await self._shell.within(self._stopped, pause * self._shell.jitter())
            pause = min(max(FIRST_PAUSE, 2 * pause), LONGEST_PAUSE)

    async def _run(self, client: Any) -> float | None:
        """One session, to its end; since when it was connected, None if it never was."""
        driver, began = client._driver, None
        self._present = client
        try:
            with suppress(*SESSION_OVER):
                if self._closed:
                    return None
                await driver.connected(None)
                if self._number > 0:
                    with suppress(ZooKeeperError):  # a read-only server refuses it
                        await persist(driver, None, driver.operations.sync, "/")
                began = self._shell.now()
                self._enter(client)
                await driver.until_ended()
        finally:
            await self._leave(client)
        return began

    def _enter(self, client: Any) -> None:
        with self._shell.mutex:
            self._client = client
            self._number += 1
            for service in self._services:
                client._driver.serve(service)
        for condition in tuple(self._waiting):
            condition.notify()

    async def _leave(self, client: Any) -> None:
        with self._shell.mutex:
            self._client = None
        await self._shell.close_client(client)
        for service in tuple(client._driver.services):
            client._driver.dismiss(service)

    async def stop(self, error: BaseException | None = None) -> None:
        """End the present session and make no other; ``error`` is what each wait raises then."""
        self._error = self._error or error
        self._closed = True
        self._stopped.notify()
        if self._present is not None:
            await self._shell.close_client(self._present)

    async def clients(self) -> AsyncGenerator[Any, None]:
        """The client of each session as it comes; of sessions missed meanwhile the last."""
        seen = 0
        while True:
            newer = Condition(partial(self._is_newer, seen))
            self._waiting.add(newer)
            try:
                await self.holds(newer, None)
            finally:
                self._waiting.discard(newer)
            client, seen = self._client, self._number
            if client is not None:
                yield client

    def _is_newer(self, number: int) -> bool:
        return self._client is not None and self._number > number

    # --- leadership -------------------------------------------------------------------------------

    async def lead(self, path: str, function: Callable[[Any], Any], text: str) -> None:
        """In each session run for leader, and call the function in each term."""
        try:
            async for client in self.clients():
                lock = self._shell.make_lock(client, path, text)
                with suppress(*SESSION_OVER):
                    while True:
                        with suppress(ConnectionLossError, LockLostError, OperationTimeoutError):
                            await self._shell.under(lock, function)
        except Exception as error:
            if not self._closed:
                await self.stop(error)
