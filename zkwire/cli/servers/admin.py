"""What the admin server tells of sessions: commands over HTTP, on a port of its own.

It comes with servers since 3.5, on port 8080 unless ``admin.serverPort`` says another one, and asks
for no whitelist.  Here it is only asked for what a four-letter word was refused.
"""

from __future__ import annotations

import json
import time

from zkwire.cli.output import hex_id
from zkwire.cli.servers.words import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zkwire.session.hosts import Address

PORT = 8080
# The command that tells what a word does.
COMMANDS = {"cons": "connections", "dump": "dump"}
_SECONDS = 2.0  # a port behind a firewall may answer nothing at all


def told(word: str, address: Address, port: int, until: float) -> dict[str, Any] | None:
    """What the admin server of that address tells in the place of a word; None if none does."""
    family, (host, _, *rest) = address
    request = f"GET /commands/{COMMANDS[word]} HTTP/1.0\r\nHost: {host}\r\n\r\n"
    try:
        answer = ask(
            request, (family, (host, port, *rest)), min(until, time.monotonic() + _SECONDS)
        )
    except OSError:
        return None
    head, _, body = answer.partition("\r\n\r\n")
    try:
        found: Any = json.loads(body) if head.split()[1:2] == ["200"] else None
        right = found["command"] == COMMANDS[word] and found["error"] is None
    except (LookupError, TypeError, ValueError, RecursionError):  # of another service
        return None
    return found if right else None


def connections(found: dict[str, Any], session: str, server: str) -> list[dict[str, Any]]:
    """The connections of a session in the answer to ``connections``."""
    return [
        {
            "server": server,
            "address": str(each.get("remote_socket_address")),
            "timeout": each.get("session_timeout", 0) / 1000,
        }
        for each in [*found["connections"], *found.get("secure_connections", ())]
        if hex_id(each.get("session_id", 0)) == session
    ]


def ephemerals(found: dict[str, Any], session: str) -> list[str]:
    """The paths of a session's ephemeral nodes in the answer to ``dump``."""
    for owner, paths in found["session_id_to_ephemeral_paths"].items():
        if hex_id(int(owner)) == session:
            return sorted(paths)
    return []
