"""``zkwire dump``: a tree as JSON Lines."""

from __future__ import annotations

import os
from contextlib import contextmanager

from zkwire.cli.command import Command
from zkwire.cli.files import whole
from zkwire.cli.transfer import dumps
from zkwire.cli.transfer.place import at, check_place
from zkwire.cli.transfer.progress import Progress
from zkwire.cli.transfer.reading import TreeReader
from zkwire.cli.transfer.window import result
from zkwire.errors import ServerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Generator

    from zkwire.cli.context import Context
    from zkwire.cli.output import Output
    from zkwire.cli.transfer.place import Place

    Write = Callable[[str], object]

STDOUT = "-"


def add_reading(parser: ArgumentParser) -> None:
    """The option of what reads a tree."""
    parser.add_argument(
        "--ephemerals",
        choices=("leave-out", "persistent"),
        default="leave-out",
        help="leave ephemeral nodes out (the default), or take them as persistent ones",
    )


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a path, or zk://HOST:PORT,.../PATH")
    parser.add_argument("file", nargs="?", default=STDOUT, metavar="FILE")
    add_reading(parser)
    parser.add_argument("--stat", action="store_true", help="the stat of each node as well")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")


def _dump(context: Context, asked: Namespace) -> None:
    check_place(asked.path)
    if asked.file != STDOUT and os.path.isfile(asked.file) and not asked.force:
        raise FileExistsError(f"{asked.file} is there already; --force overwrites it")
    with at(context, asked.path) as place, _opened(asked.file, context.output) as write:
        write_dump(context.output, place, write, asked)


def write_dump(output: Output, place: Place, write: Write, asked: Namespace) -> int:
    """Write the tree at the place, a line for each call; returns how many nodes there were."""
    stat, count = getattr(asked, "stat", False), 0
    tree = TreeReader(place, ephemerals=asked.ephemerals == "persistent")
    for node in Progress(output).over(tree, "reading", _total(place)):
        if not count:  # behind the first answer: nothing is written if there is no such tree
            write(dumps.head(place.path))
        write(dumps.line(node, stat=stat))
        count += 1
    if not count:
        raise ValueError(f"{place.path} is ephemeral: see --ephemerals")
    write(dumps.end())
    if tree.left_out:
        output.note(f"{_nodes(tree.left_out)} ephemeral, left out (--ephemerals persistent)")
    if tree.gone:
        output.note(f"{_nodes(tree.gone)} deleted meanwhile, left out")
    if tree.hidden:
        output.note(f"{_nodes(tree.hidden)} shown without the hash of a password in the ACL")
    return count


def _nodes(count: int) -> str:
    return "1 node is" if count == 1 else f"{count} nodes are"


def _total(place: Place) -> int | None:
    """How many nodes there are, about; None where the server does not tell."""
    try:
        counted = result(place.client, lambda ops: ops.get_all_children_number(place.path))
        return int(counted) + 1
    except ServerError:
        return None


@contextmanager
def _opened(name: str, output: Output) -> Generator[Write]:
    """What writes a line: to standard output, or to a file that has its name once it is whole."""
    if name == STDOUT:
        yield output.line
        return
    with whole(name) as file:
        yield lambda text: file.write(text.encode("ascii") + b"\n")


COMMANDS = {
    "dump": Command(
        _dump,
        _arguments,
        examples=(
            "zkwire dump /services services.jsonl    # one line for each node",
            "zkwire dump / | gzip > everything.gz    # to standard output",
        ),
        details="""\
FILE has its name only once it is whole.  The dump is no snapshot: each node is
as it was at some moment while the tree was read.  Containers and nodes with a
time to live look like persistent ones to a client, and so become such.""",
    ),
}
