"""``zkwire who``: which session owns an ephemeral node, where it comes from, what else it owns."""

from __future__ import annotations

import json
import re
import time
from argparse import Namespace
from functools import partial
from itertools import takewhile
from typing import Any

from zkwire.cli.command import Command, UsageError, arg, flag, integer
from zkwire.cli.context import Context
from zkwire.cli.output import REFUSED, Output, hex_id, host_port
from zkwire.cli.servers.asking import NOT_ALLOWED, SETTING, all_at_once, ask, resolved
from zkwire.cli.transfer.tree import Window
from zkwire.errors import NoNodeError
from zkwire.session import hosts as known
from zkwire.session.hosts import parse_hosts
from zkwire.wire.paths import strip

Answer = str | OSError | dict[str, Any]

SESSION = re.compile(r"0x[0-9a-fA-F]{1,16}")


def _who(context: Context, asked: Namespace) -> int | None:
    """
    zkwire who /services/web-1         # its session, and where that comes from
    zkwire who 0x1000069eb9e0000       # what a session owns

    The owner is in the node's stat.  For the rest each server of --server is asked
    for `cons` and `dump`, which servers do not allow unless their configuration
    says so: 4lw.commands.whitelist=srvr,cons,dump.  What is refused is asked of
    the admin server of that host: HTTP, port 8080.
    """
    out, path = context.output, None
    if SESSION.fullmatch(asked.what):
        owner = int(asked.what, 16)
    elif asked.what.startswith("0x"):
        wants = "0x and 1 to 16 hexadecimal digits; a path begins with /"
        raise UsageError(f"{asked.what!r} is not a session id, {wants}")
    else:
        path = context.path(asked.what)
        stat = context.client.exists(path)
        if stat is None:
            raise NoNodeError(op="who", path=path)
        owner = stat.ephemeral_owner
    if not owner:
        words = f"no session owns {path}: it is not ephemeral"
        out.result({"path": path, "session": None}, [words])
        return REFUSED
    servers, chroot = parse_hosts(context.server)
    limit = context.options.connect_timeout
    told = ask_all(servers, hex_id(owner), context.tls, limit, asked.admin_port)
    if told.ephemerals is not None:
        told.ephemerals = sorted(strip(chroot, node) for node in told.ephemerals)
    elif asked.search:
        told.ephemerals = _searched(context, told.session)
    out.result({"path": path, **vars(told)}, _lines(path, told))
    if not out.json:
        _note(out, told)
    return None if path or told.connections or told.ephemerals else REFUSED


def _searched(context: Context, session: str) -> list[str]:
    """The nodes that this session owns, by the stat of each node."""
    window = Window(context.client, lambda operations, path: [operations.exists(path)])
    found = (
        path
        for path, (stat,) in window.each(context.client.walk("/"))
        if stat is not None and hex_id(getattr(stat, "ephemeral_owner", 0)) == session
    )
    return sorted(found)


def _lines(path: str | None, told: Told) -> list[str]:
    lines = [f"{path} belongs to session {told.session}" if path else f"session {told.session}"]
    for connection in told.connections:
        seconds = connection["timeout"]
        limit = "" if seconds is None else f", timeout {seconds:g} s"
        lines.append(f"connected from {connection['address']} to {connection['server']}{limit}")
    unsure = told.failed or any("cons" in words for words in told.refused.values())
    if not told.connections and not unsure:
        lines.append("connected to none of these servers")
    if told.ephemerals is not None:
        count = len(told.ephemerals)
        lines.append(f"owns {count} ephemeral node{'' if count == 1 else 's'}")
        lines += [f"  {node}" for node in told.ephemerals]
    return lines


def _note(out: Output, told: Told) -> None:
    """What has not been told, and what would change that."""
    for server, words in told.refused.items():
        out.note(f"{server} does not allow {' and '.join(words)}; to change that, set")
        out.note(f"  {SETTING}=srvr,cons,dump; no admin server answers (--admin-port)")
    for server, why in told.failed.items():
        out.note(f"{server} was not asked: {why}")
    if told.ephemerals is None:
        out.note("--search finds what else the session owns, by a look at every node")


# --- admin ----------------------------------------------------------------------------------------
# What the admin server tells of sessions: commands over HTTP, on a port of its own.
#
# It comes with servers since 3.5, on port 8080 unless ``admin.serverPort`` says another one, and
# asks for no whitelist.  Here it is only asked for what a four-letter word was refused.

ADMIN_PORT = 8080
# The command that tells what a word does.
PAGES = {"cons": "connections", "dump": "dump"}
_SECONDS = 2.0  # a port behind a firewall may answer nothing at all


