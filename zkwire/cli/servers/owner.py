"""What the servers tell of a session: ``cons`` its connection, ``dump`` its ephemeral nodes.

Each server knows its own connections, and every one of them all ephemeral nodes.  Where a word is
not allowed, the admin server is asked.
"""

from __future__ import annotations

import re
import time
from functools import partial

from zkwire.cli.servers import admin
from zkwire.cli.servers.parallel import all_at_once, resolved
from zkwire.cli.servers.target import host_port
from zkwire.cli.servers.words import NOT_ALLOWED, ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ssl import SSLContext
    from typing import Any

    from zkwire.session.hosts import Address

    Answer = str | OSError | dict[str, Any]

WORDS = ("cons", "dump")
# " /127.0.0.1:32976[1](queued=0,recved=4,...,sid=0x1000069eb9e0000,lop=CREA,...,to=10000,...)"
CONNECTION = re.compile(r"^ /?(?P<address>\S+)\[\w+\]\((?P<fields>.*)\)$", re.MULTILINE)
FIELD = re.compile(r"(\w+)=([^,]*)")


class Told:
    """What the servers have told of one session, an id as :func:`zkwire.cli.output.hex_id` says.

    ``ephemerals``: the paths of its nodes, None where no server tells.  ``refused``: the words that
    a server does not allow, ``failed``: why a server was not asked, both by server.
    """

    def __init__(self, session: str) -> None:
        self.session: str = session
        self.connections: list[dict[str, Any]] = []
        self.ephemerals: list[str] | None = None
        self.refused: dict[str, list[str]] = {}
        self.failed: dict[str, str] = {}

    def take(self, server: str, word: str, answer: Answer) -> None:
        """Take a server's answer to a word, or its admin server's."""
        if isinstance(answer, OSError):
            self.failed[server] = answer.strerror or str(answer)
        elif isinstance(answer, dict):
            self._take_from_admin(server, word, answer)
        elif NOT_ALLOWED in answer:
            self.refused.setdefault(server, []).append(word)
        elif word == "cons":
            self.connections += connections(answer, self.session, server)
        elif self.ephemerals is None:
            self.ephemerals = ephemerals(answer, self.session)

    def _take_from_admin(self, server: str, word: str, answer: dict[str, Any]) -> None:
        try:
            if word == "cons":
                known = {connection["address"] for connection in self.connections}
                found = admin.connections(answer, self.session, server)
                # Servers of one host may have one admin server in common, as far as this can see.
                self.connections += [each for each in found if each["address"] not in known]
            elif self.ephemerals is None:
                self.ephemerals = admin.ephemerals(answer, self.session)
        except (AttributeError, KeyError, TypeError, ValueError):  # of a release to come, perhaps
            self.refused.setdefault(server, []).append(word)


def connections(cons: str, session: str, server: str) -> list[dict[str, Any]]:
    """The connections of a session in what ``cons`` says."""
    found: list[dict[str, Any]] = []
    for match in CONNECTION.finditer(cons):
        fields: dict[str, str] = dict(FIELD.findall(match["fields"]))
        if fields.get("sid") == session:
            timeout = fields.get("to", "")
            seconds = int(timeout) / 1000 if timeout.isascii() and timeout.isdigit() else None
            found.append({"server": server, "address": match["address"], "timeout": seconds})
    return found


def ephemerals(dump: str, session: str) -> list[str]:
    """The paths of a session's ephemeral nodes in what ``dump`` says."""
    _, _, text = dump.partition("Sessions with Ephemerals")
    text, _, _ = text.partition("\nConnections dump:")
    _, found, rest = text.partition(f"\n{session}:\n")
    paths: list[str] = []
    for line in rest.splitlines() if found else ():
        if not line.startswith("\t"):
            break
        paths.append(line[1:])
    return sorted(paths)


def ask_all(
    servers: list[tuple[str, int]],
    session: str,
    tls: SSLContext | None,
    seconds: float,
    admin_port: int = admin.PORT,
) -> Told:
    """Ask every server of the list, all at the same time, for as long as that.

    ``admin_port``: where an admin server is asked for what is refused; 0 for nowhere.
    """
    told, until = Told(session), time.monotonic() + seconds
    asked: list[tuple[str, str]] = []
    works: list[partial[Answer]] = []
    for server, found in resolved(servers, until):
        if isinstance(found, str):
            told.failed[host_port(*server)] = found
            continue
        for word in WORDS:
            asked.append((host_port(*server), word))
            works.append(partial(_ask, word, found, until, tls, server[0], admin_port))
    for (name, word), answer in zip(asked, all_at_once(works, until), strict=True):
        told.take(name, word, TimeoutError("no answer in time") if answer is None else answer)
    return told


def _ask(
    word: str,
    addresses: list[Address],
    until: float,
    tls: SSLContext | None,
    name: str,
    admin_port: int,
) -> Answer:
    """The answer of the first address that has one; each has its share of the time."""
    failure = OSError("the name has no address")
    for number, address in enumerate(addresses):
        left = until - time.monotonic()
        try:
            limit = time.monotonic() + left / (len(addresses) - number)
            answer = ask(word, address, limit, tls, name)
        except OSError as error:
            failure = error
            continue
        told = None
        if admin_port and NOT_ALLOWED in answer:
            told = admin.told(word, address, admin_port, until)
        return answer if told is None else told
    return failure
