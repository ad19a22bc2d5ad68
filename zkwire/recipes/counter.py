"""A number that many clients change, each change made exactly once.

The node's data is the number, as kazoo or Curator write it.  A change reads it, and sets it if its
version is still the same; the multi that does so raises the version of the client's token below the
node (:mod:`zkwire.recipes._node`), which tells after a lost reply whether it was done.

    /path                   the number
    /path/<id>-mark         ephemeral: of a client that has changed it

A change begins with the state that the client's last change has left.  So if no other client
changes the number, it takes one request.  If others do, a change that has lost its race ``TRIES``
times joins the queue of a fair lock on the same path; and as long as there is a queue, the next
change of this object begins in it.  The lock is only for order: the version decides.  Without the
queue, fifty writers make a tenth of the changes.

A turn costs about six requests, and the change in it costs one.  So if the calls of an object
follow one another at once, it keeps its turn for ``SLICE`` seconds, and the next one in the queue
waits for that long.  If the next call does not come at once, the turn ends with the call.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from zkwire import errors
from zkwire.operations.multi import Create, SetData
from zkwire.recipes._node import Token, TokenPool
from zkwire.recipes._recipe import HasPath
from zkwire.recipes.runtime import unwrap_multi_error
from zkwire.recipes.sequential import OrderQueue
from zkwire.wire.paths import parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Literal

    from zkwire.jute.records import ACL
    from zkwire.recipes.runtime import AsyncClientLike


_WIDTHS = {"text": 0, "int32": 4, "int64": 8}
"""How many bytes a number has; 0: as many digits as it takes."""
_SHOWN_BYTES = 40  # of what others have written


class NumberFormat:
    """``text``: decimal digits; ``int32``, ``int64``: big-endian, signed.  No bytes are 0."""

    def __init__(self, name: str) -> None:
        if name not in _WIDTHS:
            raise ValueError(f"format must be one of {', '.join(_WIDTHS)}, not {name!r}")
        self._name = name
        self._width = _WIDTHS[name]

    def decode(self, data: bytes) -> int:
        """The number; ValueError if it is none of this format."""
        if not data:
            return 0
        if self._width and len(data) == self._width:
            return int.from_bytes(data, "big", signed=True)
        # Not all that int() takes, such as b"5_0" and b" 5": no counter writes that.
        if not self._width and data.removeprefix(b"-").isdigit():
            with suppress(ValueError):  # more digits than Python converts
                return int(data)
        raise ValueError(f"no number of the format {self._name}: {data[:_SHOWN_BYTES]!r}")

    def encode(self, value: int) -> bytes:
        """The number as bytes; OverflowError if it does not fit."""
        if not self._width:
            return b"%d" % value
        try:
            return value.to_bytes(self._width, "big", signed=True)
        except OverflowError:
            raise OverflowError(f"{value} does not fit into {self._name}") from None


def check_number(value: int) -> None:
    """TypeError for what is no int."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"a counter takes an int, not {type(value).__name__}")


PATIENCE = 3.0  # seconds to wait for a turn: the one that has it may be cut off
SLICE = 0.03
AT_ONCE = 0.002  # seconds between two calls
TRIES = 2
LAST_VERSION = 2**31 - 1


