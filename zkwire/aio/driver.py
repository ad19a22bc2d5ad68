"""Moves bytes between a socket and the automaton, under asyncio: one loop, no thread, no lock.

Requests leave in the order of the calls: at once if nothing is in flight, else at the end of the
loop's turn, with the next reply, or when enough have gathered, whichever comes first.

Invariants: an await that is cancelled takes back what had not been sent and leaves the rest in its
place; functions of a user's are called from the loop, never from within the automaton.
"""

from __future__ import annotations

import asyncio
from functools import partial
from sys import is_finalizing as finalizing

from zkwire.aio.home import LOOP_CLOSED, Home, in_the_middle, uninterruptible
from zkwire.aio.loop import SHORTEST_PAUSE, LoopIO
from zkwire.errors import ClientClosedError, ZooKeeperError
from zkwire.net.background import Late, Task
from zkwire.net.connection import INTERRUPTED
from zkwire.net.dial import resolve
from zkwire.net.forking import remember
from zkwire.net.pacing import FLUSH_AT, LINGER, LOOK, clock
from zkwire.session.request import Failed
from zkwire.session.states import StateWait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from ssl import SSLContext
    from typing import Any, Final

    from zkwire.net.connection import Connection
    from zkwire.net.dial import Resolver
    from zkwire.net.sasl import Mechanism
    from zkwire.session.liveness import LeaseHolder
    from zkwire.session.request import Request
    from zkwire.session.session import Session
    from zkwire.session.states import Observer
    from zkwire.session.waitable import Waitable
    from zkwire.session.watch import Watch


# Keeps the tasks alive that await something of a client, and those keep the client: the loop itself
# holds neither.
_awaited: set[asyncio.Future[None]] = set()


def _wake(future: asyncio.Future[None]) -> None:
    """Let go on who awaits the future, if anybody still does and can."""
    if not (future.done() or future.get_loop().is_closed()):
        future.set_result(None)


