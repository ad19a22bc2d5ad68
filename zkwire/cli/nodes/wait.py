"""``zkwire wait``: it ends when a node is as it shall be."""

from __future__ import annotations

import re
from time import monotonic

from zkwire.cli.arguments import duration, wrong_word
from zkwire.cli.command import Command
from zkwire.cli.exits import DONE, TIMED_OUT
from zkwire.cli.output import data_fields, stat_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from zkwire import SeenChildren, SeenData
    from zkwire.cli.context import Context


def _pattern(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise wrong_word(f"{text!r} is no regular expression: {error}") from None


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise wrong_word(f"{text!r} is no number of children")
    return int(text)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH")
    until = parser.add_mutually_exclusive_group()
    until.add_argument("--exists", action="store_true", help="until the node exists (the default)")
    until.add_argument("--gone", action="store_true", help="until the node does not exist")
    does = "until its data match: anywhere, or from ^ to $"
    until.add_argument("--data", type=_pattern, metavar="REGEX", help=does)
    does = "until it has so many children or more; 0: none"
    until.add_argument("--children", type=_count, metavar="N", help=does)
    does = "at most so long, then exit with 124; 0 looks once"
    parser.add_argument("--timeout", type=duration, metavar="DUR", help=does)


def _fits(asked: Namespace, seen: SeenData | SeenChildren) -> bool:
    """Whether the state is the one that is waited for."""
    if seen.stat is None:
        return bool(asked.gone)
    if asked.children is not None:
        count = seen.stat.num_children
        return count >= asked.children if asked.children else count == 0
    if asked.data is not None:
        return asked.data.search(getattr(seen, "data", None) or b"") is not None
    return not asked.gone


def _wait(context: Context, asked: Namespace) -> int:
    path, patience = context.path(asked.path), asked.timeout
    until = None if patience is None else monotonic() + patience
    connecting = context.options.connect_timeout
    with context.supervisor() as supervisor:
        context.await_session(supervisor, min(connecting, patience or connecting))
        watch = supervisor.watch_data if asked.children is None else supervisor.watch_children
        with watch(path) as states:
            first = True
            while True:
                left = None if until is None else max(0.0, until - monotonic())
                # The first state is there as soon as the server answers: 0 seconds see it, too.
                seen = states.next(connecting if first and not left and until else left)
                first = False
                if seen is None:
                    return TIMED_OUT
                if _fits(asked, seen):
                    _tell(context, path, seen)
                    return DONE


def _tell(context: Context, path: str, seen: SeenData | SeenChildren) -> None:
    if context.output.json:
        data = getattr(seen, "data", None)
        shown = {"data": data_fields(data), "stat": stat_fields(seen.stat)} if seen.stat else {}
        context.output.record({"path": path, "exists": seen.stat is not None, **shown})


COMMANDS = {
    "wait": Command(
        _wait,
        _arguments,
        examples=(
            "zkwire wait /ready --timeout 2m        # before a program that needs it",
            "zkwire wait /workers --children 3      # until three are there",
            "zkwire wait /config --data '\"v\": *2'   # until the data match",
        ),
        details="It writes nothing (with --json the node), and exits with 0, or with 124 when\n"
        "the time is over. A lost connection and an expired session only take time;\n"
        "the first connection has to come within --connect-timeout.",
    ),
}
