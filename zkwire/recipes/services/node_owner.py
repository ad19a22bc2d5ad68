"""A kept node, as its owner sees it: what is wanted of it, what it shows of itself, and waits.

How the node is made, found again and deleted is :mod:`zkwire.recipes.services.persistent_node`'s
matter.
"""

from __future__ import annotations

from zkwire.errors import (
    BUSY,
    BadVersionError,
    ConnectionLossError,
    NoNodeError,
    NotReadOnlyError,
    OperationTimeoutError,
    ServerError,
)
from zkwire.operations.base import rehearse
from zkwire.operations.checks import check_acl, check_data
from zkwire.recipes.services.awaited import AwaitedService
from zkwire.recipes.services.service import SESSION_OVER, Condition
from zkwire.recipes.view import PathView, ServiceView
from zkwire.session.waitable import check_timeout
from zkwire.wire.paths import check_below_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL, Stat
    from zkwire.operations import Operations
    from zkwire.recipes.services.problem import OnProblem
    from zkwire.recipes.services.service import Background, Sessions


ID_LIKE = "0" * 24
"""What is as long as an id that a client makes."""
LOOK_AGAIN = (ConnectionLossError, BadVersionError, *BUSY)
"""What says nothing about the node as it is now."""


class Wish:
    """Data that shall be on the server, and what has become of that."""

    __slots__ = ("data", "done", "error")

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data
        self.done: bool = False
        self.error: ServerError | None = None


class NodeView(PathView, ServiceView):
    """What a kept node shows; nothing here asks a server.

    In a forked child there is no node: that is the parent's.
    """

    @property
    def name(self) -> str:
        """The last name of the path."""
        return self.path.rpartition("/")[2]

    @property
    def present(self) -> bool:
        """Whether the node is there, as far as is known here.

        It stays True while the connection is lost, and until the client hears that the node was
        deleted or that the session has expired.
        """
        return self.stat is not None

    @property
    def stat(self) -> Stat | None:
        """The stat of its own node, as last seen; None unless ``present``.

        ``czxid`` is another number, a higher one, each time the node is put back.
        """
        return None if self._algorithm._sessions.forked else self._algorithm._stat

    @property
    def conflict(self) -> Stat | None:
        """The stat of a foreign node that is in its place; None if there is none.

        It is never overwritten; its own node follows when it is gone.  ``ephemeral_owner`` says
        which session it belongs to: 0 if to none, so that it will not go by itself.
        """
        return None if self._algorithm._sessions.forked else self._algorithm._conflict

    def __repr__(self) -> str:
        state = " present" * self.present or " conflict" * (self.conflict is not None)
        return f"<{type(self).__name__} {self.path}{state}>"


class NodeOwner(NodeView, AwaitedService):
    """What callers do; the session's side is a subclass's."""

    _called = "PersistentNode"
    _ephemeral = True
    _engaged = True  # a session with such a node is not to be detached

    def __init__(
        self,
        sessions: Sessions,
        path: str,
        data: bytes = b"",
        acl: Sequence[ACL] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        super().__init__(sessions, on_problem)
        self._path = check_below_root(path, "kept: it is always there")
        self._data = check_data(data)  # as it was wanted before the wishes
        self._acl = None if acl is None else check_acl(acl)
        self._wishes: list[Wish] = []
        self._stat: Stat | None = None  # of its own node, as last seen
        self._conflict: Stat | None = None
        self._todo = Condition(lambda: self._leaving or bool(self._stat and self._wishes))
        self._rehearse(data)
        self._begin()

    def _rehearse(self, data: bytes) -> None:
        """ValueError if the node could never be sent with these data."""
        operations = rehearse(self._sessions.operations)
        operations.create(self._longest_path, data, self._acl, ephemeral=True)
        operations.set_data(self._longest_path, data)

    @property
    def _longest_path(self) -> str:
        """A path that is at least as long as the node's."""
        return self._path

    def _refused(self, runtime: Background, refusal: ServerError) -> float:
        self._settle(tuple(self._wishes), refusal)  # perhaps for the data
        return super()._refused(runtime, refusal)

    def _settle(self, wishes: tuple[Wish, ...], error: ServerError | None = None) -> None:
        """The last of the wishes is fulfilled, or refused with this error."""
        if wishes and error is None:
            self._data = wishes[-1].data
        del self._wishes[: len(wishes)]
        for wish in wishes:
            wish.done, wish.error = True, error

    async def _write(self, operations: Operations, stat: Stat) -> None:
        wishes = tuple(self._wishes)
        try:
            self._stat = await operations.set_data(self._path, wishes[-1].data, stat.version)
            self._settle(wishes)
        except (NoNodeError, NotReadOnlyError, *LOOK_AGAIN):
            raise
        except ServerError as refused:
            self._settle(wishes, refused)
        self._changed()

    async def wait_present(self, timeout: float | None = None) -> bool:
        """Wait until the node is there; False if ``timeout`` seconds pass without it.

        Then ``conflict`` says whether a foreign node is in its place.  Raises what has ended the
        client, or the supervisor; NoAuthError and what else a server refuses the node with;
        NodeExistsError while another object of the same client keeps this path.  After a refusal
        the node is still tried, and a later call may succeed.
        """
        return await self._until(lambda: self._stat is not None, timeout)

    async def set_data(self, data: bytes, timeout: float | None = None) -> None:
        """Change the node's data, for good: returns when that, or later data, is on the server.

        OperationTimeoutError if ``timeout`` seconds pass before: the data is written all the same
        as soon as that is possible.  A lost connection is no error.  Raises what
        :meth:`wait_present` raises, and NoAuthError or QuotaExceededError if a server refuses the
        data; then the node keeps the data it had.  ValueError, and nothing is tried, if the data is
        more than this client can send.
        """
        wish, limit = Wish(check_data(data)), check_timeout("timeout", timeout)
        self._check()
        self._rehearse(data)
        self._wishes.append(wish)
        self._todo.notify()
        await self._outcome(lambda: wish.done, limit)
        self._check()
        if not wish.done:
            raise OperationTimeoutError(
                "not written in time; it will be as soon as it can be",
                op="set_data",
                path=self._path,
                maybe_applied=True,
            )
        if wish.error is not None:
            raise wish.error

    async def close(self, timeout: float | None = 10.0) -> None:
        """Delete the node, if it is its own, and keep it no longer.  Idempotent.

        OperationTimeoutError if that takes longer than ``timeout`` seconds: it goes on in the
        background, and an ephemeral node goes with the session at the latest.  So it does after a
        refusal, which it raises: NoAuthError if the node may not be deleted, NotEmptyError if one
        that is not ephemeral has children.  Of such a node it also raises what has ended the
        session or the client before.
        """
        limit = check_timeout("timeout", timeout)
        self._leave()
        try:
            await self._left(self._path, limit)
        except SESSION_OVER:
            if not self._ephemeral:
                raise

    def _resume_cleanup(self) -> None:
        """Nothing that the service does not do by itself."""

    _take_over = _resume_cleanup

    def _leave(self) -> None:
        self._leaving = True
        self._todo.notify()
        self._retry()
