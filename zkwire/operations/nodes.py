"""How an operation becomes a request, and the operations on one node.

Decides what a wrong argument is (TypeError or ValueError, before anything is sent), what is too
large for a server, what counts as a watch, and what each operation on a node sends and returns.  It
must not know how a request travels or what waits for it: that is for :meth:`Requests._submit` of
each client.  What holds for every operation (order, end of the session, ...) is said in
:mod:`zkwire.operations`.
"""

from __future__ import annotations

from zkwire.jute import records as r
from zkwire.jute.frames import SEND_LIMIT
from zkwire.session.request import Request
from zkwire.session.waitable import Bound, CallbackWatch, Watch
from zkwire.wire import ops
from zkwire.wire.model import (
    OPEN_ACL_UNSAFE,
    AclAndStat,
    ChildrenAndStat,
    DataAndStat,
    NullAndStat,
    PathAndStat,
    Perms,
)
from zkwire.wire.ops import WatchKind
from zkwire.wire.paths import check_path, join, strip

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from typing import Any, Generic, TypeVar

    from zkwire.jute.records import ACL
    from zkwire.wire.model import Event
    from zkwire.wire.ops import Op

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
            """Call ``function`` with this reply once it is ready.

            The callback thread or the event loop calls it; see :class:`zkwire.Client`.
            """
            raise NotImplementedError


# A server keeps a TTL in 40 bits, in milliseconds (Java's EphemeralType.TTL).
LONGEST_TTL = 2**40 - 1

PERSISTENT, EPHEMERAL, SEQUENTIAL, CONTAINER, TTL = 0, 1, 2, 4, 5

_ACL_HINTS: dict[type, str] = {
    r.ACL: "; put it into a list",
    bool: "; ephemeral=... and so on have names",
}


def check_data(data: bytes) -> bytes:
    """``data`` if it is bytes."""
    if not isinstance(data, bytes):
        hint = "; use .encode()" if isinstance(data, str) else ""
        raise TypeError(f"data must be bytes, not {type(data).__name__}{hint}")
    return data


def check_version(version: int) -> int:
    """``version`` if it is a version or -1."""
    if not isinstance(version, int) or isinstance(version, bool):
        raise TypeError(f"version must be an int, not {type(version).__name__}")
    if not -1 <= version <= 0x7FFFFFFF:
        raise ValueError(f"version must be -1 (any) or 0 to 2**31-1, not {version}")
    return version


def check_acl(acl: Sequence[r.ACL], name: str = "acl") -> tuple[r.ACL, ...]:
    """An access list as a tuple, not empty, which a server refuses; ``name`` is the argument's."""
    if acl is OPEN_ACL_UNSAFE:
        return OPEN_ACL_UNSAFE
    if isinstance(acl, r.ACL) or not isinstance(acl, list | tuple):
        given = type(acl)
        hint = _ACL_HINTS.get(given, "")
        raise TypeError(f"{name} must be a list or tuple of ACL, not {given.__name__}{hint}")
    if not acl:
        raise ValueError(f"{name} must not be empty")
    for entry in acl:
        if not isinstance(entry, r.ACL) or not isinstance(entry.id, r.Id):
            raise TypeError(f"{name} must hold ACL(perms, Id(scheme, id)), not {entry!r}")
        if not (isinstance(entry.id.scheme, str) and isinstance(entry.id.id, str)):
            raise TypeError(f"{name}: scheme and id must be str: {entry!r}")
        if not isinstance(entry.perms, int) or not 0 <= entry.perms <= 31:
            raise ValueError(f"{name}: perms must be 0 to 31: {entry!r}")
    return tuple(acl)


def check_flag(name: str, flag: bool) -> bool:
    """``flag`` if it is True or False: "no", taken for its truth, would mean yes."""
    if not isinstance(flag, bool):
        raise TypeError(f"{name} must be True or False, not {flag!r}")
    return flag


def check_ttl(ttl: float) -> int:
    """A time to live, given in seconds, in milliseconds.

    A wrong one must not be sent: it ends the server's process, and that cannot read its log again.
    """
    if not isinstance(ttl, int | float) or isinstance(ttl, bool):
        raise TypeError(f"ttl must be a number of seconds, not {type(ttl).__name__}")
    if not 0.001 <= ttl <= LONGEST_TTL / 1000:
        raise ValueError(f"ttl must be 0.001 to {LONGEST_TTL / 1000} seconds, not {ttl}")
    return min(max(1, round(ttl * 1000)), LONGEST_TTL)


