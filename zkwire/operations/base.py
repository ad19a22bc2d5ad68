"""How an operation becomes a request: path checked, request encoded, submitted.

Decides what is too large for a server and what counts as a watch.  It must not know how a request
travels or what waits for it: that is for :meth:`Requests._submit` of each client.
"""

from __future__ import annotations

from zkwire.jute.frames import SEND_LIMIT
from zkwire.session.request import Request
from zkwire.session.waitable import Bound
from zkwire.session.watch import CallbackWatch, Watch
from zkwire.wire.model import OPEN_ACL_UNSAFE
from zkwire.wire.paths import check_path, join

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from typing import Any, Generic, TypeVar

    from zkwire.jute.records import ACL
    from zkwire.wire.model import Event
    from zkwire.wire.ops import Op, WatchKind

    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True)
    AnyWatch = Watch | Callable[[Event], object]

    class Reply(Coroutine[Any, Any, T_co], Generic[T_co]):
        """The future result of an operation: ``reply.result(timeout)``, or ``await reply``.

        ``add_done_callback`` calls a function with it once the operation has ended.

        Only under asyncio it is a coroutine, which ``asyncio.create_task(reply)`` runs.
        """

        def __await__(self) -> Generator[Any, Any, T_co]:
            raise NotImplementedError

        def result(self, timeout: float | None = None) -> T_co:
            """The result; raises the operation's error, or OperationTimeoutError.

            ``timeout`` is in seconds; None waits without a limit.
            """
            raise NotImplementedError

        @property
        def ready(self) -> bool:
            """Whether :meth:`result` would return, or raise, at once."""
            raise NotImplementedError

        def add_done_callback(self, function: Callable[[Reply[T_co]], object]) -> None:
            """Call ``function`` with this reply once it is ready, where callbacks are called.

            That is the callback thread, or the event loop; see :class:`zkwire.Client`.
            """
            raise NotImplementedError


# A request's xid and opcode count towards the server's limit as well.
HEADER_BYTES = 8
# On a new connection set_watches sets the watch again: its path, in one of five lists, and a zxid.
_SET_AGAIN_BYTES = 8 + 5 * 4


class Requests(Bound):
    """What the operations have in common.

    A client sets ``_chroot``, ``_acl`` (the access list of nodes created without one),
    ``_send_limit`` (the bytes of the longest request) and ``_kind`` (its class of requests), and
    defines ``_submit`` and ``_own``.
    """

    _chroot = ""
    _acl: Sequence[ACL] = OPEN_ACL_UNSAFE
    _send_limit: int = SEND_LIMIT
    _kind: type[Request] = Request

    def _submit(self, request: Request) -> Any:
        """Submit a request of this ``_kind``; returns its Reply."""
        raise NotImplementedError

    def _own(self, watch: Watch) -> None:
        """Make the watch one of this client's."""
        raise NotImplementedError

    def _full(self, path: str) -> str:
        """The server's name for the path."""
        path = check_path(path)
        return join(self._chroot, path) if self._chroot else path

    def _call(
        self,
        op: Op,
        path: str,
        fields: tuple[object, ...],
        finish: Callable[[Any], Any] | None = None,
        watch: AnyWatch | None = None,
        own_czxid: int | None = None,
        sequential: bool = False,
    ) -> Any:
        """Check the path, encode the request of it and these fields, submit it.

        For speed this repeats ``_full`` and ``_send`` and is called by position: one more function
        costs a lone request about a microsecond, keywords cost a pipelined one a tenth of that.
        """
        path = full = check_path(path, sequential)
        if self._chroot:
            full = join(self._chroot, full, sequential)
        body = op.request.pack(full, *fields)  # type: ignore[union-attr]  # it has a path
        if watch is not None:
            assert op.watch is not None
            return self._send_watching(op, path, body, finish, watch, full, op.watch, own_czxid)
        if len(body) + HEADER_BYTES > self._send_limit:
            raise too_large(op, path, len(body) + HEADER_BYTES, self._send_limit)
        return self._submit(self._kind(op, path, body, finish))

    def _send(
        self, op: Op, path: str | None, body: bytes, finish: Callable[[Any], Any] | None = None
    ) -> Any:
        """Submit an encoded request if it is not too large."""
        if len(body) + HEADER_BYTES > self._send_limit:
            raise too_large(op, path, len(body) + HEADER_BYTES, self._send_limit)
        return self._submit(self._kind(op, path, body, finish))

    def _send_watching(
        self,
        op: Op,
        path: str,
        body: bytes,
        finish: Callable[[Any], Any] | None,
        watch: AnyWatch,
        full: str,
        kind: WatchKind,
        own_czxid: int | None = None,
    ) -> Any:
        """Submit an encoded request that sets a watch on the server's path ``full``."""
        size = len(body) + HEADER_BYTES + _SET_AGAIN_BYTES
        if size > self._send_limit:
            raise too_large(op, path, size, self._send_limit, again=True)
        target = as_watch(watch)
        self._own(target)
        return self._submit(self._kind(op, path, body, finish, target, full, kind, own_czxid))


def rehearse(operations: T) -> T:
    """The same operations, which check their arguments and send nothing.

    A request that is too large, say, is a ValueError.  A watch must not be asked for.
    """
    rehearsal: Any = object.__new__(type(operations))
    rehearsal.__dict__ = {**vars(operations), "_submit": _submit_nothing}
    return rehearsal


def _submit_nothing(request: Request) -> None:
    """What a rehearsal does with a request."""


def too_large(
    op: Op, path: str | None, size: int, limit: int, *, again: bool = False
) -> ValueError:
    """The error for a request that is too large for this client.

    ``again``: ``size`` is that of the request that sets its watch again later.
    """
    which = "set_watches on a new connection would have" if again else "the request has"
    return ValueError(
        f"{op.name} {path or ''}: {which} {size} bytes, and this client's send_limit is {limit}; "
        "with a higher one, the servers' jute.maxbuffer decides"
    )


def as_watch(watch: AnyWatch) -> Watch:
    """The watch itself, or one for the callback."""
    if isinstance(watch, Watch):
        return watch
    given: object = watch
    if not callable(watch) or given is Watch:
        raise TypeError(f"watch must be a Watch or a callable, not {watch!r}")
    return CallbackWatch(watch)
