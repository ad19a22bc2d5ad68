"""The ensemble's configuration: the text of ``/zookeeper/config``, and which changes are accepted.

Decides what ``PrepRequestProcessor`` and ``QuorumMaj`` of 3.8 decide.  It changes only the text:
the embedded ensemble keeps its servers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from zkwire import errors
from zkwire.jute import records as r
from zkwire.testing.server.sessions import Connection
from zkwire.testing.server.state import ServerState
from zkwire.testing.server.tree import Event
from zkwire.wire.model import Perms
from zkwire.wire.paths import CONFIG_NODE

_ANY_VERSION: Final = -1
_FEWEST: Final = 2  # voters: with fewer a server would be standalone (standaloneEnabled)
_OBSERVER: Final = ":observer;"
_SERVER: Final = re.compile(
    r"(?P<host>[^;]+?):(?P<quorum>\d+):(?P<election>\d+)(?::(?P<role>participant|observer))?"
    r"(?:;(?:(?P<client_host>.+):)?(?P<client>\d+))?"
)

Members = dict[int, str]


def member_line(host: str, client_port: int) -> str:
    """One server's part of the text; the embedded server does not use the other ports."""
    return f"{host}:2888:3888:participant;{host}:{client_port}"


def text_of(members: Members, version: int) -> bytes:
    """QuorumMaj.toString."""
    lines = [f"server.{number}={members[number]}" for number in sorted(members)]
    return "\n".join([*lines, f"version={version:x}"]).encode()


def parse(text: bytes) -> tuple[Members, int]:
    """The members and the version in a text; {} and 0 if they are missing."""
    members: Members = {}
    version = 0
    for line in text.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        if key == "version":
            version = _number(value, 16)
        elif key.startswith("server."):
            members[_number(key.removeprefix("server."))] = value
    return members, version


def reconfig(
    state: ServerState, connection: Connection, request: r.ReconfigRequest
) -> tuple[bytes, list[Event]]:
    """Within a transaction: the reply with the new text, and its event; or the first refusal."""
    if not state.rules.reconfig:
        raise errors.ReconfigDisabledError
    if state.members == 1:
        raise errors.UnimplementedError
    node = state.tree.node(CONFIG_NODE)
    members, version = parse(node.data or b"")
    if request.cur_config_id not in {_ANY_VERSION, version}:
        raise errors.BadVersionError
    if request.new_members is not None:
        members = _servers(re.split(r"[,\n]", request.new_members))
    else:
        for leaving in _split(request.leaving_servers):
            members.pop(_number(leaving), None)
        members.update(_servers(_split(request.joining_servers)))
    voters = {number for number, spec in members.items() if _OBSERVER not in spec}
    if len(voters) < _FEWEST:
        raise errors.BadArgumentsError
    if 2 * len(voters & set(range(1, state.members + 1))) <= len(voters):
        raise errors.NewConfigNoQuorumError
    connection.credentials.require(node.acl, Perms.WRITE)
    events = state.tree.configure(text_of(members, state.tree.zxid))
    return r.GetDataResponse.pack(node.data, node.stat()), events


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _number(text: str, base: int = 10) -> int:
    try:
        return int(text if text.replace("-", "").isalnum() else "", base)
    except ValueError:
        raise errors.MarshallingError from None  # a NumberFormatException is no KeeperException


def _servers(parts: Iterable[str]) -> Members:
    """The members in ``server.N=host:port:port[:role];[host:]port``, with defaults filled in."""
    found: Members = {}
    for part in filter(None, map(str.strip, parts)):
        key, _, value = part.partition("=")
        match = _SERVER.fullmatch(value.strip())
        if match is None or match["client"] is None:
            raise errors.BadArgumentsError
        number = _number(key.strip().removeprefix("server."))
        role = match["role"] or "participant"
        client_host = match["client_host"] or "0.0.0.0"
        found[number] = (
            f"{match['host']}:{match['quorum']}:{match['election']}:{role}"
            f";{client_host}:{match['client']}"
        )
    return found
