"""The supervisor for asyncio: one task makes the sessions, each leadership has one of its own."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial

from zkwire.aio.client import AsyncClient, AsyncNodeWatches
from zkwire.aio.driver import Calling, cancelled_by, within
from zkwire.net.lifetime import close_in_child
from zkwire.recipes._recipe import public
from zkwire.recipes.supervisor import SessionLoop, SupervisorView, Turn
from zkwire.session.states import StateWait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from typing import Any, Self, Unpack

    from zkwire.net.client import ClientOptions
    from zkwire.recipes.sequential import AsyncSequentialLock
    from zkwire.session.waitable import Waitable

CLOSE_SECONDS = 5.0  # for what a cancelled function still does


class LoopSessions(Calling, SessionLoop):
    """The sessions of a supervisor in an event loop."""

    def __init__(self, hosts: str, options: dict[str, Any]) -> None:
        Calling.__init__(self)
        self.mutex: Any = nullcontext()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.make_client: Callable[[], AsyncClient] = partial(AsyncClient, hosts, **options)
        SessionLoop.__init__(self)
        close_in_child(self)

    async def close_client(self, client: AsyncClient) -> None:
        """Close it.  Idempotent."""
        await client.close()

    async def until_idle(self, client: AsyncClient) -> None:
        """Let the loop carry out what it has been given to end."""
        await asyncio.sleep(0)

    async def lead(self, function: Callable[[Any], Any], lock: AsyncSequentialLock) -> None:
        """Await what the function returns, and cancel that when the lock is lost."""
        async with lock.cancel_on_loss():
            work = function(lock)
            if not hasattr(work, "__await__"):
                raise TypeError(f"{function!r} must return something to await, not {work!r}")
            try:
                await work
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling() > 0:  # this one is meant
                    raise
                raise RuntimeError(f"{function!r} has ended with a CancelledError") from error

    def check(self) -> None:
        """Raise ForkedError in a forked child, RuntimeError in another event loop."""
        super().check()
        loop = asyncio.get_running_loop()
        if self.loop not in (None, loop):
            raise RuntimeError("this AsyncSupervisor belongs to another event loop")
        self.loop = loop

    def start(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run ``work()`` in a task of its own."""
        run = self.context.copy().run
        self.tasks.append(run(asyncio.create_task, work(), name=f"zkwire-{name}"))

    async def within(self, waitable: Waitable, timeout: float | None) -> bool:
        """Wait until it is ready, at most ``timeout`` seconds; whether it is."""
        return await within(asyncio.get_running_loop(), waitable, timeout)

    def dispatch(self, function: Callable[[], object]) -> None:
        """Call a user's function soon; a coroutine that it returns runs as a task."""
        asyncio.get_running_loop().call_soon(partial(self._call, function))

    async def end(self) -> None:
        """Cancel the tasks and the callbacks, and wait for them."""
        tasks = {*self.tasks, *self._running} - {asyncio.current_task()}
        for task in tasks:
            if not task.cancelling():  # the end of its term may have cancelled it already
                task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@public
class AsyncSupervisor(SupervisorView, AsyncNodeWatches):
    """Sessions one after another, under asyncio; see :class:`zkwire.Supervisor`.

        async with AsyncSupervisor("127.0.0.1:2181") as supervisor:
            supervisor.lead("/election", work)  # yours to write: await work(lock)
            await supervisor.wait()

    A function that leads is a coroutine function, and is cancelled when its term is lost.
    """

    _client_kind = AsyncClient
    _client_call = "(await supervisor.client())"

    def __init__(self, hosts: str, **options: Unpack[ClientOptions]) -> None:
        self._sessions = self._algorithm = LoopSessions(hosts, self._checked(options))
        self._recipe_runtime = self._algorithm._recipe_runtime

    async def wait(self, timeout: float | None = None) -> bool:
        return await self._algorithm.wait(timeout)

    async def client(self, timeout: float | None = None) -> AsyncClient:
        return await self._algorithm.client(timeout)

    wait.__doc__, client.__doc__ = SessionLoop.wait.__doc__, SessionLoop.client.__doc__

    async def __aiter__(self) -> AsyncGenerator[AbstractAsyncContextManager[AsyncClient], None]:
        """The sessions, as they come; the end of the supervisor ends it.

            async for session in supervisor:
                async with session as client:
                    ...  # cancelled when this session is over

        The ``async with`` swallows the errors that say that this session is over, and no other:
        behind a lost connection it waits for the next, to know.  It swallows the loss of a lock of
        this session, too; if the session lives, it comes once more.
        """
        number = 0
        while (later := await self._algorithm.later(number)) is not None:
            number, client = later
            turn = Turn(client)
            yield _scope(client, turn)
            number -= turn.again

    async def __aenter__(self) -> Self:
        self._algorithm.begin()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self.close()
        if kind is None:
            self._algorithm.raise_error()

    async def close(self) -> None:
        """End the session, cancel the functions that still run, and wait for them.  Idempotent."""
        if self._algorithm.forked:
            return
        try:
            await self._algorithm.stop()
        finally:
            await self._algorithm.end()


@asynccontextmanager
async def _scope(client: AsyncClient, turn: Turn) -> AsyncGenerator[AsyncClient, None]:
    driver, session = client._driver, client._session
    over = StateWait((), session.state)

    def add(cancel: Callable[[object], None]) -> Callable[[], None]:
        driver.attach(over)
        # Not from within the task: what it is given while it runs, it gets at a later await.
        driver.when_ready(over, lambda: driver.dispatch(lambda: cancel(None)))
        return lambda: driver.detach(over)

    try:
        async with cancelled_by(add, session.ending, client):
            yield client
    except Exception as error:
        if not await turn.is_ended_by(error):
            raise
