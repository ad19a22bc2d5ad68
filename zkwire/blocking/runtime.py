"""What the recipes ask of the blocking client; see :mod:`zkwire.recipes.runtime`."""

from __future__ import annotations

from zkwire.blocking.replies import BlockingReply
from zkwire.errors import OperationTimeoutError
from zkwire.net.driver import ClientWorld
from zkwire.net.exiting import remember
from zkwire.net.pipeline import BackgroundReply, Pipeline
from zkwire.wire.model import OPEN_ACL_UNSAFE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random
    from typing import TypeVar

    from zkwire.blocking.driver import ThreadDriver
    from zkwire.jute.records import ACL
    from zkwire.operations import Reply
    from zkwire.recipes.runtime import Owned
    from zkwire.session.waitable import Waitable
    from zkwire.session.watch import Watch
    from zkwire.wire.model import Event

    T = TypeVar("T")


class BlockingWorld(ClientWorld):
    """A client as its recipes see it: every await blocks in place."""

    def __init__(
        self, pump: ThreadDriver, chroot: str, rng: Random, acl: Sequence[ACL] = OPEN_ACL_UNSAFE
    ) -> None:
        operations = Pipeline(pump, chroot, BlockingReply, acl=acl, eager=False)
        super().__init__(pump, operations, Pipeline(pump, chroot, BackgroundReply), rng)
        remember(self)

    def local(self, make: Callable[[], T]) -> Callable[[], T]:
        """A function that returns the value of the thread that calls it."""
        from zkwire.blocking.owners import value_of_each_thread

        return value_of_each_thread(make)

    def when_caller_ends(self, lock: Owned) -> None:
        """Tell the lock, if it is owned then, when the calling thread has ended."""
        from zkwire.blocking.owners import tell_at_the_end_of_this_thread

        tell_at_the_end_of_this_thread(lock)

    def check(self) -> None:
        """Raise ForkedError in a forked child."""
        if self._pump.forked:
            self._pump.check()

    def wind_up(self, seconds: float) -> None:
        """See that nothing is owed to the server, within this time."""
        from zkwire.net.background import report  # here: an import of zkwire must not cost this one

        for lock in tuple(self.engaged):
            try:
                lock._resume_cleanup()
            except Exception as error:
                report(error)
        self._pump.clean_up(seconds)

    async def connected(self, deadline: float | None) -> None:
        """Wait for a usable connection; raises what ended the session, or OperationTimeoutError."""
        session = self._pump.session
        if session.usable and not self._pump.forked:
            return
        self._pump.start()
        if not self._pump.wait(session.change, self._left(deadline)):
            raise OperationTimeoutError("no server could be reached in time")
        if session.ended:
            raise session.ending()

    async def until(self, reply: Reply[T], deadline: float | None) -> T:
        """The reply's result; OperationTimeoutError when the deadline passes first."""
        return reply.result(self._left(deadline))

    async def event(self, watch: Watch, deadline: float | None) -> Event | None:
        """The watch's next event; None when the deadline passes first."""
        return watch.wait(self._left(deadline))

    async def ready(self, waitable: Waitable) -> None:
        """Refuse an ``await`` that would block a whole event loop."""
        await self._pump.until(waitable)
