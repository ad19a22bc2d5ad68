"""What a recipe may ask of the client that it runs for, and nothing else.

A recipe is an ``async def`` over these operations, written once.  The blocking client runs it in
the caller's thread: every await blocks in place, so the traceback of a stuck thread shows the line
of the recipe.  Under asyncio it is awaited as it is; in simulation a scheduler sees every await.

An operation sends its request when it is *called*; awaiting its reply only waits.  Two operations
called one after the other therefore leave in one write, and by the session's order the second sees
the effects of the first.  The operations of ``drafts`` only make the request: ``exchange`` sends it
and waits, which under threads costs less, as nothing else can come between the two.

Then follows what repeats a request over lost connections, and conveniences over whole trees.
These are several operations each, none of them atomic.  A lost connection is recovered from: every
step can be repeated without harm, because it aims at a state ("it is there", "it is gone") and not
at a change.  If no deadline is given, each step has its own, and ends with OperationTimeoutError:
nothing waits for a server without end.  If an error ends a change after a part of it was done, the
error has ``maybe_applied``, even if the step that it names has changed nothing.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from math import inf

from zkwire import errors
from zkwire.operations.nodes import drafts
from zkwire.session.waitable import Waitable, Watch, check_timeout
from zkwire.wire.paths import check_below_root, check_path, parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from typing import Any, ParamSpec, Protocol, TypeVar

    from zkwire.jute.records import ACL
    from zkwire.operations import Operations, Reply
    from zkwire.session.liveness import LeaseHolder
    from zkwire.session.status import SessionStatus
    from zkwire.wire.model import Event

    T = TypeVar("T")

    P = ParamSpec("P")

    class AsyncClientLike(Protocol):
        """An AsyncClient, or what stands in its place."""

        @property
        def _recipe_runtime(self) -> Any:
            """What recipes ask of it: a :class:`Runtime`."""
            ...

        @property
        def _sessions(self) -> Any:
            """Where services run: a :class:`Runtime`, of a supervisor its part for services."""
            ...


async def newest(operations: Operations, read: Callable[[str], Reply[T]], path: str) -> T:
    """What a read shows after a ``sync``: a server that is behind could show what was before.

    For the background, where a reply has no deadline.
    """
    synced, reply = operations.sync(path), read(path)
    await synced
    return await reply


async def unwrap_multi_error(
    multi: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """The results of a multi; raises what one of its operations was refused with, if any was."""
    try:
        return await multi(*args, **kwargs)
    except errors.MultiError as error:
        refusals = [error._culprit]
    # Not in the handler, and popped: neither its context nor its traceback leads back to it.
    raise refusals.pop()


REPEATABLE = (errors.ConnectionLossError, *errors.BUSY)
"""What says nothing of a read but that it was not answered, or not at this moment."""
CHANGED = (errors.BadVersionError, errors.NodeExistsError, errors.NoNodeError)
"""What says that another client has changed a node meanwhile."""
SESSION_OVER = (errors.SessionExpiredError, errors.ClientClosedError, errors.AuthFailedError)
"""What says that a session is over, and nothing about the next one."""
# Requests in one write: enough to hide a round trip, few enough to be answered soon.
WINDOW = 500
MOST_BYTES = 8 << 20
"""Of the paths that ``delete_tree`` remembers, about; twice: found, and to look at next."""
_PATH_BYTES = 64  # of a path beside its characters
_FIRST_WINDOW = 16


class Runtime:
    """One client, as its recipes see it.  Times are seconds on the clock ``now``.

    A driver is a subclass.  What only a driver can do is declared here; the rest is done here.
    """

    mutex: AbstractContextManager[object]
    """For a few steps that threads must not mix; nothing awaits under it.

    Under asyncio it is no lock: a step without an await is one step there.
    """

    session: SessionStatus
    operations: Operations
    now: Callable[[], float]

    operation_timeout: float | None
    """The client's time limit for an operation in seconds; None without."""

    caller: Callable[[], object]
    """The thread or the task that runs; equal for the same."""

    waiter: Callable[[], object]
    """The thread or the task that runs, also in a simulation."""

    undefer: Callable[[Callable[[], object] | None], None]
    """Undo :meth:`defer`, unless the function has been called, or is just being."""

    def __init__(self) -> None:
        self.forked: bool = False  # whether this is the copy in a forked child
        # The locks (OwnedNode, and the like) of which a node may stand on the server: they refuse a
        # detach.
        self.active_locks: set[Any] = set()
        self.pending_cleanups: set[str] = set()  # the ids of the attempts that are cleaned up
        self.idle_tokens: list[Any] = []  # that no change uses; see zkwire.recipes._node
        # To be set when one of the active locks could not hand its clean-up over: the client does.
        # An attribute, because a call needs room on a stack that may be full.
        self.unfinished: bool = False

    @property
    def _recipe_runtime(self) -> Runtime:
        return self  # in the place of the client

    _sessions = _recipe_runtime

    @property
    def session_id(self) -> int:
        """The session's id; 0 before the first handshake."""
        return self.session.session_id

    @property
    def usable(self) -> bool:
        """Whether requests leave at once."""
        return self.session.usable and not self.forked

    @property
    def lease_deadline(self) -> float:
        """Until then the session is surely alive; 0 when it may be gone."""
        return 0.0 if self.forked else self.session.lease_deadline

    if TYPE_CHECKING:

        def wake(self) -> None:
            """Have the client look at ``unfinished`` at once, and not only at its next deadline."""

        def check(self) -> None:
            """Raise if the client cannot be used here: in a forked child, in another event loop."""

        def check_open(self) -> None:
            """Raise what has ended the session, or ClientClosedError as soon as that is wanted."""

        def interrupt(self, waiter: object, attempt: Any) -> None:
            """Have its wait raise that the attempt is cancelled, if it still is made then."""

        def local(self, make: Callable[[], T]) -> Callable[[], T]:
            """A function that returns the value of the thread or task that calls it.

            ``make`` makes it when it is first asked for.  It is forgotten when that has ended.
            """
            ...

        def when_caller_ends(self, lock: Any) -> None:
            """Tell the lock, if it is owned then, when the thread or task that runs has ended.

            Only that can release it.
            """

        def outside_chroot(self) -> Operations:
            """The operations with the server's own paths."""
            ...

        def unique(self) -> str:
            """An id that no other attempt of any client has."""
            ...

        def defer(self, function: Callable[[], object]) -> None:
            """Have ``function`` called some milliseconds from now, or before the next request.

            In any thread, perhaps twice, and never if the client ends before.  It must be quick and
            never wait.
            """

        def withdraw(self, request: Any, /) -> bool:
            """Never send a request that has not been sent; True if it now never will be."""
            ...

        def close_watch(self, watch: Watch, *, tell: bool = True) -> None:
            """Remove a watch; with ``tell`` from the server too, unless another needs it there."""

        async def connected(self, deadline: float | None) -> None:
            """Wait for a usable connection; OperationTimeoutError after the deadline."""

        def flush(self) -> None:
            """Send what there is to send, as far as the kernel takes it."""

        async def within(self, waitable: Waitable, timeout: float | None = None) -> bool:
            """Wait until ``waitable`` is ready, at most ``timeout`` seconds; whether it is."""
            ...

        async def ready(self, waitable: Waitable) -> None:
            """Wait until ``waitable`` is ready; raises what ended the session before."""

        def spawn(self, work: Callable[[Operations], Coroutine[Any, Any, object]]) -> None:
            """Run ``work(background)`` to its end, whatever becomes of the caller.

            Its first step is taken here, so what that asks for comes before what the caller asks
            for next.  If that is interrupted, it is open whether any of it is done.
            """

        async def another_state(self) -> None:
            """In a coroutine given to ``spawn``: wait until the session is in another state."""

        async def any_of(self, *waitables: Waitable) -> None:
            """In a coroutine of the background: wait until one is ready.

            Raises what ended the session if that comes first.
            """

        def cancelled_by(
            self,
            add: Callable[[Callable[[object], None]], Callable[[], object]],
            error: Callable[[], Exception],
            value: T,
        ) -> AbstractAsyncContextManager[T]:
            """Cancel the body when something happens, then raise ``error()``; not for threads.

            ``add`` has a function called when it happens, and returns one that undoes this.
            """
            ...

        async def pause(self, seconds: float, *waitables: Waitable) -> None:
            """In a coroutine of the background: let so much time pass, or less if one is ready.

            Raises what ended the session if that comes first.
            """

        def jitter(self) -> float:
            """A random number from 0.5 to 1."""
            ...

        def warn(self, message: str) -> None:
            """Put a line into the log, for operators to act on."""

        def hold(self, hold: LeaseHolder) -> None: ...
        def unhold(self, hold: LeaseHolder) -> None: ...
        def wait(self, waitable: Waitable, timeout: float | None) -> bool: ...
        def when_ready(self, waitable: Waitable, function: Callable[[], object]) -> None: ...

        # For services a supervisor has these, and ``operations``, ``forked`` and ``check``.

        awaits: bool
        """Whether what a user's function returns is awaited there."""

        def check_callback(self, function: Any) -> None:
            """TypeError for a function of a user's that cannot be called there."""

        def dispatch(self, function: Callable[[], object]) -> None:
            """Call a user's function, in order, where a user's code may run."""

        def serve(self, service: Any) -> None:
            """Run the service in this session, or in each, until :meth:`dismiss`.

            Raises what ended the client, or the supervisor, if nothing will be run any more.
            """

        def dismiss(self, service: Any) -> None:
            """Stop the service soon, in the middle of a wait.  Idempotent."""

        async def holds(self, condition: Waitable, timeout: float | None) -> bool:
            """Wait until ``condition`` holds, at most ``timeout`` seconds; whether it does.

            Raises what ended the client, or the supervisor, if that comes first.
            """
            ...

    # --- time limits ------------------------------------------------------------------------------

    def in_time(self, deadline: float | None) -> float:
        """The deadline of one step; where none is given the ``operation_timeout`` from now.

        Without that, two session timeouts.
        """
        if deadline is not None:
            return deadline
        limit = self.operation_timeout
        return self.now() + (2 * self.session.timeout if limit is None else limit)

    def deadline(self, timeout: float | None) -> float:
        """The deadline of a call with this limit in seconds; without one that of a step."""
        limit = check_timeout("timeout", timeout)
        return self.in_time(None if limit is None else self.now() + limit)

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self.now())

    # --- requests, and what repeats them ----------------------------------------------------------

    async def until(self, reply: Reply[T], deadline: float | None) -> T:
        """The reply's result; OperationTimeoutError when the deadline passes first."""
        self.flush()  # what was asked for together leaves in one write
        awaited: Any = reply
        return await awaited.within(self._left(deadline))

    @cached_property
    def drafts(self) -> Operations:
        """The operations, which make requests for :meth:`exchange` and do not submit them."""
        return drafts(self.operations)

    async def exchange(self, deadline: float | None, *requests: Any) -> Any:
        """Submit drafts, which leave in one write, and return the result of the first.

        All but the first are of operations that every server knows; await these with :meth:`until`.
        OperationTimeoutError when the deadline passes first.
        """
        for request in requests:
            self.operations._submit(request)
        return await self.until(requests[0], deadline)

    async def event(self, watch: Watch, deadline: float | None) -> Event:
        """The watch's next event; OperationTimeoutError when the deadline passes first."""
        while (event := watch.take()) is None:
            if not await self.within(watch, self._left(deadline)):
                raise errors.OperationTimeoutError("no event came in time")
        return event

    async def retry(
        self,
        deadline: float | None,
        operation: Callable[P, Reply[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """The result of an operation that may be repeated, over as many connections as it takes.

        Each try waits for a connection by itself, so this does not spin.
        """
        return (await self.answers(deadline, lambda: [operation(*args, **kwargs)]))[0]

    async def answers(
        self, deadline: float | None, ask: Callable[[], Sequence[Reply[Any]]]
    ) -> list[Any]:
        """The results of operations asked for together, and all again after a lost connection."""
        while True:
            replies = ask()
            try:
                return [await self.until(reply, deadline) for reply in replies]
            except errors.ConnectionLossError:
                pass

    async def ensure_gone(self, deadline: float | None, path: str) -> None:
        """Delete a node, or find it deleted, over as many connections as it takes."""
        try:
            await self.retry(deadline, self.operations.delete, path)
        except errors.NoNodeError:
            pass

    async def ensure_path(
        self,
        path: str,
        acl: Sequence[ACL] | None,
        deadline: float | None,
        *,
        containers: bool = False,
        kept: str = "/",
        counts: bool = True,
    ) -> None:
        """Create ``path`` and what is missing above it, each with this ACL (None: the client's).

        That includes the chroot and what is missing above it.  ``containers``: as nodes that the
        server removes when their last child has gone, all but ``kept``, the chroot and the nodes
        above it.  Persistent where the server refuses that, and after a connection that was lost on
        it: some servers answer what they do not know in no other way.

        ``counts``: an error has ``maybe_applied`` if any node may have been made.  Without
        ``counts`` it does not: the caller's change has not begun, even if nodes above it were made.
        """
        missing, begun, limit = [(self.operations, path)], False, self.in_time(deadline)
        try:
            while missing:
                operations, node = missing[-1]
                container = containers and operations is self.operations and node not in ("/", kept)
                try:
                    await self._ensure_node(operations, node, acl, limit, container)
                    missing.pop()
                    begun = True
                except errors.NoNodeError:
                    if node != "/":
                        missing.append((operations, parent(node)))
                    elif operations._chroot:
                        missing.append((self.outside_chroot(), parent(self.session.chroot)))
                    else:
                        raise
                except errors.UnimplementedError:
                    if not container:
                        raise
                    containers = False
                except errors.ConnectionLossError as lost:
                    begun = begun or lost.maybe_applied
                    containers = containers and not lost.maybe_applied
                    continue
                limit = self.in_time(deadline)
        except errors.ZooKeeperError as error:
            error.maybe_applied = counts and (error.maybe_applied or begun)
            raise

    async def _ensure_node(
        self,
        operations: Operations,
        path: str,
        acl: Sequence[ACL] | None,
        limit: float,
        container: bool,
    ) -> None:
        """Create one node whose parent is there."""
        try:
            await self.until(operations.create(path, b"", acl, container=container), limit)
        except errors.NodeExistsError:
            pass
        except errors.NoAuthError:
            # A server looks at the rights on the parent before it sees that the node exists.
            if await self.retry(limit, operations.exists, path) is None:
                raise


def runtime_of(client: AsyncClientLike) -> Runtime:
    """What the recipes ask of the client; TypeError if it is none, or not for asyncio."""
    runtime: Runtime | None = getattr(client, "_recipe_runtime", None)
    if runtime is None:
        raise TypeError(f"client must be an AsyncClient, not {type(client).__name__}")
    return runtime


async def walk(
    runtime: Runtime,
    path: str,
    deadline: Callable[[], float | None],
    *,
    most: float = inf,
    width: int = WINDOW,
) -> AsyncGenerator[str, None]:
    """``path`` and everything below it, level by level.

    ``deadline`` is asked at each step: what the caller does between two may take its time.  Of a
    level that takes more than ``most`` bytes only the beginning is looked at.  ``width``: how many
    are asked for at first; the answers may be as long as a server likes.
    """
    level = [check_path(path)]
    while level:
        below: list[str] = []
        size = start = 0
        while start < len(level) and size < most:
            window, before = level[start : start + width], size
            for node, names in await _listed(runtime, path, window, deadline):
                yield node
                for name in names:
                    if size < most:
                        below.append(f"{'' if node == '/' else node}/{name}")
                        size += len(below[-1]) + _PATH_BYTES
            start += width
            width = min(WINDOW, 2 * width) if size - before < most / 8 else 1
        level = below


async def _listed(
    runtime: Runtime, root: str, nodes: list[str], deadline: Callable[[], float | None]
) -> list[tuple[str, list[str]]]:
    """Those nodes of the tree at ``root`` that are there, each with the names of its children."""
    read, found = runtime.operations.get_children, list[tuple[str, list[str]]]()
    for node, reply in [(node, read(node)) for node in nodes]:
        try:
            try:
                names = await runtime.until(reply, deadline())
            except errors.ConnectionLossError:
                names = await runtime.retry(runtime.in_time(deadline()), read, node)
            found.append((node, names))
        except errors.NoNodeError:
            if node == root:
                raise errors.error_for(errors.NoNodeError.code, "walk", root) from None
    return found


async def delete_tree(runtime: Runtime, path: str, deadline: float | None) -> None:
    """Delete everything below ``path``, and it; an error has a note of how many nodes are gone."""
    check_below_root(path, "deleted")
    deleted, in_doubt = 0, False
    try:
        while True:
            try:
                nodes = await _deepest(runtime, path, deadline)
            except errors.NoNodeError:
                return
            for start in range(0, len(nodes), WINDOW):
                window = nodes[start : start + WINDOW]
                # Raised late: each that is gone is counted.
                refusal: errors.ServerError | None = None
                for reply in [runtime.operations.delete(node) for node in window]:
                    try:
                        await runtime.until(reply, deadline)
                        deleted += 1
                    except (errors.NoNodeError, errors.NotEmptyError):
                        pass  # what is left is found again
                    except errors.ConnectionLossError as lost:
                        in_doubt = in_doubt or lost.maybe_applied
                    except errors.ServerError as refused:
                        refusal = refusal or refused
                if refusal is not None:
                    raise refusal
    except errors.ZooKeeperError as error:
        error.maybe_applied = error.maybe_applied or deleted > 0 or in_doubt
        if deleted:
            count = "1 node" if deleted == 1 else f"{deleted} nodes"
            error.add_note(f"{count} of {path} had been deleted by then")
        raise


async def _deepest(runtime: Runtime, path: str, deadline: float | None) -> list[str]:
    """``path`` and all below it, children first; of a large tree a part with leaves of it.

    What is kept in memory is bounded (``MOST_BYTES``), however wide or deep the tree is: of a level
    that is too large only the beginning is looked at, and of all levels the last ones are kept.
    """
    nodes, kept = deque[str](), 0
    tree = walk(runtime, path, lambda: deadline, most=MOST_BYTES, width=_FIRST_WINDOW)
    async for node in tree:
        nodes.append(node)
        kept += len(node) + _PATH_BYTES
        while kept > MOST_BYTES and len(nodes) > 1:
            kept -= len(nodes.popleft()) + _PATH_BYTES
    nodes.reverse()
    return list(nodes)
