"""Conveniences over whole trees: several operations each, none of them atomic.

A lost connection is recovered from: every step can be repeated without harm, because it aims at a
state ("it is there", "it is gone") and not at a change.  Where no deadline is given each step has
one of its own, so that nothing waits for a server for ever: OperationTimeoutError.

An error that ends a change after a part of it was done says so: ``maybe_applied``, whatever became
of the step that it names.
"""

from __future__ import annotations

from collections import deque

from zkwire.errors import (
    MISSING_CHROOT,
    ConnectionLossError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ServerError,
    UnimplementedError,
    ZooKeeperError,
    error_for,
)
from zkwire.recipes.runtime import in_time, persist
from zkwire.wire.paths import check_below_root, check_path, parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from zkwire.jute.records import ACL
    from zkwire.operations import Reply
    from zkwire.recipes.runtime import Runtime

# Requests in one write: enough to hide a round trip, few enough to be answered soon.
WINDOW = 500
MOST_BYTES = 8 << 20
"""Of the paths that ``delete_tree`` remembers, about; twice: found, and to look at next."""
_PATH_BYTES = 64  # of a path beside its characters
_FIRST_WINDOW = 16


async def ensure_path(
    runtime: Runtime,
    path: str,
    acl: Sequence[ACL] | None,
    deadline: float | None,
    *,
    containers: bool = False,
    kept: str = "/",
) -> None:
    """Create ``path`` and what is missing above it, each with this ACL (None: the client's own).

    ``containers``: as nodes that the server removes when their last child has gone, all but
    ``kept`` and the chroot.  Persistent where the server refuses that, and after a connection that
    was lost on it: some servers answer what they do not know in no other way.
    """
    missing, begun, limit = [path], False, in_time(runtime, deadline)
    try:
        while missing:
            container = containers and missing[-1] not in ("/", kept)
            try:
                await _ensure_node(runtime, missing[-1], acl, limit, container)
                missing.pop()
                begun = True
            except NoNodeError:
                if missing[-1] == "/":  # that is the chroot, and what is above it is out of reach
                    raise NoNodeError(MISSING_CHROOT, op="create", path=path) from None
                missing.append(parent(missing[-1]))
            except UnimplementedError:
                if not container:
                    raise
                containers = False
            except ConnectionLossError as lost:
                begun = begun or lost.maybe_applied
                containers = containers and not lost.maybe_applied
                continue
            limit = in_time(runtime, deadline)
    except ZooKeeperError as error:
        error.maybe_applied = error.maybe_applied or begun
        raise


async def ensure_above(
    runtime: Runtime,
    path: str,
    acl: Sequence[ACL] | None,
    deadline: float | None,
    *,
    containers: bool = False,
) -> None:
    """As :func:`ensure_path`, for the nodes above what a change is about.

    An error does not say ``maybe_applied``: the change has not begun, whatever was made of these.
    """
    try:
        await ensure_path(runtime, path, acl, deadline, containers=containers)
    except ZooKeeperError as error:
        error.maybe_applied = False
        raise


async def _ensure_node(
    runtime: Runtime, path: str, acl: Sequence[ACL] | None, limit: float, container: bool
) -> None:
    """Create one node whose parent is there."""
    try:
        await runtime.until(runtime.operations.create(path, b"", acl, container=container), limit)
    except NodeExistsError:
        pass
    except NoAuthError:
        # A server looks at the rights on the parent before it sees that the node exists.
        if await persist(runtime, limit, runtime.operations.exists, path) is None:
            raise


async def walk(
    runtime: Runtime, path: str, deadline: Callable[[], float | None]
) -> AsyncGenerator[str, None]:
    """``path`` and everything below it, level by level.

    ``deadline`` is asked at each step: what the caller does between two may take its time.
    """
    path = check_path(path)
    level = [path]
    while level:
        below: list[str] = []
        for start in range(0, len(level), WINDOW):
            window = level[start : start + WINDOW]
            replies = [runtime.operations.get_children(node) for node in window]
            for node, reply in zip(window, replies, strict=True):
                names = await _names(runtime, path, node, reply, deadline)
                if names is not None:
                    yield node
                    below += [f"{'' if node == '/' else node}/{name}" for name in names]
        level = below


