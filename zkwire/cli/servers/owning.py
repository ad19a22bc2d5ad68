"""``zkwire who``: which session owns an ephemeral node, where it comes from, what else it owns."""

from __future__ import annotations

import re
import textwrap

from zkwire.cli.arguments import wrong_word
from zkwire.cli.command import Command, UsageError
from zkwire.cli.exits import REFUSED
from zkwire.cli.output import hex_id
from zkwire.cli.servers.admin import PORT
from zkwire.cli.servers.owner import Told, ask_all
from zkwire.cli.servers.words import SETTING
from zkwire.cli.transfer.window import Window
from zkwire.errors import NoNodeError
from zkwire.session.hosts import parse_hosts
from zkwire.wire.paths import strip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from zkwire.cli.context import Context
    from zkwire.cli.output import Output

SESSION = re.compile(r"0x[0-9a-fA-F]{1,16}")
WIDTH = 80


def _arguments(parser: ArgumentParser) -> None:
    does = "the path of an ephemeral node, or a session's id such as 0x1000069eb9e0000"
    parser.add_argument("what", metavar="PATH|SESSION", help=does)
    does = "look at the stat of every node where no server tells what a session owns"
    parser.add_argument("--search", action="store_true", help=does)
    does = "where the admin server is, for what a server refuses to say (8080; 0: ask none)"
    parser.add_argument("--admin-port", type=_port, default=PORT, metavar="PORT", help=does)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise wrong_word(f"{text!r} is no port")
    return int(text)


def _who(context: Context, asked: Namespace) -> int | None:
    out, path = context.output, None
    if SESSION.fullmatch(asked.what):
        owner = int(asked.what, 16)
    elif asked.what.startswith("0x"):
        wants = "0x and 1 to 16 hexadecimal digits; a path begins with /"
        raise UsageError(f"{asked.what!r} is no session id, {wants}")
    else:
        path = context.path(asked.what)
        stat = context.client.exists(path)
        if stat is None:
            raise NoNodeError(op="who", path=path)
        owner = stat.ephemeral_owner
    if not owner:
        _write_unowned(out, path)
        return REFUSED
    servers, chroot = parse_hosts(context.server)
    limit = context.options.connect_timeout
    told = ask_all(servers, hex_id(owner), context.tls, limit, asked.admin_port)
    if told.ephemerals is not None:
        told.ephemerals = sorted(strip(chroot, node) for node in told.ephemerals)
    elif asked.search:
        told.ephemerals = _searched(context, told.session)
    if out.json:
        out.record({"path": path, **vars(told)})
    else:
        _write(out, path, told)
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


def _write_unowned(out: Output, path: str | None) -> None:
    if out.json:
        out.record({"path": path, "session": None})
    else:
        out.line(f"no session owns {path}: it is not ephemeral")


def _write(out: Output, path: str | None, told: Told) -> None:
    out.line(f"{path} belongs to session {told.session}" if path else f"session {told.session}")
    for connection in told.connections:
        seconds = connection["timeout"]
        limit = "" if seconds is None else f", timeout {seconds:g} s"
        out.line(f"connected from {connection['address']} to {connection['server']}{limit}")
    unsure = told.failed or any("cons" in words for words in told.refused.values())
    if not told.connections and not unsure:
        out.line("connected to none of these servers")
    if told.ephemerals is not None:
        count = len(told.ephemerals)
        out.line(f"owns {count} ephemeral node{'' if count == 1 else 's'}")
        for node in told.ephemerals:
            out.line(f"  {node}")
    _note(out, told)


def _note(out: Output, told: Told) -> None:
    """What has not been told, and what would change that."""
    for server, words in told.refused.items():
        text = (
            f"{server} does not allow {' and '.join(words)}: {SETTING}=srvr,cons,dump in its "
            "configuration would; and no admin server answers (--admin-port)"
        )
        for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False):
            out.note(line)
    for server, why in told.failed.items():
        out.note(f"{server} was not asked: {why}")
    if told.ephemerals is None:
        out.note("--search finds what else the session owns, by a look at every node")


COMMANDS = {
    "who": Command(
        _who,
        _arguments,
        examples=(
            "zkwire who /services/web-1         # its session, and where that comes from",
            "zkwire who 0x1000069eb9e0000       # what a session owns",
        ),
        details="""\
The owner is in the node's stat.  For the rest each server of --server is asked
for `cons` and `dump`, which servers do not allow unless their configuration
says so: 4lw.commands.whitelist=srvr,cons,dump.  What is refused is asked of
the admin server of that host: HTTP, port 8080.""",
    ),
}
