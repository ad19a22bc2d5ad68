"""``zkwire spy``: a proxy between clients and servers that shows, keeps and breaks what passes."""

from __future__ import annotations

import os
from functools import partial

from zkwire.cli.arguments import TLS, add_options, duration
from zkwire.cli.command import Command, UsageError
from zkwire.cli.exits import FAILED, with_status
from zkwire.cli.spy.details import Privacy
from zkwire.cli.spy.faults import KINDS, Faults
from zkwire.cli.spy.filters import Filter
from zkwire.cli.spy.outputs import FORMATS, Outputs, Pair
from zkwire.cli.spy.stats import GROUPS, Stats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator
    from typing import Any

    from zkwire.cli.context import Context
    from zkwire.cli.spy.tap import Tap


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "upstream", nargs="?", metavar="UPSTREAM", help="HOST:PORT[,...] of the servers"
    )
    add = parser.add_argument_group("the proxy").add_argument
    does = "where to listen (a free port of 127.0.0.1); several servers get ports from PORT on"
    add("-l", "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help=does)
    add("--fault", action="append", default=[], metavar="SPEC", help=f"do this, too: {KINDS}")
    add("-n", "--count", type=int, metavar="COUNT", help="end behind so many shown messages")
    add("--for", dest="seconds", type=duration, metavar="TIME", help="end after this time")
    does = "show a recording (jsonl) or a capture (pcap, pcapng) instead; - is standard input"
    add("--read", metavar="FILE", help=does)
    add_options(parser, "TLS to the servers", TLS)
    add = parser.add_argument_group("TLS to the clients").add_argument
    add("--tls-cert", metavar="FILE", help="the certificate that clients are shown (PEM)")
    add("--tls-key", metavar="FILE", help="its private key, if it is in another file")
    add = parser.add_argument_group("what is shown").add_argument
    add("--pings", action="store_true", help="pings, too")
    does = "only these operations: create,setData, also open and close"
    add("--op", action="append", default=[], metavar="LIST", help=does)
    add("--path", metavar="GLOB", help="only messages about such a path; * takes / as well")
    add("--session", metavar="HEX", help="only this session")
    add("--errors-only", action="store_true", help="only replies that say no, and bad bytes")
    does = "of nodes' data: nothing, its size (default), its text or its bytes"
    add("--data", choices=("none", "size", "text", "hex"), default="size", help=does)
    add("--max-data", type=int, default=64, metavar="BYTES", help="at most so much of it (64)")
    does = "credentials, tokens and the passwords of sessions, which are hidden else"
    add("--show-secrets", action="store_true", help=does)
    add("--hex", action="store_true", help="a table of its bytes below each message")
    add = parser.add_argument_group("how").add_argument
    does = "text (default), jsonl, mermaid, svg, html, or none; several with -o"
    add("-f", "--format", dest="pairs", action=Pair, choices=FORMATS, metavar="FORMAT", help=does)
    does = "write the format before it to a file; without -f its ending says the format"
    add("-o", "--output", dest="pairs", action=Pair, metavar="FILE", help=does)
    add("--stats", action="store_true", help="at the end: counts, bytes and times of answers")
    add("--by", choices=GROUPS, default="op", help="what --stats groups by (op)")


def _spy(context: Context, asked: Namespace) -> int:
    faults, shown = Faults(asked.fault), Filter(asked)
    _check(asked)
    listen = _listen(asked.listen)
    upstreams, chroot = _upstreams(asked)
    pairs = asked.pairs or [["jsonl" if context.output.json else "text", None]]
    try:
        open_tap = None if asked.read else _tapping(context, asked)
        outputs = Outputs(pairs, context.output, tables=asked.hex)
    except OSError as error:
        raise with_status(error, FAILED) if asked.program else error from None
    rows = asked.hex or "html" in outputs.formats
    privacy = Privacy(asked.data, asked.max_data, asked.show_secrets)
    stats = Stats(asked.by) if asked.stats else None
    if open_tap is None:
        from zkwire.cli.spy.replay import replay

        return replay(asked, shown, outputs, stats, partial(_captured, context, privacy, rows))
    from zkwire.cli.spy.run import Run

    run = Run(context, asked, shown, outputs, stats, open_tap)
    return run.run(upstreams, chroot, faults, listen, privacy, rows=rows)


def _captured(
    context: Context, privacy: Privacy, rows: bool, data: bytes, source: str
) -> Iterator[dict[str, Any]]:
    """The records of a capture of packets."""
    from zkwire.cli.spy.capture import read
    from zkwire.cli.spy.records import Recorder

    capture = read(data, source)
    for note in capture.notes:
        context.output.note(note)
    return map(Recorder(capture.start, privacy, rows=rows).record, capture.events)


def _check(asked: Namespace) -> None:
    if (asked.upstream is None) == (asked.read is None):
        raise UsageError("UPSTREAM or --read FILE (see zkwire spy --help)")
    if asked.read and (asked.program or asked.fault):
        raise UsageError("--read shows a recording: there is nothing to run or to break")
    pairs: list[list[str | None]] = asked.pairs or []
    files = [file for _, file in pairs if file]
    if asked.read and os.path.realpath(asked.read) in map(os.path.realpath, files):
        raise UsageError(f"{asked.read} cannot be read and written at once")
    if asked.tls_key and not asked.tls_cert:
        raise UsageError("--tls-key is the key of a --tls-cert")
    if asked.count is not None and asked.count < 1:
        raise UsageError("--count takes a number from 1 on")
    if asked.max_data < 0:
        raise UsageError("--max-data takes a number from 0 on")


def _tapping(context: Context, asked: Namespace) -> Callable[..., Tap]:
    """What opens the tap, once it is known where: a plain one, or one that speaks TLS."""
    if context.tls is None and not asked.tls_cert:
        from zkwire.cli.spy.tap import Tap

        return Tap
    from zkwire.cli.spy.secured import SecuredTap, shown_to_clients

    clients = shown_to_clients(asked.tls_cert, asked.tls_key) if asked.tls_cert else None
    report = context.output.note
    return partial(SecuredTap, servers=context.tls, clients=clients, report=report)


def _upstreams(asked: Namespace) -> tuple[list[str], str]:
    """The addresses of the servers, and the chroot, which is for the client alone."""
    if asked.upstream is None:
        return [], ""
    from zkwire.session.hosts import parse_hosts

    hosts, chroot = parse_hosts(asked.upstream)
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts], chroot


def _listen(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise UsageError(f"--listen {text}: HOST:PORT, such as 127.0.0.1:2182")
    return host.strip("[]"), int(port)


COMMANDS = {
    "spy": Command(
        _spy,
        _arguments,
        examples=(
            "zkwire spy 127.0.0.1:2181                 # then point a client at its address",
            "zkwire spy 127.0.0.1:2181 -- myclient {}  # run one through it",
            "zkwire spy --fault cut-after:create HOST:PORT -- myclient {}",
            "zkwire spy -f none --stats --by path HOST:PORT --for 1m",
            "zkwire spy -o run.jsonl HOST:PORT; zkwire spy --read run.jsonl -f svg",
            "tcpdump -w zk.pcap port 2181; zkwire spy --read zk.pcap --stats",
        ),
        details="The words behind -- are a program that is run with {} replaced by the address of\n"
        "the spy; its exit status is the spy's.  Bytes pass untouched, whatever is shown.\n"
        "Ctrl-C ends it, and drawings and statistics are written.  For `create`,\n"
        "`getChildren` and `setWatches` all kinds of them count.",
        in_shell=False,
        connects=False,
        runs_program=True,
    ),
}