class LoopDriver(Home):
    """See the module's docstring.  ``resolver`` and the clock ``now`` are for tests."""

    loop: asyncio.AbstractEventLoop | None

    def __init__(
        self,
        session: Session,
        tls: SSLContext | None = None,
        sasl: Mechanism | None = None,
        operation_timeout: float | None = None,
        resolver: Resolver | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        super().__init__()
        self.session = session
        self.operation_timeout = operation_timeout
        self.now: Callable[[], float] = now or clock
        self.tls = tls
        self.sasl = sasl
        self.resolver: Resolver = resolver or resolve
        self.link: Connection | None = None
        self._driver: LoopIO | None = None
        self.closing: float | None = None  # seconds that the close may take, once it is wanted
        self._flushing = False
        self._tasks: set[Task] = set()  # that run in the background
        self._late = Late()
        self._late_timer: asyncio.TimerHandle | None = None
        self.client: object = None

    caller: Final = staticmethod(asyncio.current_task)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self.session.ended:
            self.session.start(self.now())
            self._driver = LoopIO(self, loop)
            self._driver.turn_soon()

    @uninterruptible
    def submit(self, request: Request, *, eager: bool = True) -> None:
        """Put a call behind all earlier ones; without ``eager`` never send it at once."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._submit_from_outside(request, eager)
            return
        if loop is not self.loop or self.forked:
            self.start()
        if self._late.waiting:
            self._late.call()
        link, session = self.link, self.session
        alone = eager and not session.unanswered
        if link is None or link.end or self.closing is not None:
            self._prepare(request, link)
        elif alone and link.writable:
            now = self.now()
            if now >= session.dead_at:
                self._judge()
            elif data := session.send_alone(request, now):
                self._send(link, data)
                return
        queued = session.push(request)
        if not queued:
            session.submit(request, self.now())
            queued = session.queued
            self.call_due()  # remove_watches may have ended watches here already
        if not session.usable:
            self._turn_soon()  # it has a deadline
        elif alone or queued >= FLUSH_AT:
            self.flush()
        elif not self._flushing:
            self._flushing = True
            loop.call_soon(self._flush_gathered)

    def _submit_from_outside(self, request: Request, eager: bool) -> None:
        """Have the loop submit a call that was made where no loop runs, in order.

        ``run_coroutine_threadsafe(client.get_data(path), loop)`` calls the operation in its own
        thread, ``loop.run_until_complete(client.get_data(path))`` between two runs of the loop.
        """
        if self.forked or self.loop is None:
            self.start()
        if not self.soon(partial(self._submit_here, request, eager)):
            raise ClientClosedError(LOOP_CLOSED, op=request.op.name, path=request.path)

    def _submit_here(self, request: Request, eager: bool) -> None:
        try:
            self.submit(request, eager=eager)
        except Exception as error:  # the caller is elsewhere: an await raises it
            kind = type(error) if isinstance(error, ZooKeeperError) else ZooKeeperError
            request.outcome = Failed(kind, str(error.args[0]), False)
            for waker in request.take_wakers():
                waker()

    def _prepare(self, request: Request, link: Connection | None) -> None:
        """The connection is not as usual: refuse the call, or see to it that it is not lost."""
        if self.closing is not None and not self.session.ended:
            raise ClientClosedError(
                "the client is being closed", op=request.op.name, path=request.path
            )
        if link is not None and link.end:
            self._judge()  # it is broken: the call must not be lost with it

    def _judge(self) -> None:
        """Look what has come while the loop was blocked; nothing goes into a dead connection."""
        if self._driver is not None:
            self._driver.turn()

    def shortly(self, function: Callable[[], object]) -> None:
        """Call ``function`` when the next request is submitted, or in LINGER seconds."""
        self._late.waiting.append(function)
        if self._late_timer is None:
            self._late_timer = self.start().call_later(LINGER, self._call_late)

    def _call_late(self) -> None:
        self._late_timer = None
        self._late.call()

    def _flush_gathered(self) -> None:
        self._flushing = False
        self.flush()

    def _turn_soon(self) -> None:
        if self._driver is not None:
            self._driver.turn_soon()

    # --- waiting ----------------------------------------------------------------------------------

    async def until(self, waitable: Waitable, timeout: float | None = None) -> bool:
        """Wait until ``waitable`` is ready, at most ``timeout`` seconds; whether it is."""
        loop = self.start()
        latest = None if timeout is None else loop.time() + timeout
        # Again if it was ready and is not any more, as a connection that has lasted a moment.
        while not (waitable.ready or (latest is not None and loop.time() >= latest)):
            future = loop.create_future()
            waker = partial(_wake, future)
            timer = None if latest is None else loop.call_at(latest, waker)
            waitable.add_waker(waker)
            _awaited.add(future)
            try:
                await future
            finally:
                _awaited.discard(future)
                if timer is not None:
                    timer.cancel()
                waitable.drop_waker(waker)
        return waitable.ready

    def wait(self, waitable: Waitable, timeout: float | None = None) -> bool:
        """Refuse to block a whole event loop."""
        if waitable.ready or timeout == 0:
            return waitable.ready
        raise RuntimeError("this would block the event loop: use await")

    def await_delivery(self) -> None:
        """An event is delivered by the only thread there is."""

    @uninterruptible
    def withdraw(self, request: Request) -> bool:
        """The caller no longer waits; True if the call now never will be sent."""
        taken_back = not self.forked and self.session.withdraw(request)
        self.call_due()
        return taken_back

    # --- what callers ask for ---------------------------------------------------------------------

    @uninterruptible
    def close_watch(self, watch: Watch, *, tell: bool = True) -> None:
        """Take a watch back; with ``tell`` on the server too, when nobody else needs it.

        A finalizer, which the collector runs in any thread and in the middle of anything, leaves it
        to the loop.
        """
        if self.forked:
            return
        later = self.elsewhere or in_the_middle()
        if not (later and self.soon(partial(self.close_watch, watch, tell=tell))):
            self.session.forget_watch(watch, tell=tell)
            self.call_due()
            self.flush()

    def hold(self, hold: LeaseHolder) -> None:
        """Tell ``hold`` when the session may be gone."""
        self.session.hold(hold)
        self.call_due()
        self._turn_soon()  # it has a deadline

    def unhold(self, hold: LeaseHolder) -> None:
        """The opposite of :meth:`hold`."""
        self.session.unhold(hold)
        self.call_due()

    def attach(self, onlooker: Observer) -> None:
        """Show every state to ``onlooker`` from now on."""
        self.session.observers.add(onlooker)
        if isinstance(onlooker, StateWait):
            onlooker.see(self.session.state)

    def detach(self, onlooker: Observer) -> None:
        """The opposite.  Idempotent."""
        self.session.observers.remove(onlooker)

    def replace_hosts(self, hosts: list[tuple[str, int]]) -> None:
        """The ensemble has these servers now; an empty list says nothing."""
        if hosts:
            self.session.hosts.replace(hosts)

    def spawn(
        self, work: Callable[[], Coroutine[Any, Any, object]], *, lasting: bool = False
    ) -> None:
        """Run a coroutine of background replies, whatever becomes of the caller.

        What its first step asks for is written when this returns, as far as the kernel takes it.
        Nobody waits for the end of a ``lasting`` one.
        """
        if self.homeless:
            raise ClientClosedError(LOOP_CLOSED)
        self.start()
        if self.session.ended:
            raise self.session.ending()
        running = set[Task]() if lasting else self._tasks
        Task(work(), self.soon, self.when_ready, running).step()
        self.flush()

    def when_ready(self, waitable: Waitable, function: Callable[[], object]) -> None:
        """Call ``function`` as soon as ``waitable`` is ready; it must be quick and never wait."""
        if self.elsewhere:
            self.soon(partial(self.when_ready, waitable, function))
        elif waitable.ready:
            function()
        else:
            waitable.add_waker(function)

    async def cleaned_up(self, timeout: float) -> None:
        """Wait until nothing runs in the background, at most about ``timeout`` seconds."""
        latest = self.now() + timeout
        while self._tasks and not self.session.ended and self.now() < latest:
            await asyncio.sleep(SHORTEST_PAUSE)

    async def close(self, timeout: float, *, detach: bool = False) -> None:
        """End the session and the connection; returns within about ``timeout`` seconds.

        When the client's own loop is closed already, there is only the socket left to close.
        """
        if self.forked:
            return
        if self.loop is None:
            self.loop = asyncio.get_running_loop()  # nothing will be started; listeners are told
        elif not self.homeless:
            self.start()
        session = self.session
        first, self.closing = self.closing is None, timeout
        try:
            if not (self._driver is None or session.ended or detach or self.homeless):
                if first:
                    session.close(self.now())
                    self.flush()
                    self._turn_soon()
                over = StateWait((), session.state)
                self.attach(over)
                try:
                    await self.until(over, timeout)
                finally:
                    self.detach(over)
        finally:
            self._stop()

    def drop(self, timeout: float) -> bool:
        """Nobody holds the client any more: close it soon; whether there was anything to close.

        For a finalizer, see :mod:`zkwire.net.held`.
        """
        driver = self._driver
        unused = driver is None or self.forked or self.closing is not None or self.session.ended
        if driver is None or unused or finalizing():
            return False
        driver.held.hold(driver)
        if not self.soon(partial(self._close_soon, timeout)):
            self._stop()  # its loop is closed: there is only the socket
        return True

    def _close_soon(self, timeout: float) -> None:
        remember(self)  # the finalizer has run, which ends weak references
        self._call(partial(self.close, timeout))

    def _stop(self) -> None:
        if self._driver is not None:
            self._driver.stop()
        else:
            self.session.closed()
        self.call_due()

    # --- bytes ------------------------------------------------------------------------------------

    @uninterruptible
    def read(self, link: Connection) -> None:
        """One receive and all that it brings; nothing that comes behind an interrupted one."""
        session = self.session
        try:
            data = None if link.end else link.receive()
            link.inbox.clear()
            if data:
                link.reads += 1
                now = self.now()
                session.receive_data(data, now)
                if now >= link.look_at:
                    link.look_at = now + LOOK
                    session.on_deadline(now)
                if session.broken or session.ended:
                    link.end = session.broken or "the session is over"
                if session.callbacks:
                    self.call_due()
                if session.has_output:
                    self.flush()
        except BaseException:  # what it has taken from the kernel may be lost
            link.end = link.end or INTERRUPTED
            self._turn_soon()
            raise
        if link.end or not session.usable:
            self._turn_soon()

    @uninterruptible
    def call_due(self) -> None:
        """Call what the automaton wants called, in order."""
        while self.session.callbacks:
            due, called = self.session.take_callbacks(), 0
            try:
                for function in due:
                    function()
                    called += 1
            finally:  # an interrupt must not lose those behind it
                if called < len(due):
                    self.session.callbacks[:0] = due[called:]

    @uninterruptible
    def flush(self) -> None:
        """Send what there is to send, as far as the kernel takes it."""
        link = self.link
        while link is not None and self.session.has_output and link.writable:
            self._send(link, self.session.data_to_send(self.now()))

    def _send(self, link: Connection, data: bytes) -> None:
        link.written += len(data)
        link.send(data)
        if link.unsent or link.broken_pipe:
            self._turn_soon()  # to listen until it is writable, or to end it

    @uninterruptible
    def send_rest(self, link: Connection) -> None:
        """The socket takes bytes again."""
        if link.pending and not link.end:
            data, link.unsent = link.unsent, memoryview(b"")
            link.written += len(data)
            link.send(data)
        self.flush()
        self._turn_soon()

    def abandon_process(self) -> None:
        """In a forked child: let go of the parent's connection without a byte or a FIN."""
        self.forked = True
        link, self.link = self.link, None
        if link is not None:
            link.close()
        if self._driver is not None:
            self._driver.abandon()