def ask_admin(word: str, address: known.Address, port: int, until: float) -> dict[str, Any] | None:
    """What the admin server of that address tells in the place of a word; None if none does."""
    family, (host, _, *rest) = address
    request = f"GET /commands/{PAGES[word]} HTTP/1.0\r\nHost: {host}\r\n\r\n"
    until = min(until, time.monotonic() + _SECONDS)
    try:
        head, _, body = ask(request, (family, (host, port, *rest)), until).partition("\r\n\r\n")
        found: Any = json.loads(body) if head.split()[1:2] == ["200"] else None
        right = found["command"] == PAGES[word] and found["error"] is None
    except (OSError, LookupError, TypeError, ValueError, RecursionError):  # of another service
        return None
    return found if right else None


def admin_connections(found: dict[str, Any], session: str, server: str) -> list[dict[str, Any]]:
    """The connections of a session in the answer to ``connections``."""
    each = [*found["connections"], *found.get("secure_connections", ())]
    mine = [one for one in each if hex_id(one.get("session_id", 0)) == session]
    return [
        {"server": server, "address": str(one.get("remote_socket_address")),
         "timeout": one.get("session_timeout", 0) / 1000}
        for one in mine
    ]  # fmt: skip


def admin_ephemerals(found: dict[str, Any], session: str) -> list[str]:
    """The paths of a session's ephemeral nodes in the answer to ``dump``."""
    owners = found["session_id_to_ephemeral_paths"].items()
    return sorted(
        path for owner, paths in owners if hex_id(int(owner)) == session for path in paths
    )


# --- owner ----------------------------------------------------------------------------------------
# What the servers tell of a session: ``cons`` its connection, ``dump`` its ephemeral nodes.
#
# Each server knows its own connections, and every one of them all ephemeral nodes.  Where a word is
# not allowed, the admin server is asked.

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
        try:
            if isinstance(answer, OSError):
                self.failed[server] = answer.strerror or str(answer)
            elif isinstance(answer, str) and NOT_ALLOWED in answer:
                self.refused.setdefault(server, []).append(word)
            elif word == "cons":
                read: Any = connections if isinstance(answer, str) else admin_connections
                before = {connection["address"] for connection in self.connections}
                found = read(answer, self.session, server)
                # Servers of one host may have one admin server in common, as far as this can see.
                self.connections += [each for each in found if each["address"] not in before]
            elif self.ephemerals is None:
                read = ephemerals if isinstance(answer, str) else admin_ephemerals
                self.ephemerals = read(answer, self.session)
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
    _, _, rest = text.partition(f"\n{session}:\n")
    return sorted(line[1:] for line in takewhile(lambda line: line[:1] == "\t", rest.splitlines()))


def ask_all(
    servers: list[tuple[str, int]], session: str, tls: Any, seconds: float, admin_port: int
) -> Told:
    """Ask every server of the list, all at the same time, for as long as that.

    ``admin_port``: where an admin server is asked for what is refused; 0 for nowhere.
    """
    told, until = Told(session), time.monotonic() + seconds
    works: dict[tuple[str, str], partial[Answer]] = {}
    for server, found in resolved(servers, until):
        name = host_port(*server)
        if isinstance(found, str):
            told.failed[name] = found
            continue
        for word in WORDS:
            works[name, word] = partial(_ask, word, found, until, tls, server[0], admin_port)
    answers = all_at_once(list(works.values()), until)
    for (name, word), answer in zip(works, answers, strict=True):
        told.take(name, word, TimeoutError("no answer in time") if answer is None else answer)
    return told


def _ask(
    word: str, addresses: list[known.Address], until: float, tls: Any, name: str, admin_port: int
) -> Answer:
    """The answer of the first address that has one; each has its share of the time."""
    failure = OSError("the name has no address")
    for number, address in enumerate(addresses):
        now = time.monotonic()
        try:
            answer = ask(word, address, now + (until - now) / (len(addresses) - number), tls, name)
        except OSError as error:
            failure = error
            continue
        if admin_port and NOT_ALLOWED in answer:
            return ask_admin(word, address, admin_port, until) or answer
        return answer
    return failure


# fmt: off
COMMANDS = {
    "who": Command(_who,
        arg("what", metavar="PATH|SESSION",
            help="the path of an ephemeral node, or a session's id such as 0x1000069eb9e0000"),
        flag("--search",
             "look at the stat of every node where no server tells what a session owns"),
        arg("--admin-port", type=integer("port", 0, 65535), default=ADMIN_PORT, metavar="PORT",
            help="where the admin server is, for what a server refuses to say (8080; 0: ask none)"),
    ),
}
