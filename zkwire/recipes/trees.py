"""Conveniences over whole trees: several operations each, none of them atomic.

A lost connection is recovered from: every step can be repeated without harm, because it aims at a
state ("it is there", "it is gone") and not at a change.  Where no deadline is given each step has
one of its own, so that nothing waits for a server for ever: OperationTimeoutError.

An error that ends a change behind its first step says so: ``maybe_applied``, whatever became of the
step that it names.
"""

from __future__ import annotations

from zkwire.errors import (
    MISSING_CHROOT,
    ConnectionLossError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
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
    from zkwire.recipes.runtime import Runtime

# Requests in one write: enough to hide a round trip, few enough to be answered soon.
WINDOW = 500


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
                try:
                    try:
                        names = await runtime.until(reply, deadline())
                    except ConnectionLossError:
                        limit, again = in_time(runtime, deadline()), runtime.operations.get_children
                        names = await persist(runtime, limit, again, node)
                except NoNodeError:
                    if node == path:
                        raise error_for(NoNodeError.code, "walk", path) from None
                    continue
                yield node
                below += [f"{'' if node == '/' else node}/{name}" for name in names]
        level = below


async def delete_tree(runtime: Runtime, path: str, deadline: float | None) -> None:
    """Delete everything below ``path``, and it."""
    check_below_root(path, "deleted")
    begun = False
    try:
        while True:
            try:
                nodes = [node async for node in walk(runtime, path, lambda: deadline)]
            except NoNodeError:
                return
            nodes.reverse()
            begun = True
            for start in range(0, len(nodes), WINDOW):
                await _delete_all(runtime, nodes[start : start + WINDOW], deadline)
    except ZooKeeperError as error:
        error.maybe_applied = error.maybe_applied or begun
        raise


async def _delete_all(runtime: Runtime, nodes: list[str], deadline: float | None) -> None:
    """Try to delete the nodes; the next walk shows what is left."""
    for reply in [runtime.operations.delete(node) for node in nodes]:
        try:
            await runtime.until(reply, deadline)
        except (NoNodeError, NotEmptyError, ConnectionLossError):
            continue
