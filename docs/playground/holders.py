"""Three answers to one question: which client holds the lock?

The server's: the client whose node is the first of the queue.  That of the lease: each client
whose lock object says that it is held.  That of the fence: the client with the largest fence, since
a resource that has seen it refuses all others.  Nothing is asked of a server: it is a look from
outside at all processes at one moment.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zkwire.cli.lessons.stage import Play

_NUMBER = 10  # digits that a server puts behind the name of a sequential node


class Holders:
    """The locks of a play, remembered from the first look at them on."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._locks: list[tuple[str, Any]] = []

    def look(self) -> dict[str, Any]:
        """``clients``: name, state and seconds of lease; ``locks``: path and the three answers."""
        play = self._play
        for client in play.clients:
            active_locks: set[Any] = client.world.active_locks
            found = [one for one in active_locks if "fence" in dir(one)]  # the locks in it
            known = {id(lock) for _, lock in self._locks}
            new = sorted((lock for lock in found if id(lock) not in known), key=lambda k: k.path)
            self._locks += [(client.name, lock) for lock in new]
        clients = [
            {
                "name": client.name,
                "state": "stands still" if client.paused else client.session.state.name.lower(),
                "lease": round(max(client.session.lease_deadline - play.now, 0.0), 3),
            }
            for client in play.clients
        ]
        paths = dict.fromkeys(lock.path for _, lock in self._locks)
        return {"clients": clients, "locks": [self._of(path) for path in paths]}

    def _of(self, path: str) -> dict[str, str]:
        contenders = [(name, lock) for name, lock in self._locks if lock.path == path]
        held = [f"{n} for {lock.lease_remaining():.1f} s" for n, lock in contenders if lock.held]
        fences = [(lock._fence, name) for name, lock in contenders if lock._fence is not None]
        last, owner = max(fences, default=(0, ""))
        return {
            "path": path,
            "server": self._first_in_line(path),
            "lease": ", ".join(held),
            "fence": f"{owner}, {last:#x}" if owner else "",
        }

    def _first_in_line(self, path: str) -> str:
        nodes = self._play.tree.nodes
        names = nodes[path].children if path in nodes else ()
        if not names:
            return ""
        first = min(names, key=lambda name: name[-_NUMBER:])
        owner = nodes[f"{path}/{first}"].owner
        by_session = {c.session.session_id: c.name for c in self._play.clients if owner}
        return by_session.get(owner, "a session without a client")
