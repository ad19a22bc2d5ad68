"""The commands that read nodes and change nothing."""

from __future__ import annotations

from zkwire.cli.command import Command
from zkwire.cli.output import stat_fields, stat_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from zkwire.cli.context import Context


def _ls_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", default=".", metavar="PATH")
    parser.add_argument(
        "-s", dest="stat", action="store_true", help="the node's stat after the list"
    )
    parser.add_argument("--count", action="store_true", help="only the number of children")


def _ls(context: Context, asked: Namespace) -> None:
    out, path = context.output, context.path(asked.path)
    names, stat = context.client.get_children_with_stat(path)
    if out.json:
        listed = {"count": len(names)} if asked.count else {"children": sorted(names)}
        shown = {"stat": stat_fields(stat)} if asked.stat else {}
        out.record({"path": path, **listed, **shown})
        return
    for line in [str(len(names))] if asked.count else sorted(names):
        out.line(line)
    for line in stat_lines(stat) if asked.stat else ():
        out.line(line)


COMMANDS = {
    "ls": Command(
        _ls,
        _ls_arguments,
        examples=(
            "zkwire ls /services          # a name on each line",
            "zkwire ls --count /services  # how many there are",
        ),
    ),
}