class AsyncCounter(HasPath):
    """A number that many clients change; each change is made exactly once.

        counter = AsyncCounter(client, "/orders/count")
        number = await counter.add(1)

    ``add`` returns the new number, and has added exactly once, however often the connection is
    lost.  Tasks may share a counter.  The node is made by the first change; where there is none,
    the number is 0.  Below it there is an ephemeral node for each client that has changed it.

    ``format``: ``"text"`` is decimal digits, of any length, as kazoo's Counter writes them;
    ``"int32"`` and ``"int64"`` are those of Curator's SharedCount and DistributedAtomicLong.

    Raises ValueError for a bad path or format.
    """

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        *,
        format: Literal["text", "int32", "int64"] = "text",
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._tokens = TokenPool(client, path, acl=acl)
        self._runtime, self._path = self._tokens._runtime, self._tokens._path
        self._acl = self._tokens._acl
        self._format = NumberFormat(format)
        self._version: int | None = None
        self._crowded = False  # others have waited for a turn, too
        self._turns: list[OrderQueue] = []  # that no call uses; the last one may have come
        self._slice_end = 0.0
        self._ended = -AT_ONCE  # when the last call has

    @property
    def version(self) -> int:
        """The zxid of the change that made what this object has read or written last.

        Of two numbers, the one with the higher version is newer, even if the node was deleted and
        created in between; but not if it was moved to another ensemble, which has other zxids.
        RuntimeError before the first call, ForkedError in a forked child.
        """
        if self._runtime.forked:
            raise errors.ForkedError(f"the Counter of {self.path} belongs to the parent process")
        if self._version is None:
            raise RuntimeError("this counter has neither been read nor changed here")
        return self._version

    async def get(self, timeout: float | None = None) -> int:
        """The number, as the client's server has it; 0 if there is no node.

        Call ``client.sync(path)`` first to get the newest number.  Raises ValueError if the data is
        no number of this format.  A lost connection is not an error.  OperationTimeoutError after
        ``timeout`` seconds (None: the ``operation_timeout``).
        """
        data, _ = await self._read(self._runtime.deadline(timeout))
        return self._format.decode(data)

    async def add(self, number: int = 1, timeout: float | None = None) -> int:
        """Add ``number``, which may be negative, exactly once; the new number.

        A lost connection is not an error: on the next one the client finds out whether the change
        was made.  Raises OverflowError if the new number does not fit the format, ValueError if the
        data is no number of it, SequenceExhaustedError after 2**31 - 1 changes of one node; nothing
        is changed then.

        OperationTimeoutError after ``timeout`` seconds (None: the ``operation_timeout``).  This
        error, and an error that ends the session, has ``maybe_applied`` if the change may have been
        made, or may still be made.  A call that was cancelled or interrupted leaves the same doubt.
        Only the number itself can settle it, if the caller knows which numbers are possible.
        """
        check_number(number)
        new = await self._change(lambda value: value + number, timeout)
        assert new is not None
        return new

    async def set(self, value: int, timeout: float | None = None) -> None:
        """Set the number, exactly once, whatever it is.  Ends as :meth:`add` does."""
        check_number(value)
        await self._change(lambda _: value, timeout)

    async def compare_and_set(self, expected: int, new: int, timeout: float | None = None) -> bool:
        """Set the number to ``new`` if it is ``expected``, exactly once; whether it was.

        Where there is no node the number is 0.  Ends as :meth:`add` does.
        """
        check_number(expected)
        check_number(new)
        changed = await self._change(lambda value: new if value == expected else None, timeout)
        return changed is not None

    async def _change(
        self, change: Callable[[int], int | None], timeout: float | None
    ) -> int | None:
        """Make the number what ``change`` says, and return that; None if it says None."""
        deadline, begun, tries = self._runtime.deadline(timeout), self._runtime.now(), 0
        turn, fresh = self._begin_turn(), False
        try:
            while True:
                if tries >= (0 if self._crowded else TRIES) and not turn._owned:
                    await self._await_turn(turn, deadline)
                    fresh = True
                try:
                    return await self._try(change, deadline, fresh)
                except (errors.BadVersionError, errors.NodeExistsError):
                    tries += 1  # another client has changed it
        finally:
            self._end_turn(turn, begun)

    def _begin_turn(self) -> OrderQueue:
        """The turn of a call: a turn that was kept, or one that is still to come."""
        with suppress(IndexError):  # of threads each gets another
            return self._turns.pop()
        turn = OrderQueue(self._runtime, self._path, acl=self._acl)
        turn._kept = self._path  # the node itself is to stay when the queue is gone
        return turn

    async def _await_turn(self, turn: OrderQueue, deadline: float) -> None:
        """Wait for the turn; without it go on after ``PATIENCE`` seconds."""
        with suppress(errors.OperationTimeoutError):
            await turn._acquire_by(min(deadline, self._runtime.now() + PATIENCE), True)
        self._crowded = turn._seen_taken
        self._slice_end = self._runtime.now() + SLICE

    def _end_turn(self, turn: OrderQueue, begun: float) -> None:
        """The call is over."""
        now, steady = self._runtime.now(), begun - self._ended < AT_ONCE
        self._ended = now
        self._turns.append(turn)
        if turn._owned and steady and now < self._slice_end:
            self._runtime.defer(partial(self._release_turn, turn))
        else:
            self._release_turn(turn)

    def _release_turn(self, turn: OrderQueue) -> None:
        with suppress(ValueError):  # another call has it
            self._turns.remove(turn)
            turn._release_in_background()
            self._turns.append(turn)

    async def _try(
        self, change: Callable[[int], int | None], deadline: float, fresh: bool
    ) -> int | None:
        token = await self._tokens.acquire(deadline)
        if fresh:
            token.seen = None
        try:
            return await self._set(token, change, deadline)
        except errors.NoNodeError:  # of the number, or of the token, which goes with it
            token.in_doubt = True
            await self._runtime.ensure_path(parent(self._path), self._acl, deadline, counts=False)
            raise errors.BadVersionError from None
        finally:
            self._tokens.release(token)

    async def _set(
        self, token: Token, change: Callable[[int], int | None], deadline: float
    ) -> int | None:
        seen, token.seen = token.seen, None  # a change that fails leaves nothing to begin with
        data, version = seen or await self._read(deadline)
        if not -1 <= version < LAST_VERSION:  # servers go on at -2**31
            raise errors.SequenceExhaustedError(
                f"{self._path} has used up its versions: delete_tree() it, and set the number again"
            )
        new = change(self._format.decode(data))
        if new is None:  # perhaps of a number that is no longer there
            return await self._set(token, change, deadline) if seen else None
        data = self._format.encode(new)
        operations = [SetData(self._path, data, max(version, 0))]
        if version < 0:
            operations.insert(0, Create(self._path, data, self._acl))
        execute = self._tokens.execute
        _, self._version = await unwrap_multi_error(execute, token, operations, deadline)
        token.seen = data, max(version, 0) + 1
        return new

    async def _read(self, deadline: float | None) -> tuple[bytes, int]:
        """The node's data and version; -1 if there is none."""
        try:
            read = self._runtime.operations.get_data
            data, stat = await self._runtime.retry(deadline, read, self._path)
        except errors.NoNodeError:
            return b"", -1
        self._version = stat.mzxid
        return data, stat.version
