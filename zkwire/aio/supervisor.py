"""The supervisor for asyncio: one task makes the sessions, each leadership has one of its own."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, nullcontext, suppress
from random import Random

from zkwire.aio.client import AsyncClient
from zkwire.aio.waiting import cancelled_by, within
from zkwire.aio.watching import AsyncNodeWatches
from zkwire.errors import ForkedError
from zkwire.net.pacing import clock
from zkwire.recipes.leadership import SESSION_END, SupervisorView, is_session_end
from zkwire.recipes.supervisor import Sequence
from zkwire.session.states import StateWait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager
    from typing import Any, Final, Self

    from zkwire.aio.locks import AsyncSequentialLock
    from zkwire.recipes.service import Condition


class LoopShell:
    """What a supervisor needs of an event loop."""

    now: Final = staticmethod(clock)

    def __init__(self, hosts: str, options: dict[str, Any]) -> None:
        self.mutex: Any = nullcontext()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self._arguments = hosts, options
        self._pid = os.getpid()
        self._client: Any = None
        self._rng = Random()

    def jitter(self) -> float:
        """A random number from 0.5 to 1."""
        return self._rng.uniform(0.5, 1.0)

    def make_client(self) -> AsyncClient:
        """A client that nothing has used."""
        hosts, options = self._arguments
        self._client = AsyncClient(hosts, **options)
        return self._client

    async def close_client(self, client: AsyncClient) -> None:
        """Close it; the services that run in its session end in the same turn of the loop."""
        await client.close()

    def make_lock(self, client: AsyncClient, path: str, text: str) -> AsyncSequentialLock:
        """A fair lock of that client."""
        from zkwire.aio.locks import AsyncSequentialLock

        return AsyncSequentialLock(client, path, text)

    async def under(self, lock: Any, function: Callable[[Any], Any]) -> None:
        """Acquire the lock, call the function with it, release it; a loss cancels the function."""
        async with lock, lock.cancel_on_loss():
            await function(lock)

    def check(self) -> None:
        """Raise ForkedError in a forked child, RuntimeError in another event loop."""
        if os.getpid() != self._pid:
            raise ForkedError(
                "this supervisor belongs to the parent process; make one in this process"
            )
        loop = asyncio.get_running_loop()
        if self.loop is None:
            self.loop = loop
        if loop is not self.loop:
            raise RuntimeError("this AsyncSupervisor belongs to another event loop")

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run ``work`` in a task of its own."""
        self.tasks.append(asyncio.get_running_loop().create_task(work, name=f"zkwire-{name}"))

    async def within(self, condition: Condition, timeout: float | None) -> bool:
        """Wait until it holds, at most ``timeout`` seconds; whether it does."""
        return await within(asyncio.get_running_loop(), condition, timeout)

    def dispatch(self, function: Callable[[], object]) -> None:
        """Call a user's function soon; a coroutine that it returns runs as a task."""
        self._client._driver.dispatch(function)

    async def end(self) -> None:
        """Cancel the tasks, and wait for them."""
        tasks = [task for task in self.tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class AsyncSupervisor(SupervisorView, AsyncNodeWatches):
    """Sessions one after another, under asyncio; see :class:`zkwire.Supervisor`.

        async with AsyncSupervisor("127.0.0.1:2181") as supervisor:
            supervisor.lead("/election", work)  # await work(lock) in each term
            await supervisor.wait()

    A function that leads is a coroutine function, and is cancelled when its term is lost.
    """

    def __init__(self, hosts: str, **options: Any) -> None:
        self._shell = LoopShell(hosts, self._checked(options))
        self._algorithm = Sequence(self._shell)

    async def wait(self, timeout: float | None = None) -> bool:
        return await self._sessions.wait(timeout)

    async def client(self, timeout: float | None = None) -> AsyncClient:
        client: AsyncClient = await self._sessions.client(timeout)
        return client

    wait.__doc__, client.__doc__ = Sequence.wait.__doc__, Sequence.client.__doc__

    async def __aiter__(self) -> AsyncGenerator[AbstractAsyncContextManager[AsyncClient], None]:
        """The sessions, as they come, each once; the end of the supervisor ends it.

        async for session in supervisor:
            async with session as client:
                ...  # cancelled when this session is over
        """
        async for client in self._sessions.clients():
            yield _scope(client)

    async def __aenter__(self) -> Self:
        self._sessions.begin()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self.close()
        if kind is None:
            self._algorithm.raise_error()

    async def close(self) -> None:
        """End the session, cancel the functions that still run, and wait for them.  Idempotent."""
        await self._algorithm.stop()
        await self._shell.end()


@asynccontextmanager
async def _scope(client: AsyncClient) -> AsyncGenerator[AsyncClient, None]:
    driver, session = client._driver, client._session
    over = StateWait((), session.state)

    def add(cancel: Callable[[object], None]) -> Callable[[], None]:
        def cancel_now() -> None:
            cancel(None)

        driver.attach(over)
        driver.when_ready(over, cancel_now)
        return lambda: driver.detach(over)

    with suppress(*SESSION_END):
        try:
            async with cancelled_by(add, session.ending):
                yield client
        except Exception as error:
            if not await is_session_end(client, error):
                raise
