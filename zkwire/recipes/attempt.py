"""One attempt to get a lock, and the nodes that no attempt can wait for.

Invariant: an attempt's id is unlike that of any other attempt in the world, and it stands in the
name or the data of each node that is made for the attempt.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import (
    BUSY,
    ConnectionLossError,
    NoAuthError,
    NodeExistsError,
    NotReadOnlyError,
    OperationTimeoutError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.jute.records import Stat
    from zkwire.recipes.runtime import Runtime

NOT_NOW = (*BUSY, NotReadOnlyError)
"""Refusals that say nothing about the node."""


class LockInUseError(RuntimeError):
    """A lock object that cannot be acquired as it is: it is held, or in use by another caller.

    It may be acquired, or being acquired or released, by another thread or task, or by this one: no
    lock but a ReentrantLock is re-entrant.  Nothing was done, and what the object holds stays as it
    is.  Make a lock object for each thread or task.
    """


class Attempt:
    """One try to get the lock: its id, and what is known of its node.

    The id begins with the session's, behind which stands what all attempts of a client begin with.
    ``going``: attempts of the same client that were being cleaned up when this one began.
    """

    __slots__ = ("entered", "going", "id", "node", "stat")
    _SESSION, _CLIENT = 17, 33  # characters

    def __init__(self, session_id: int, unique: str, going: tuple[str, ...] = ()) -> None:
        self.id: str = f"{session_id & 0xFFFFFFFFFFFFFFFF:016x}-{unique}"
        self.going: tuple[str, ...] = going
        self.entered: bool = False  # a create may be on its way, or done
        self.node: str | None = None
        self.stat: Stat | None = None

    def is_former(self, other: str) -> bool:
        """Whether the id is of this session and another client: from before it was resumed."""
        return other.startswith(self.id[: self._SESSION]) and not other.startswith(
            self.id[: self._CLIENT]
        )


def former(path: str) -> NodeExistsError:
    """The error for a node that lives as long as the very session that would wait for its end."""
    return NodeExistsError(
        f"{path} is this session's own, from before this client has resumed it, and stays as long "
        "as the session: delete it if no work is done under it any more",
        path=path,
    )


def permanent(path: str) -> NodeExistsError:
    """The error for a node that no end of a session takes away: a wait for that has no end."""
    message = f"{path} is no lock: the node there is not ephemeral, and does not go by itself"
    return NodeExistsError(message, path=path)


async def is_permanent(runtime: Runtime, deadline: float | None, path: str) -> bool:
    """Whether the node at the path is seen not to be ephemeral.

    It is not seen if the connection is lost or the time is over.  From 3.8.4 and 3.9.2 on a server
    shows it only to clients that may read the node.
    """
    with suppress(ConnectionLossError, NoAuthError, OperationTimeoutError):
        stat = await runtime.until(runtime.operations.exists(path), deadline)
        return stat is not None and stat.ephemeral_owner == 0
    return False
