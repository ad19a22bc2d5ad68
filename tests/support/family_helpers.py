"""What the tests of the lock family share: contenders that queue, and who holds at which moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.support.lock_helpers import GRACE, Stage, answers
from tests.support.server_control import poll
from zkwire import Client
from zkwire.blocking.locks import Lease, Semaphore
from zkwire.testing.proxy import Frame

# --- a lease, as a lock ---------------------------------------------------------------------------


def lease_of(client: Client, path: str, count: int = 1) -> Lease:
    """A lease that is not taken yet."""
    return Semaphore(client, path, count).lease()


def leased(semaphore: Semaphore, timeout: float | None = None) -> Lease:
    """A lease that is taken."""
    lease = semaphore.lease()
    assert lease.acquire(timeout)
    return lease


def lease_nodes(stage: Stage, path: str) -> list[str]:
    """All nodes of a semaphore's contenders: the leases, then the queue for them."""
    return stage.nodes(f"{path}/leases") + stage.nodes(f"{path}/locks")


def looked(frames: list[Frame]) -> bool:
    """Whether somebody waits for a predecessor, whose watch is set."""
    return bool(answers(frames, "get_data"))


def watches_children(frames: Iterable[Frame], below: str) -> bool:
    """Whether somebody behind the proxy waits for a change among the children of ``below``."""
    return any(
        frame.request is not None
        and frame.request.op == "get_children"
        and frame.request.path == below
        and frame.request.raw[-1] == 1
        for frame in answers(list(frames), "get_children")
    )


# --- small things ---------------------------------------------------------------------------------


def soon(what: str, look: Callable[[], Any], seconds: float = GRACE) -> None:
    """Wait until ``look()`` is true."""
    poll(what, lambda: look() or None, seconds)
