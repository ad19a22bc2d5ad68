"""The blocking client: the operations, the session and the driver put together."""

from __future__ import annotations

from zkwire.blocking.replies import BlockingReply, Exchange
from zkwire.blocking.run import iterate, run
from zkwire.blocking.runtime import BlockingWorld
from zkwire.net.client import CLOSE_SECONDS, ClientBase
from zkwire.net.pipeline import Pipeline
from zkwire.operations import Operations
from zkwire.operations.multi import TransactionBase
from zkwire.recipes import trees
from zkwire.session.states import StateWait
from zkwire.session.waitable import check_timeout
from zkwire.wire.model import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random
    from ssl import SSLContext
    from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

    from zkwire.blocking.driver import ThreadDriver
    from zkwire.jute.records import ACL
    from zkwire.net.dial import Resolver
    from zkwire.net.sasl import Mechanism
    from zkwire.operations import Reply
    from zkwire.wire.model import Credentials

    P = ParamSpec("P")
    T = TypeVar("T")


def _blocking(
    verb: Callable[Concatenate[Any, P], Reply[T]],
) -> Callable[Concatenate[Client, P], T]:
    """The operation itself, which in an :class:`Exchange` returns the result: the type says so.

    A function around each operation would be a tenth of what the client adds to a lone request.
    """
    operation: Any = verb
    return operation


