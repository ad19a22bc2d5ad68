"""The blocking client: the operations, the session and the driver put together."""

from __future__ import annotations

import sys

from zkwire.blocking.sync import BlockingOperations, in_thread, iterate, iterator, operation
from zkwire.net.client import ClientBase, ClientCoroutines
from zkwire.net.pipeline import Pipeline, TransactionBase
from zkwire.operations import Operations
from zkwire.recipes._recipe import public
from zkwire.session.waitable import Bound

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, Self

    from zkwire.blocking.driver import ThreadDriver
    from zkwire.blocking.services import ChildrenWatch, DataWatch
    from zkwire.jute import records as r
    from zkwire.jute.records import ACL
    from zkwire.operations.multi import Operation
    from zkwire.operations.nodes import AnyWatch
    from zkwire.recipes._service import OnProblem
    from zkwire.recipes.watching import ChildrenCallback, DataCallback
    from zkwire.session.waitable import Watch
    from zkwire.wire.model import (
        AclAndStat,
        ChildrenAndStat,
        Credentials,
        DataAndStat,
        PathAndStat,
        State,
        WatchType,
    )


# <watches: tools/generate.py>
class ThreadNodeWatches(Bound):
    """What clients and supervisors have in common: watches forever."""

    def watch_data(
        self,
        path: str,
        callback: DataCallback | None = None,
        *,
        on_problem: OnProblem | None = None,
        with_event: bool = False,
    ) -> DataWatch:
        """The data of a node, forever: an iterator of :class:`SeenData`.

            for seen in client.watch_data("/config"):
                configure(seen.data)  # yours to write

        It yields the state at this moment first, then each newer one, and ``data`` is None while
        the node does not exist.  The last state is never missed, and none comes after a newer one.
        A reader that is slow gets the newest state when it asks for it, not those between
        (``skipped`` says so).  Leaving the loop, or ``close``, ends the watch, here and on the
        server.  ``next(timeout)`` waits for one state only.

        With a ``callback`` each state goes to the callback, one call at a time, in the callback
        thread (under asyncio in the loop, and it may be a coroutine function); ``close`` ends it,
        and so does a callback that returns False.  ``wait_called(timeout)`` of the watch that this
        returns waits until the first call of the callback has ended.  ``with_event``: the callback
        is called with the state and the :class:`Event` that has led to the read, None for the first
        state and after a lost connection.  A callback that cannot be called in this way is a
        TypeError.

        A lost connection is not an error.  From a client it raises what ended the session; from a
        supervisor it goes on in the next session.  Raises NoAuthError if the node may not be read;
        with a ``callback`` that is logged, and the read is repeated.  ``problem`` and
        ``on_problem``: see docs/supervisor.md#refusals.
        """
        from zkwire.blocking.services import DataWatch

        client: Any = self
        return DataWatch(client, path, callback, on_problem, with_event)

    def watch_children(
        self,
        path: str,
        callback: ChildrenCallback | None = None,
        *,
        on_problem: OnProblem | None = None,
        with_event: bool = False,
    ) -> ChildrenWatch:
        """The names of a node's children, forever: an iterator of :class:`SeenChildren`.

        Like :meth:`watch_data`; ``children`` is None while the node does not exist.
        """
        from zkwire.blocking.services import ChildrenWatch

        client: Any = self
        return ChildrenWatch(client, path, callback, on_problem, with_event)


# </watches>


