"""What a driver runs without a caller: recipes that clean up behind themselves, and services.

It decides when a coroutine in the background begins and what ends it.  Who takes its steps is the
client's matter (:class:`zkwire.net.background.BackgroundTask` asks it).
"""

from __future__ import annotations

from functools import partial

from zkwire.net.background import BackgroundTask
from zkwire.net.driver import Driver, Seeing
from zkwire.recipes._service import Background
from zkwire.session.waitable import Alarm, Awaited, Either
from zkwire.wire.model import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from random import Random
    from typing import Any

    from zkwire.net.pipeline import Pipeline
    from zkwire.recipes._service import Service
    from zkwire.session.session import Session
    from zkwire.session.waitable import Waitable


class ServingDriver(Driver):
    """See the module's docstring."""

    def __init__(self, session: Session, rng: Random, **options: Any) -> None:
        super().__init__(session, rng, **options)
        self.background_tasks: set[BackgroundTask] = set()
        self.services: dict[Service, BackgroundTask] = {}

    def spawn(
        self, work: Callable[[Pipeline], Coroutine[Any, Any, object]], *, lasting: bool = False
    ) -> None:
        """Run ``work(background)`` to its end, whatever becomes of the caller.

        The first step is taken here, and what it asks for is written when this returns, as far as
        the kernel takes it and no other thread is writing; the thread that does I/O takes the other
        steps.  A signal handler or a finalizer on top of the client's own work leaves the first
        step, too.  A close does not wait for the end of a ``lasting`` one.
        """
        self.start()
        if self.session.ended:
            raise self.session.ending()
        running = set[BackgroundTask]() if lasting else self.background_tasks
        begin = partial(work, self.background)
        task = BackgroundTask(begin, self.call_soon, self.when_ready, running)
        if self.interrupting:
            self.call_soon(task.next_step)
            return
        task.step()
        self.flush()

    async def another_state(self) -> None:
        """In a coroutine given to ``spawn``: wait until the session is in another state."""
        state = self.session.state
        with Seeing(self, set(State) - {state}) as wait:
            await Awaited(wait)

    async def any_of(self, *waitables: Waitable) -> None:
        """In a coroutine given to ``spawn`` or a service: wait until one of them is ready.

        Raises what ended the session if that comes first.
        """
        with Seeing(self) as over:
            either = Either(*waitables, over)
            try:
                await Awaited(either)
            finally:
                self.leave(either)
        if not any(waitable.ready for waitable in waitables):
            self.check_open()

    async def pause(self, seconds: float, *waitables: Waitable) -> None:
        """In a coroutine of the background: let so much time pass, or less if one is ready.

        Raises what ended the session if that comes first.
        """
        alarm, alarms = Alarm(self.now() + seconds), self.session.alarms
        alarms.set(alarm)
        try:
            if self.io is not None:
                self.io.wake()  # it has a deadline
            await self.any_of(alarm, *waitables)
        finally:
            alarms.drop(alarm)

    def jitter(self) -> float:
        """A random number from 0.5 to 1."""
        return 0.5 + self._rng.getrandbits(16) / (2 << 16)

    def leave(self, either: Either) -> None:
        """Wait for ``either`` no longer: those of its parts that did not come must not keep it."""
        if self.nested:
            self.call_soon(partial(self.leave, either))
            return
        with self.mutex:
            either._drop_waker(either._wake)

    # --- services ---------------------------------------------------------------------------------

    def serve(self, service: Service) -> None:
        """Run the service in this session until :meth:`dismiss`; raises what ended the client.

        Idempotent: an interrupt of the caller may have come behind the first call.
        """
        self.start()
        self.check_open()
        runtime: Any = self  # a driver is one
        with self.mutex:  # two threads may ask for it at once
            if service in self.services:
                return
            # The coroutine is made in the first step: an interrupt here leaves none behind.
            begin = partial(service._run, Background(runtime, self.background))
            task = BackgroundTask(begin, self.call_soon, self.when_ready, set())
            self.services[service] = task
        self.call_soon(task.next_step)

    def dismiss(self, service: Service) -> None:
        """Stop the service soon, in the middle of a wait.  Idempotent."""
        task = self.services.get(service)
        if task is not None:
            self.call_soon(task.cancel)
            self.services.pop(service, None)  # interrupt-safe: last, so this can be repeated