def check_create_mode(
    ephemeral: bool, sequential: bool, container: bool, ttl: float | None
) -> tuple[Op | None, tuple[int, ...]]:
    """The operation that such a node needs, None if any create will do, and its last fields.

    These are the flags, and the TTL in milliseconds if there is one.
    """
    if not (ephemeral.__class__ is sequential.__class__ is container.__class__ is bool):
        check_flag("ephemeral", ephemeral)
        check_flag("sequential", sequential)
        check_flag("container", container)
    if not container and ttl is None:
        return None, (EPHEMERAL * ephemeral + SEQUENTIAL * sequential,)
    if ephemeral or (container and ttl is not None):
        raise ValueError("a node is ephemeral, or a container, or has a ttl: not two of them")
    if ttl is not None:
        return ops.CREATE_TTL, (TTL + sequential, check_ttl(ttl))
    if sequential:
        raise ValueError("a container cannot be sequential")
    return ops.CREATE_CONTAINER, (CONTAINER,)


def check_text(name: str, text: str) -> str:
    """``text`` if it is a str."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, not {type(text).__name__}")
    return text


# A request's xid and opcode count towards the server's limit as well.
HEADER_BYTES = 8
# On a new connection set_watches sets the watch again: its path, in one of five lists, and a zxid.
_SET_AGAIN_BYTES = 8 + 5 * 4


class Requests(Bound):
    """What the operations have in common.

    A client sets ``_chroot``, ``_acl`` (the access list of nodes created without one),
    ``_send_limit`` (the bytes of the longest request), ``_kind`` (its class of requests) and
    ``_driver``, which a request is submitted to, and defines ``_own``.
    """

    _driver: Any
    _eager = True  # a request leaves by itself; else with others, when one of them is awaited
    _chroot = ""
    _acl: Sequence[ACL] = OPEN_ACL_UNSAFE
    _send_limit: int = SEND_LIMIT
    _kind: type[Request] = Request

    def _submit(self, request: Request) -> Any:
        """Submit a request of this ``_kind``; returns its Reply."""
        driver = request.driver = self._driver  # type: ignore[attr-defined]  # each kind has one
        driver.submit(request, self._eager)
        return request

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
        body = op.request.pack(*(full,) + fields)  # type: ignore[union-attr]  # noqa: RUF005
        if watch is not None:
            assert op.watch is not None
            return self._send(op, path, body, finish, watch, full, op.watch, own_czxid)
        if len(body) + HEADER_BYTES > self._send_limit:
            raise too_large(op, path, len(body) + HEADER_BYTES, self._send_limit)
        return self._submit(self._kind(op, path, body, finish))

    def _send(
        self,
        op: Op,
        path: str | None,
        body: bytes,
        finish: Callable[[Any], Any] | None = None,
        watch: AnyWatch | None = None,
        full: str = "",
        kind: WatchKind = WatchKind.DATA,
        own_czxid: int | None = None,
    ) -> Any:
        """Submit an encoded request if it is not too large.

        A ``watch`` is set by it: of this ``kind``, on the server's path ``full``.
        """
        again = watch is not None
        size = len(body) + HEADER_BYTES + _SET_AGAIN_BYTES * again
        if size > self._send_limit:
            raise too_large(op, path, size, self._send_limit, again=again)
        if watch is None:
            return self._submit(self._kind(op, path, body, finish))
        target = as_watch(watch)
        self._own(target)
        return self._submit(self._kind(op, path, body, finish, target, full, kind, own_czxid))


def drafts(operations: T) -> T:
    """The same operations; they check their arguments, and return requests that are not submitted.

    A request that is too large, say, is a ValueError.  A watch must not be asked for.
    """
    made: Any = object.__new__(type(operations))
    made.__dict__ = {**vars(operations), "_submit": _as_it_is}
    return made


def _as_it_is(request: Request) -> Request:
    """What the operations of :func:`drafts` do with a request."""
    return request


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


class Nodes(Requests):
    """The operations on one node."""

    # --- changes ----------------------------------------------------------------------------------

    def create(
        self,
        path: str,
        data: bytes | None = b"",
        acl: Sequence[r.ACL] | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
    ) -> Reply[str]:
        """Create a node; returns its path.

        ``data``: None writes null, which most programs cannot distinguish from b"" (see ``is_null``
        of the result of :meth:`get_data`).  ``acl``: the access list, None for the client's
        ``default_acl``.  ``ephemeral``: the server deletes the node when the session ends.
        ``sequential``: the server appends ten digits to ``path``, which count up for this parent,
        to 2147483647 (a parent that is created again starts at 0); the path that is returned has
        them.  ``container``: the server deletes the node some time after its last child is deleted
        (since 3.5.1).  ``ttl``, in seconds from 0.001 to about 1.1e9: the server deletes the node
        when it has no children and its data has not been set for that long (since 3.5.3, if
        extended types are switched on there).

        Refused with: NodeExistsError; NoNodeError (the parent is missing);
        NoChildrenForEphemeralsError; NoAuthError; InvalidACLError; QuotaExceededError;
        UnimplementedError (containers and TTLs on servers without them).

        Lost connection (OutcomeUnknownError): the node may exist.  Without ``sequential``, create
        it again; NodeExistsError then means that the first attempt or another client created it,
        and ``ephemeral_owner`` or a unique id in the data tells which.  With ``sequential``, **do
        not repeat it blindly**, since that could create a second node: put a unique id into the
        name, ``sync``, list the children and search for the id.

        Time limit or cancellation: a request that was sent still creates the node; proceed as after
        a lost connection.
        """
        acl = self._acl if acl is None else check_acl(acl)
        data = None if data is None else check_data(data)
        if ephemeral is sequential is container is False and ttl is None:  # a call less
            return self._call(ops.CREATE, path, (data, acl, PERSISTENT), self._created)
        op, mode = check_create_mode(ephemeral, sequential, container, ttl)
        fields, finish = (data, acl, *mode), self._created
        return self._call(op or ops.CREATE, path, fields, finish, None, None, sequential)

    def create_with_stat(
        self,
        path: str,
        data: bytes | None = b"",
        acl: Sequence[r.ACL] | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
    ) -> Reply[PathAndStat]:
        """Create a node as :meth:`create` does; returns its path and its stat (since 3.5).

        Refusals, a lost connection and a time limit mean the same as there.
        """
        acl = self._acl if acl is None else check_acl(acl)
        data = None if data is None else check_data(data)
        op, mode = check_create_mode(ephemeral, sequential, container, ttl)
        fields, finish = (data, acl, *mode), self._created_with_stat
        return self._call(op or ops.CREATE2, path, fields, finish, None, None, sequential)

    def _created(self, record: tuple[str, ...]) -> str:
        return strip(self._chroot, record[0])

    def _created_with_stat(self, record: tuple[str, r.Stat]) -> PathAndStat:
        path, stat = record
        return _new(PathAndStat, (strip(self._chroot, path), stat))

    def delete(self, path: str, version: int = -1) -> Reply[None]:
        """Delete a node if it has this data ``version`` (-1: any).

        "/" is the node of the chroot; without a chroot it is a ValueError.

        Refused with: NoNodeError; BadVersionError; NotEmptyError; NoAuthError.

        Lost connection (OutcomeUnknownError): delete it again; NoNodeError then means that it is
        deleted.  If other clients may create the same path again, read it first and compare
        ``czxid``: the node there may be theirs.

        Time limit or cancellation: a request that was sent still deletes the node.
        """
        if path == "/" and not self._chroot:
            raise ValueError("the root cannot be deleted")
        return self._call(ops.DELETE, path, (check_version(version),))

    def set_data(self, path: str, data: bytes | None, version: int = -1) -> Reply[r.Stat]:
        """Replace a node's data if it has this data ``version`` (-1: any); returns its new stat.

        ``data``: None writes null, as for :meth:`create`.

        Refused with: NoNodeError; BadVersionError; NoAuthError; QuotaExceededError.

        Lost connection (OutcomeUnknownError): with a version, repeat it; BadVersionError then means
        that the first attempt or another client has changed the node: read it and compare.  Without
        a version, a repetition overwrites what other clients have written meanwhile.

        Time limit or cancellation: a request that was sent still replaces the data.
        """
        data = None if data is None else check_data(data)
        return self._call(ops.SET_DATA, path, (data, check_version(version)))

    def set_acl(self, path: str, acl: Sequence[r.ACL], version: int = -1) -> Reply[r.Stat]:
        """Replace a node's access list if it has this ``aversion`` (-1: any); returns its new stat.

        Refused with: NoNodeError; BadVersionError; NoAuthError; InvalidACLError (an unknown scheme,
        or ``auth`` on a connection that is not authenticated).

        Lost connection (OutcomeUnknownError): with a version, repeat it; BadVersionError then means
        that the first attempt or another client has changed the list: read it and compare.  Without
        a version, a repetition overwrites what other clients have set meanwhile.

        Time limit or cancellation: a request that was sent still replaces the list.
        """
        return self._call(ops.SET_ACL, path, (check_acl(acl), check_version(version)))

    # --- reads ------------------------------------------------------------------------------------

    def exists(self, path: str, *, watch: AnyWatch | None = None) -> Reply[r.Stat | None]:
        """The stat of a node, or None if the node does not exist.

        ``watch`` is set in both cases; it fires once, when the node is created, changed or deleted.

        Refused with: NoAuthError (from 3.7.3, 3.8.4, 3.9.2).

        Lost connection: call it again; the lost request has not set the watch.

        Time limit or cancellation: a request that was sent still sets the watch: close it.
        """
        return self._call(ops.EXISTS, path, (watch is not None,), None, watch)

    def get_data(self, path: str, *, watch: AnyWatch | None = None) -> Reply[DataAndStat]:
        """A node's data, and its stat at the same moment.

        Null reads as b"", and ``is_null`` of the result is then True.

        ``watch`` is set if the node exists; it fires once, when the node is changed or deleted.

        Refused with: NoNodeError; NoAuthError.

        Lost connection: call it again; the lost request has not set the watch.

        Time limit or cancellation: a request that was sent still sets the watch: close it.
        """
        return self._call(ops.GET_DATA, path, (watch is not None,), _data, watch)

    def get_children(self, path: str, *, watch: AnyWatch | None = None) -> Reply[list[str]]:
        """The names of a node's children, in no particular order.

        ``watch`` is set if the node exists; it fires once, when a child is created or deleted, or
        when the node itself is deleted.

        Refused with: NoNodeError; NoAuthError.

        Lost connection: call it again; the lost request has not set the watch.

        Time limit or cancellation: a request that was sent still sets the watch: close it.
        """
        return self._call(ops.GET_CHILDREN, path, (watch is not None,), listed, watch)

    def get_children_with_stat(
        self, path: str, *, watch: AnyWatch | None = None
    ) -> Reply[ChildrenAndStat]:
        """The names of a node's children, and the node's own stat at the same moment.

        ``watch``, refusals, a lost connection and a time limit: as for :meth:`get_children`.
        """
        asks = (watch is not None,)
        return self._call(ops.GET_CHILDREN2, path, asks, _children_with_stat, watch)

    def get_acl(self, path: str) -> Reply[AclAndStat]:
        """A node's access list, and its stat.

        The list contains hashes of passwords only if the client may change it.

        Refused with: NoNodeError; NoAuthError.

        Lost connection: call it again.  Time limit or cancellation: nothing is left.
        """
        return self._call(ops.GET_ACL, path, (), _acl)

    def sync(self, path: str = "/") -> Reply[None]:
        """Bring the connected server up to date: a later read shows every change finished before.

        ZooKeeper does not make it a quorum operation: around a change of leader a later read may
        still be stale for a moment.

        Refused with: no error of its own.

        Lost connection: its guarantee ends with the connection; call it again before the read that
        needs it.  Time limit or cancellation: nothing is left, and nothing is guaranteed.
        """
        return self._call(ops.SYNC, path, (), _nothing)

    def _watch_own_node(self, path: str, czxid: int, watch: Watch) -> Reply[object]:
        """Set an own-node watch: it fires when the node with this czxid is deleted, or already is.

        For a node without children, whose child watch fires only at its end.  The watch is in the
        table from this call on; after a lost connection the session repeats the request.
        """
        return self._call(ops.GET_CHILDREN2, path, (True,), None, watch, czxid)


# Records are read by position and results made without their `__new__`: a lone get_data is 3 µs
# faster by that, of the 33 that the client adds to it.
_new: Any = tuple.__new__  # pyright: ignore


def _data(record: tuple[bytes | None, r.Stat]) -> DataAndStat:
    if record[0] is None:
        return _new(NullAndStat, (b"", record[1]))
    return _new(DataAndStat, record)


def _acl(record: tuple[tuple[r.ACL, ...], r.Stat]) -> AclAndStat:
    acl, stat = record
    return AclAndStat([r.ACL(_named(entry.perms), entry.id) for entry in acl], stat)


def _named(perms: int) -> int:
    """Permissions by name; a number that no server gives stays a number."""
    return Perms(perms) if 0 <= perms <= Perms.ALL else perms


def listed(record: tuple[tuple[T, ...]]) -> list[T]:
    """The elements of a record that is one vector."""
    return list(record[0])


def _children_with_stat(record: tuple[tuple[str, ...], r.Stat]) -> ChildrenAndStat:
    children, stat = record
    return ChildrenAndStat(list(children), stat)


def _nothing(_: object) -> None:
    return None
