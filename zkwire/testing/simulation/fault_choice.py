"""The faults of a simulation: when each is possible, and what it does.

``cut``        the connection breaks, and all frames under way are lost: requests that were sent and
               never received, replies, events.
``unsent``     as ``cut``, before the kernel has taken the requests.
``linger``     as ``cut``, but the requests under way still arrive at the server.
``expire``     the server ends the session before its timeout.
``delete``     an outsider deletes the client's ephemeral nodes.
``touch``      an outsider writes the client's ephemeral nodes, with the same data.
``refuse``     the server is busy and refuses the next request.
``uproot``     an outsider deletes a node without children that no session owns.
``wrap``       the sequence numbers of a node reach their end.
``pause``      the process stops for longer than its session lives.
``partition``  the client's network is silent for as long,
``blip``       or only until the client ends the connection.
``slow``       the client's possible steps wait until time passes to the next deadline: a slow
               reply, a late wake-up, a timeout.
``swap``       a reconnect is answered with the id of another session.
``lag``        the client's server becomes stale, on a new connection as stale as possible.
``cancel``     a task is cancelled, or interrupted, at its await.
``close``      the client is closed.
``abandon``    the client ends without a message to the server, which keeps the session.
``crash``      the client's process dies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from zkwire.errors import ThrottledOpError
from zkwire.testing.server.credentials import Credentials
from zkwire.testing.simulation.client import Client, Link, Step
from zkwire.testing.simulation.stage import StaleServer, System
from zkwire.wire.paths import LAST_SEQUENCE

FAULTS: Final = (
    "cut", "unsent", "linger", "expire", "delete", "pause", "partition", "blip", "cancel", "close",
    "crash", "slow", "swap", "lag", "abandon", "uproot", "wrap", "touch", "refuse",
)  # fmt: skip
"""All faults; a `Simulation` gets those that may happen in it."""

_BUSY: Final = ThrottledOpError.code
_SESSION_ID: Final = slice(12, 20)  # in a handshake's answer


def possible(sim: System) -> list[Step]:
    """Every fault that could happen now."""
    found: list[Step] = []
    for client in sim.clients:
        if client.lives:
            found += [Step(kind, client.name) for kind in _of_network(sim, client)]
            found += [Step(kind, client.name) for kind in _of_process(client)]
        found += [Step(kind, client.name) for kind in _of_session(sim, client)]
    for task in sim.tasks:
        if not task.background and task.awaits and not task.client.paused:
            found.append(Step("cancel", task.name))
    empty = _empty(sim)
    if empty is not None:
        found.append(Step("uproot"))
        if sim.tree.nodes[empty].created < LAST_SEQUENCE:
            found.append(Step("wrap"))
    return found


def _of_network(sim: System, client: Client) -> list[str]:
    found: list[str] = []
    link = client.link
    if link is not None and not client.paused:  # a paused client would notice only later
        found.append("cut")
        if link.up:
            found += ["unsent", "linger"]
            found += ["refuse"] * _is_call(link)
        if link.down and not client.session.usable and client.session.session_id:
            found.append("swap")
    if link is not None and link.connection not in sim.stale_servers and not link.connection.ended:
        found.append("lag")
    if client.silent_until is None:
        found += ["partition", "blip"]
        if client.running:
            found.append("slow")
    return found


def _is_call(link: Link) -> bool:
    """Whether a call comes next; handshakes, pings and set_watches are never refused as busy."""
    xid = int.from_bytes(link.up[0][0][4:8], "big", signed=True)
    return link.connection.greeted and not link.connection.ended and xid > 0


def _of_process(client: Client) -> list[str]:
    if client.paused:
        return []
    return ["pause", "crash", "abandon"] + ["close"] * (client.close_at is None)


def _of_session(sim: System, client: Client) -> list[str]:
    """Faults of a session; they are possible even after the client has ended."""
    session_id = client.session.session_id
    if sim.sessions.get(session_id) is None:
        return []
    return ["expire"] + ["delete", "touch"] * bool(sim.tree.ephemerals(session_id))


def _empty(sim: System) -> str | None:
    """A node without children that no session owns."""
    for path, node in sim.tree.nodes.items():
        if node.czxid and not node.owner and not node.children:
            return path
    return None


# --- what they do ---------------------------------------------------------------------------------


def _cut(_sim: System, client: Client, *, server: bool = True) -> None:
    client.lose("cut", server=server)
    client.conclude()


def _unsent(_sim: System, client: Client) -> None:
    if client.link is not None:
        lost = sum(len(frame) for frames in client.link.up for frame in frames)
        client.lose("cut", written=client.link.written - lost)
    client.conclude()


def _expire(sim: System, client: Client) -> None:
    sim.tree_history.remember(sim.tree)
    sim.processor.expire(client.session.session_id, sim.now)
    client.killed = True
    sim.collect()


def _delete(sim: System, client: Client) -> None:
    """Delete one node of each transaction: the lock's node, and not the token beside it."""
    for path in sim.tree.ephemerals(client.session.session_id):
        czxid = sim.tree.nodes[path].czxid
        if czxid not in sim.stolen:
            sim.stolen[czxid] = sim.now
            _remove(sim, path)
    sim.collect()


