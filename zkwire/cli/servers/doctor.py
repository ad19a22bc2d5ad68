"""``zkwire doctor``: asks every address of every server, and says what is wrong."""

from __future__ import annotations

import textwrap
import time
from functools import partial

from zkwire.cli.command import Command
from zkwire.cli.exits import REFUSED
from zkwire.cli.servers.checkup import Checkup, examine
from zkwire.cli.servers.hints import for_words
from zkwire.cli.servers.parallel import all_at_once, resolved
from zkwire.cli.servers.target import Target, host_port
from zkwire.session.hosts import parse_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from zkwire.cli.context import Context
    from zkwire.cli.output import Output

WIDTH = 80
CLOSING = 5.0  # seconds beyond the limit, for the last questions and for the session's end
HEADINGS = ("server", "mode", "version", "ping", "session", "nodes")


def _arguments(parser: ArgumentParser) -> None:
    del parser  # it has none of its own


def _doctor(context: Context, _: Namespace) -> int | None:
    hosts, out = context.server, context.output
    servers, chroot = parse_hosts(hosts)
    context.unconnected(hosts).close()  # a wrong option is to be found before anything is asked
    checkups = _examined(context, servers, chroot)
    # A client tries the next address of a name, so one that works will do.
    usable = {checkup.name for checkup in checkups if checkup.problem is None}
    names = {host_port(*server) for server in servers}
    if out.json:
        for checkup in checkups:
            out.record(checkup.fields())
    else:
        _show(out, checkups)
        out.line(f"{len(usable)} of {len(names)} servers can be used")
    return None if usable == names else REFUSED


def _examined(context: Context, servers: list[tuple[str, int]], chroot: str) -> list[Checkup]:
    """A checkup for each address, in the order of the servers; all at the same time."""
    until = time.monotonic() + context.options.connect_timeout
    checkups: list[Checkup] = []
    works: list[partial[Checkup]] = []
    for server, found in resolved(servers, until):
        if isinstance(found, str):
            checkups.append(Checkup(host_port(*server), None, found))
            checkups[-1].hints = for_words(found)
            continue
        for address in found:
            target = Target(server, chroot, address, context)
            late = Checkup(target.name, target.where, "no answer in time")
            checkups.append(late)
            works.append(partial(examine, target, until))
    done = iter(all_at_once(works, until + CLOSING))
    return [checkup if checkup.where is None else next(done) or checkup for checkup in checkups]


def _show(out: Output, checkups: list[Checkup]) -> None:
    """The table, problems below their servers, and hints, each once, at the end."""
    rows = [_row(checkup) for checkup in checkups]
    table = [HEADINGS, *(row for row in rows if len(row) > 1)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    if sum(widths) + 2 * (len(widths) - 1) > WIDTH:
        widths[0] = len(HEADINGS[0])  # longer ones stand on lines of their own
    if len(table) > 1:
        out.line(_aligned(HEADINGS, widths))
    for row, checkup in zip(rows, checkups, strict=True):
        name, *cells = row
        if not cells:
            out.line(name)
        elif len(name) <= widths[0]:
            out.line(_aligned(row, widths))
        else:
            out.line(name)
            out.line(_aligned(("", *cells), widths))
        _paragraph(out, checkup.problem or "", "    ")
    for hint in dict.fromkeys(hint for checkup in checkups for hint in checkup.hints):
        _paragraph(out, f"hint: {hint}", "")


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(checkup: Checkup) -> tuple[str, ...]:
    """The cells of a line; the name alone where nothing could be asked."""
    name = checkup.name
    if checkup.where not in (None, name):
        name = f"{name} ({checkup.where})"
    if checkup.session_timeout is None and checkup.mode is None:
        return (name,)
    ping, session = checkup.ping, checkup.session_timeout
    return (
        name,
        checkup.mode or "-",
        checkup.version or "-",
        "-" if ping is None else f"{ping * 1000:.1f} ms",
        "-" if session is None else f"{session:g} s",
        "-" if checkup.nodes is None else f"{checkup.nodes:,}",
    )


def _paragraph(out: Output, text: str, indent: str) -> None:
    wrapped = textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent or "  ", break_on_hyphens=False
    )
    for line in wrapped:
        out.line(line)


COMMANDS = {
    "doctor": Command(
        _doctor,
        _arguments,
        examples=(
            "zkwire doctor --server zk1,zk2,zk3      # a line for each address",
            "zkwire doctor --json | jq .problem      # an object for each address",
        ),
        details="""\
Each address is connected to, asked for `srvr`, and has a session for a moment.
The status is 0 if each server can be used, else 1.  --connect-timeout is the
time limit for each; they are asked at the same time.""",
    ),
}