@public
class Client(ClientBase, ThreadNodeWatches, BlockingOperations):
    """A ZooKeeper session, to be shared by any number of threads.

        with Client("127.0.0.1:2181") as client:
            client.create("/hello", b"world")

    ``hosts``: ``"host:port,[::1]:2181/chroot"``, port 2181 if there is none, one chroot behind the
    last server; names are resolved again for each attempt.
    ``session_timeout``: seconds of silence after which the ensemble ends the session; the server
    may grant another (see the property).  A number above 3600 is refused, as it is nearly always
    milliseconds; where longer sessions are wanted, a ``timedelta`` says so.
    ``operation_timeout``: seconds after which an operation raises OperationTimeoutError; it also
    limits whatever a lock does without a limit of its own, except an ``acquire`` that waits.
    Without it, an operation ends when its connection breaks, at the latest after two thirds of the
    session timeout without a byte; if no server can be reached, it ends after a whole session
    timeout.  A server that answers pings but not the request keeps the operation waiting.
    ``auth``: (scheme, secret) pairs such as ``("digest", b"user:password")`` for this and every
    later connection.
    ``sasl``: a mechanism such as :class:`DigestMD5`.
    ``default_acl``: for every node that is created without another, by locks too, such as
    ``CREATOR_ALL_ACL``; nodes that exist keep their own.
    ``tls``: a context such as ``ssl.create_default_context(cafile=...)``; every byte goes through
    it, and the server's certificate must be for the name in ``hosts``.

    ``read_only``: accept a server that has lost the ensemble, for reading (the state says so), and
    keep looking for a better one.
    ``resume``: continue the session of another client, see :meth:`detach`.
    ``shuffle_hosts``: False tries the servers in turn in the order in which ``hosts`` has them, and
    a name's addresses in the resolver's; else the order is random, so that many clients spread over
    the servers.
    ``follow_reconfig``: take the list of servers from the ensemble's configuration when that
    changes; with ``tls`` in addition to those in ``hosts``, as the configuration names the ports
    without TLS.
    ``receive_limit``: the longest reply, in bytes (64 MiB); a longer one ends its operation with
    ReplyTooLargeError.
    ``send_limit``: the longest request, in bytes (1,048,575); a longer one is a ValueError.  Raise
    it where all servers have a higher ``jute.maxbuffer``, and lower it where theirs is lower: a
    server closes the connection when a request is longer than its limit.
    ``lease_margin``: seconds, at most a fifth of the session timeout.  With a margin of more than
    half of the servers' tickTime (use the tickTime), locks stay exclusive even if a follower
    crashes right after an answer.  An answer then extends the lease only after the same server has
    answered a request that was sent one margin later.  The client sends a ping every 1.25 margins;
    when a server dies silently, the client has that much less time to find the next one before its
    locks are lost.  If a fifth of the timeout that the server grants is less than the margin, the
    client uses that fifth (see the property).

    ``trace``: is called with a :class:`TraceFrame` for each frame in either direction, in the
    callback thread.  ``observer``: an :class:`Observer`, which is told of each request when it is
    submitted and when it has ended, and how; of each state; and of each event of a watch.

    Nothing is started before the first use.  One I/O thread then serves the session, and a second
    thread calls callbacks if there are any.  A client is one session for life: when that expires,
    every call raises SessionExpiredError and a new Client is the caller's decision.

    Under gevent it may be made before ``monkey.patch_all()``; when it has been used before that,
    every call raises RuntimeError.

    Close it.  A client that is not closed keeps its session and its locks until a session timeout
    after the end of the process, or until nothing refers to it any more.  What was made with the
    client (a lock, a watch, a reply) refers to it; a callback, or a grant whose lock object is
    gone, does not.  When the garbage collector finds a client to which nothing refers, the client
    is closed, with a ResourceWarning that under ``python -X tracemalloc=9 -W default`` says where
    it was made.

    A signal handler, or a finalizer, may use the client, with one exception: it may have
    interrupted the client's own work in its thread, which it cannot know.  Then each operation, and
    each wait for a reply or an event, raises RuntimeError at once, since the thread would wait for
    itself.  The release of a lock raises it, too, but is carried out after the handler.  ``close``,
    ``Watch.close`` and the state listeners work everywhere.  To be safe, let the handler set a
    flag, or use another thread.
    """

    _driver: ThreadDriver
    _iterate = staticmethod(iterate)

    @staticmethod
    def _driver_class() -> type[ThreadDriver]:
        from zkwire.blocking import driver

        patcher = sys.modules.get("eventlet.patcher")
        if patcher is not None and patcher.is_monkey_patched("thread"):
            return driver.EventletDriver
        return driver.ThreadDriver

    @property
    def _core(self) -> ThreadDriver:
        return self._driver

    # --- the session ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.connect()
        except BaseException:
            self.close()  # no __exit__ will
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- made of coroutines, and of the operations, documented in zkwire.operations ---------------

    # <methods: tools/generate.py>
    if TYPE_CHECKING:

        def connect(self, timeout: float | None = None) -> None: ...
        def close(self) -> None: ...
        def detach(self) -> Credentials: ...
        def wait_for_state(self, *states: State, timeout: float | None = None) -> State | None: ...
        def ensure_path(self, path: str, acl: Sequence[ACL] | None = None) -> None: ...
        def delete_tree(self, path: str) -> None: ...
        def walk(self, path: str = "/") -> Iterator[str]: ...
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
        ) -> str: ...
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
        ) -> PathAndStat: ...
        def delete(self, path: str, version: int = -1) -> None: ...
        def set_data(self, path: str, data: bytes | None, version: int = -1) -> r.Stat: ...
        def set_acl(self, path: str, acl: Sequence[r.ACL], version: int = -1) -> r.Stat: ...
        def exists(self, path: str, *, watch: AnyWatch | None = None) -> r.Stat | None: ...
        def get_data(self, path: str, *, watch: AnyWatch | None = None) -> DataAndStat: ...
        def get_children(self, path: str, *, watch: AnyWatch | None = None) -> list[str]: ...
        def get_children_with_stat(
            self, path: str, *, watch: AnyWatch | None = None
        ) -> ChildrenAndStat: ...
        def get_acl(self, path: str) -> AclAndStat: ...
        def sync(self, path: str = "/") -> None: ...
        def multi(self, operations: Iterable[Operation]) -> list[Any]: ...
        def multi_read(self, operations: Iterable[Operation]) -> list[Any]: ...
        def add_watch(self, path: str, watch: AnyWatch, *, recursive: bool = False) -> Watch: ...
        def remove_watches(self, path: str, which: WatchType = WatchType.ANY) -> None: ...
        def add_auth(self, scheme: str, secret: bytes) -> None: ...
        def who_am_i(self) -> list[r.ClientInfo]: ...
        def get_ephemerals(self, prefix: str = "/") -> list[str]: ...
        def get_all_children_number(self, path: str) -> int: ...
        def get_config(self, *, watch: AnyWatch | None = None) -> DataAndStat: ...
        def reconfig(
            self,
            *,
            joining: Sequence[str] | None = None,
            leaving: Sequence[str] | None = None,
            members: Sequence[str] | None = None,
            version: int = -1,
        ) -> DataAndStat: ...

    else:
        connect = in_thread(ClientCoroutines.connect)
        close = in_thread(ClientCoroutines.close)
        detach = in_thread(ClientCoroutines.detach)
        wait_for_state = in_thread(ClientCoroutines.wait_for_state)
        ensure_path = in_thread(ClientCoroutines.ensure_path)
        delete_tree = in_thread(ClientCoroutines.delete_tree)
        walk = iterator(ClientCoroutines.walk)
        create = operation(Operations.create)
        create_with_stat = operation(Operations.create_with_stat)
        delete = operation(Operations.delete)
        set_data = operation(Operations.set_data)
        set_acl = operation(Operations.set_acl)
        exists = operation(Operations.exists)
        get_data = operation(Operations.get_data)
        get_children = operation(Operations.get_children)
        get_children_with_stat = operation(Operations.get_children_with_stat)
        get_acl = operation(Operations.get_acl)
        sync = operation(Operations.sync)
        multi = operation(Operations.multi)
        multi_read = operation(Operations.multi_read)
        add_watch = operation(Operations.add_watch)
        remove_watches = operation(Operations.remove_watches)
        add_auth = operation(Operations.add_auth)
        who_am_i = operation(Operations.who_am_i)
        get_ephemerals = operation(Operations.get_ephemerals)
        get_all_children_number = operation(Operations.get_all_children_number)
        get_config = operation(Operations.get_config)
        reconfig = operation(Operations.reconfig)
    # </methods>

    def transaction(self) -> Transaction:
        """Collect operations and execute them all or not at all; see :class:`Transaction`."""
        return Transaction(self)

    @property
    def pipeline(self) -> Pipeline:
        """The operations once more, each of which returns its reply at once, without waiting.

            replies = [client.pipeline.get_data(path) for path in paths]
            values = [reply.result() for reply in replies]

        Requests leave in the order of the calls, many in one write.  If a reply is never asked for
        its result, its error goes unnoticed, as with a ``concurrent.futures.Future``.
        """
        return self._driver.pipeline


@public
class Transaction(TransactionBase):
    """Operations that are executed together at the end of a ``with`` block, all or none.

        with client.transaction() as t:
            t.check("/config", 3)
            t.set_data("/config", b"new")
            t.delete("/old")
        path, stat, nothing = t.results

    ``create``, ``delete``, ``set_data`` and ``check`` take the client's arguments.  ``results`` has
    one entry for each.  Errors, and what a lost connection means, are those of ``client.multi``.  A
    block that raises an error sends nothing, and a block that has called ``commit`` itself sends
    nothing more.
    """

    results: list[Any]

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._client = client

    def commit(self) -> list[Any]:
        """Execute what has been collected; returns the results.  RuntimeError the second time."""
        self.results = self._sent_by(self._client)
        return self.results

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and not self._committed:
            self.commit()