def _touch(sim: System, client: Client) -> None:
    for path in sim.tree.ephemerals(client.session.session_id):
        _begin(sim)
        data = sim.tree.nodes[path].data
        _, events = sim.tree.set_data(path, data, -1, Credentials())
        sim.processor.state.send_events(events)
    sim.collect()


def _refuse(sim: System, client: Client) -> None:
    link = client.link
    if link is not None:
        refuse, body = sim.processor.refuse, link.take()[4:]
        sim._on_server_of(link, lambda: refuse(link.connection, body, _BUSY, sim.now, close=False))
    sim.collect()


def _begin(sim: System) -> None:
    """Begin a transaction of an outsider."""
    sim.tree_history.remember(sim.tree)
    sim.tree.begin(round(sim.now * 1000))


def _remove(sim: System, path: str) -> None:
    _begin(sim)
    sim.processor.state.send_events(sim.tree.remove(path))


def _uproot(sim: System) -> None:
    path = _empty(sim)
    if path is not None:
        _remove(sim, path)
    sim.collect()


def _wrap(sim: System) -> None:
    path = _empty(sim)
    if path is not None:
        sim.tree.nodes[path].created = LAST_SEQUENCE


def _pause(sim: System, client: Client) -> None:
    client.paused_until = sim.now + sim.long


def _partition(sim: System, client: Client) -> None:
    client.silent_until = sim.now + sim.long


def _blip(sim: System, client: Client) -> None:
    client.silent_until = sim.now + sim.timeout * 3 / 4


def _slow(_sim: System, client: Client) -> None:
    client.stalled = True


def _swap(_sim: System, client: Client) -> None:
    if client.link is not None:
        answer = bytearray(client.link.down[0])
        answer[_SESSION_ID] = bytes(byte ^ 0x5A for byte in answer[_SESSION_ID])
        client.link.down[0] = bytes(answer)


def _lag(sim: System, client: Client) -> None:
    if client.link is not None:
        connection = client.link.connection
        zxid = sim.tree.zxid if connection.greeted else client.session.last_zxid
        sim.stale_servers[connection] = StaleServer(sim.tree_history.oldest(zxid, sim.tree))


def _close(sim: System, client: Client) -> None:
    client.session.close(sim.now)
    client.close_at = sim.now + sim.timeout
    client.call_due()
    client.flush()


def _abandon(_sim: System, client: Client) -> None:
    client.session.closed()
    client.conclude()


def _crash(sim: System, client: Client) -> None:
    client.dead = True
    client.lose("crash")
    client.session.closed()  # otherwise it would connect again
    sim.drop_tasks([task for task in sim.tasks if task.client is client])


CLIENT_FAULTS: Final[dict[str, Callable[[System, Client], None]]] = {
    "cut": _cut, "unsent": _unsent, "linger": partial(_cut, server=False),
    "expire": _expire, "delete": _delete,
    "pause": _pause, "partition": _partition, "blip": _blip, "slow": _slow, "swap": _swap,
    "lag": _lag, "close": _close, "abandon": _abandon, "crash": _crash, "touch": _touch,
    "refuse": _refuse,
}  # fmt: skip
"""The faults of one client, or of its session or network."""

NODE_FAULTS: Final[dict[str, Callable[[System], None]]] = {"uproot": _uproot, "wrap": _wrap}
"""The faults of nodes."""