class Client(ClientBase, Exchange):
    """A ZooKeeper session, to be shared by any number of threads.

        with Client("127.0.0.1:2181") as client:
            client.create("/hello", b"world")

    ``hosts``: ``"host:port,[::1]:2181/chroot"``, port 2181 if there is none, one chroot behind the
    last server; names are resolved anew for each attempt.
    ``session_timeout``: seconds of silence after which the ensemble ends the session; the server
    may grant another (see the property).  A number above 3600 is refused, as it is nearly always
    milliseconds; where longer sessions are wanted, a ``timedelta`` says so.
    ``operation_timeout``: seconds after which an operation raises OperationTimeoutError; of a lock
    it limits what is given no limit, but an ``acquire`` that waits.  Without, an operation ends
    with its connection, which is given up after two thirds of the session timeout without a byte,
    or when no server could be reached for all of it; a server that answers pings and not the
    request keeps it waiting.
    ``auth``: (scheme, secret) pairs such as ``("digest", b"user:password")`` for this and every
    later connection.  ``sasl``: a mechanism such as :class:`DigestMD5`.
    ``default_acl``: for every node that is created without another, by locks too, such as
    ``CREATOR_ALL_ACL``; what exists keeps its own.
    ``tls``: a context such as ``ssl.create_default_context(cafile=...)``; every byte goes through
    it, and the server's certificate must be for the name in ``hosts``.

    ``read_only``: a server that has lost the ensemble will do for reading (the state says so);
    the client looks for a better one meanwhile.  ``resume``: go on with the session of another
    client, see :meth:`detach`.  ``follow_reconfig``: take the list of servers from the ensemble's
    configuration when that changes; with ``tls`` besides those in ``hosts``, as it names the ports
    without.  ``receive_limit``: the longest reply, in bytes (64 MiB); a
    longer one ends its call with ReplyTooLargeError.  ``lease_margin``: seconds, at most a fifth of
    the session timeout; locks stay exclusive if a follower crashes right behind an answer, when
    this is more than half of the servers' tickTime (take the tickTime).  An answer counts for the
    lease once another has come that much later; pings go out every 1.25 margins, and a server that
    dies in silence leaves a lock that much less time to find the next.  ``trace``: is called with a
    :class:`TraceFrame` for each frame in either direction, in the callback thread.

    Nothing is started before the first use.  One I/O thread then serves the session, and a second
    thread calls callbacks if there are any.  A client is one session for life: when that expires,
    every call raises SessionExpiredError and a new Client is the caller's decision.

    Under gevent it may be made before ``monkey.patch_all()``; when it has been used before that,
    every call raises RuntimeError.

    Close it: one that is not closed keeps its session and its locks until a session timeout after
    the end of the process, or until nothing refers to it any more.  What has been made with it (a
    lock, a watch, a reply) refers to it; a callback, or a grant whose lock object is gone, does
    not.  Then it is closed when the garbage collector finds it, with a ResourceWarning that tells
    where it was made under ``python -X tracemalloc=9 -W default``.

    A signal handler, or a finalizer, may use the client, with one exception: where it has
    interrupted the client's own work in its thread, which it cannot know, each operation, and each
    wait for a reply or an event, raises RuntimeError at once, since it would wait for itself.  The
    release of a lock does so, too, and is carried out behind the handler.  ``close``,
    ``Watch.close`` and the state listeners work everywhere.  The cure is a flag, or another thread.
    """

    _pump: ThreadDriver
    _world: BlockingWorld

    def _make_shell(
        self,
        name: str,
        tls: SSLContext | None,
        sasl: Mechanism | None,
        rng: Random,
        resolver: Resolver | None,
        now: Callable[[], float] | None,
    ) -> None:
        # Here and not at the top: an import of zkwire must not cost an import of socket.
        from zkwire.blocking.driver import ThreadDriver

        self._pump = ThreadDriver(self._session, name, tls, sasl, resolver, now)
        self._chroot = self._session.chroot
        self._world = BlockingWorld(self._pump, self._chroot, rng, self._acl)
        self.pipeline: Pipeline = Pipeline(self._pump, self._chroot, BlockingReply, acl=self._acl)

    # --- the session ------------------------------------------------------------------------------

    def connect(self, timeout: float | None = None) -> None:
        """Wait until the client is connected, at most ``timeout`` seconds (None: session timeout).

        Raises UnreachableError (a NotSentError and a TimeoutError), which says what each server
        answered, when no server can be reached: the client goes on looking for one.
        SessionExpiredError or ClientClosedError when the client is past use.
        """
        limit = check_timeout("timeout", timeout)
        limit = self._session.timeout if limit is None else limit
        self._pump.start()
        if not self._pump.wait(self._session.change, limit):
            raise self._unreachable(limit)
        if self._session.ended:
            raise self._session.ending()

    def close(self) -> None:
        """End the session: its ephemeral nodes and locks go at once.  Idempotent; takes a second
        at most, and when no server can be told, the server ends the session at its timeout."""
        self._pump.close(CLOSE_SECONDS)

    def detach(self) -> Credentials:
        """Close the client without ending the session; returns what goes on with it elsewhere.

            there = Client(hosts, resume=here.detach())

        Ephemeral nodes live on if somebody resumes within the session timeout.  Watches and
        authentication belong to the client and end with it.  Locks must be released before: their
        nodes would live on and block everybody.  What is being cleaned up behind one is done
        first, within a second.  Raises RuntimeError when a lock is held, being acquired, or lost
        and not released, or when there is no session yet; ClientClosedError or SessionExpiredError
        when there is none any more.
        """
        credentials = self._credentials_to_leave()
        self._pump.close(CLOSE_SECONDS, detach=True)
        return credentials

    def __enter__(self) -> Self:
        try:
            self.connect()
        except BaseException:
            self.close()  # for want of an __exit__
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_for_state(self, *states: State, timeout: float | None = None) -> State | None:
        """Wait until the client is in one of ``states``; returns it, or None after ``timeout``.

        A state that lasted only a moment counts.  When the session ends in another state, no other
        can come: that one is returned.
        """
        if not states or not all(isinstance(state, State) for state in states):
            raise TypeError("wait_for_state takes one or more State")
        limit = check_timeout("timeout", timeout)
        self._pump.start()
        wait = StateWait(states, self._session.state)
        self._pump.attach(wait)
        try:
            self._pump.wait(wait, limit)
        finally:
            self._pump.detach(wait)
        return wait.reached

    # --- operations: documented in zkwire.operations ----------------------------------------------

    create: Final = _blocking(Operations.create)
    create_with_stat: Final = _blocking(Operations.create_with_stat)
    delete: Final = _blocking(Operations.delete)
    set_data: Final = _blocking(Operations.set_data)
    set_acl: Final = _blocking(Operations.set_acl)
    exists: Final = _blocking(Operations.exists)
    get_data: Final = _blocking(Operations.get_data)
    get_children: Final = _blocking(Operations.get_children)
    get_children_with_stat: Final = _blocking(Operations.get_children_with_stat)
    get_acl: Final = _blocking(Operations.get_acl)
    sync: Final = _blocking(Operations.sync)
    multi: Final = _blocking(Operations.multi)
    multi_read: Final = _blocking(Operations.multi_read)
    add_watch: Final = _blocking(Operations.add_watch)
    remove_watches: Final = _blocking(Operations.remove_watches)
    add_auth: Final = _blocking(Operations.add_auth)
    who_am_i: Final = _blocking(Operations.who_am_i)
    get_ephemerals: Final = _blocking(Operations.get_ephemerals)
    get_all_children_number: Final = _blocking(Operations.get_all_children_number)
    get_config: Final = _blocking(Operations.get_config)
    reconfig: Final = _blocking(Operations.reconfig)

    def transaction(self) -> Transaction:
        """Collect operations and execute them all or not at all; see :class:`Transaction`."""
        return Transaction(self)

    # --- several operations, not atomic -----------------------------------------------------------

    def ensure_path(self, path: str, acl: Sequence[ACL] | None = None) -> None:
        """Create a node and whatever is missing above it, each with this ACL (or the default one).

        Not atomic, and needs not be: others may create the same nodes at the same time.  A lost
        connection is recovered from; OperationTimeoutError when a step of it (without an
        ``operation_timeout``) has found no server for two session timeouts.
        """
        run(trees.ensure_path(self._world, path, acl, self._deadline()))

    def delete_tree(self, path: str) -> None:
        """Delete a node and everything below it, if it is there.

        Not atomic: others see parts of it gone, and what they create meanwhile is deleted too, for
        as long as this goes on.  A lost connection is recovered from, as by :meth:`ensure_path`.
        Refused with: NoAuthError.
        """
        run(trees.delete_tree(self._world, path, self._deadline()))

    def walk(self, path: str = "/") -> Iterator[str]:
        """The paths of a node and of all below it, parents before their children.

        Not a snapshot: nodes that come and go meanwhile may or may not be among them.  A lost
        connection is recovered from, as by :meth:`ensure_path`; an ``operation_timeout`` is for
        each request, not for all of it.  Raises NoNodeError if ``path`` itself is not there.
        """
        return iterate(trees.walk(self._world, path, self._deadline))


class Transaction(TransactionBase):
    """Operations that are executed together at the end of a ``with`` block, all or none.

        with client.transaction() as t:
            t.check("/config", 3)
            t.set_data("/config", b"new")
            t.delete("/old")
        path, stat, nothing = t.results

    ``create``, ``delete``, ``set_data`` and ``check`` take the client's arguments.  ``results`` has
    one entry for each.  Raises MultiError, and loses its connection, as ``client.multi`` does; a
    block that raises sends nothing, and one that has called ``commit`` itself nothing more.
    """

    results: list[Any]

    def __init__(self, client: Client) -> None:
        super().__init__(client._chroot, client._acl)
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