async def _names(
    runtime: Runtime,
    root: str,
    node: str,
    reply: Reply[list[str]],
    deadline: Callable[[], float | None],
) -> list[str] | None:
    """The answer to the listing of a node of the tree at ``root``; None if the node is gone."""
    try:
        try:
            return await runtime.until(reply, deadline())
        except ConnectionLossError:
            limit, again = in_time(runtime, deadline()), runtime.operations.get_children
            return await persist(runtime, limit, again, node)
    except NoNodeError:
        if node == root:
            raise error_for(NoNodeError.code, "walk", root) from None
        return None


async def delete_tree(runtime: Runtime, path: str, deadline: float | None) -> None:
    """Delete everything below ``path``, and it; an error has a note of how many nodes are gone."""
    check_below_root(path, "deleted")
    done = _Deletion()
    try:
        while True:
            try:
                nodes = await _deepest(runtime, path, deadline)
            except NoNodeError:
                return
            for start in range(0, len(nodes), WINDOW):
                await done.add(runtime, nodes[start : start + WINDOW], deadline)
    except ZooKeeperError as error:
        error.maybe_applied = error.maybe_applied or done.deleted > 0 or done.in_doubt
        if done.deleted:
            count = "1 node" if done.deleted == 1 else f"{done.deleted} nodes"
            error.add_note(f"{count} of {path} had been deleted by then")
        raise


async def _deepest(runtime: Runtime, path: str, deadline: float | None) -> list[str]:
    """``path`` and all below it, children first; of a large tree a part with leaves of it.

    What is kept in memory is bounded (``MOST_BYTES``), however wide or deep the tree is: of a level
    that is too large only the beginning is looked at, and of all levels the last ones are kept.
    """
    nodes, level = deque[str](), [path]
    kept, width = 0, _FIRST_WINDOW
    while level:
        below: list[str] = []
        size = start = 0
        while start < len(level) and size < MOST_BYTES:
            window, before = level[start : start + width], size
            replies = [runtime.operations.get_children(node) for node in window]
            for node, reply in zip(window, replies, strict=True):
                names = await _names(runtime, path, node, reply, lambda: deadline)
                if names is None:
                    continue
                nodes.append(node)
                kept += len(node) + _PATH_BYTES
                for name in names:
                    if size < MOST_BYTES:
                        below.append(f"{node}/{name}")
                        size += len(below[-1]) + _PATH_BYTES
            start += width
            # The answers may be as long as a server likes: few at a time until they are known.
            width = min(WINDOW, 2 * width) if size - before < MOST_BYTES // 8 else 1
        while kept > MOST_BYTES and len(nodes) > 1:
            kept -= len(nodes.popleft()) + _PATH_BYTES
        level = below
    nodes.reverse()
    return list(nodes)


class _Deletion:
    """How many nodes are ``deleted``, and whether more may be (``in_doubt``)."""

    def __init__(self) -> None:
        self.deleted = 0
        self.in_doubt = False

    async def add(self, runtime: Runtime, nodes: list[str], deadline: float | None) -> None:
        """Try to delete the nodes; what is left is found again.

        A refusal is raised when all of them are answered, so that each that is gone is counted.
        """
        refusal: ServerError | None = None
        for reply in [runtime.operations.delete(node) for node in nodes]:
            try:
                await runtime.until(reply, deadline)
                self.deleted += 1
            except (NoNodeError, NotEmptyError):
                pass
            except ConnectionLossError as lost:
                self.in_doubt = self.in_doubt or lost.maybe_applied
            except ServerError as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal
