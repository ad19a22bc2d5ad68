"""``zkwire load`` and ``zkwire copy``: they make one tree equal to another."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager

from zkwire.cli.command import Command
from zkwire.cli.context import standard_input
from zkwire.cli.exits import BEHIND, DONE
from zkwire.cli.transfer.dump import STDOUT, add_reading, write_dump
from zkwire.cli.transfer.dumps import DumpFile
from zkwire.cli.transfer.node import below
from zkwire.cli.transfer.numbers import Numbers
from zkwire.cli.transfer.place import at, check_place
from zkwire.cli.transfer.plan import ACLS, Plan
from zkwire.cli.transfer.progress import Progress
from zkwire.cli.transfer.writing import Writer
from zkwire.errors import ZooKeeperError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Generator
    from typing import IO

    from zkwire.cli.context import Context
    from zkwire.cli.output import Output
    from zkwire.cli.transfer.place import Place


def _add_writing(parser: ArgumentParser) -> None:
    does = "the nodes' own access lists (keep), or one for all"
    parser.add_argument("--acl", choices=ACLS, default="keep", help=does)
    does = "overwrite nodes that differ"
    parser.add_argument("--force", action="store_true", help=does)
    does = "delete what the source lacks, but ephemeral nodes"
    parser.add_argument("--delete", action="store_true", help=does)
    does = "change nothing, and list what would be changed"
    parser.add_argument("--dry-run", action="store_true", help=does)


def _load_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what dump has written; - is standard input")
    parser.add_argument("path", nargs="?", metavar="PATH", help="else where it was read from")
    _add_writing(parser)


def _copy_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="a path, or zk://HOST:PORT,.../PATH")
    parser.add_argument("target", metavar="TARGET", help="the same")
    add_reading(parser)
    _add_writing(parser)


def _load(context: Context, asked: Namespace) -> int:
    with _readable(asked.file) as file:
        dump = DumpFile(file, asked.file)
        with at(context, check_place(asked.path or dump.root)) as place:
            return _make_equal(context.output, dump, place, asked)


def _copy(context: Context, asked: Namespace) -> int:
    check_place(asked.source)
    check_place(asked.target)
    asked.stat = True  # where the source counts from
    with tempfile.TemporaryFile() as file, at(context, asked.target) as target:
        with at(context, asked.source) as source:
            if target.is_within(source) or (asked.delete and source.is_within(target)):
                raise ValueError(f"{asked.source} and {asked.target} overlap")
            write_dump(
                context.output, source, lambda line: file.write(line.encode() + b"\n"), asked
            )
        return _make_equal(context.output, DumpFile(file, asked.source), target, asked)


def _make_equal(output: Output, dump: DumpFile, place: Place, asked: Namespace) -> int:
    plan, progress, paths = Plan(place, asked.acl), Progress(output), set[str]()
    numbers = Numbers(place)
    for node in progress.over(dump, "checking"):  # all of it before anything else
        paths.add(node.path)
        numbers.add(node)
    plan.look(progress.over(dump, "comparing", len(paths)))
    if asked.delete:
        plan.find_extra(paths)
    if asked.dry_run:
        _list(output, dump, plan)
        plan.check_allowed(force=asked.force)
        return DONE
    plan.check_allowed(force=asked.force)
    writer = Writer(plan)
    try:
        writer.write(progress.over(dump, "writing", plan.total))
        left = writer.delete()
        numbers.bring_forward()
    except ZooKeeperError as error:
        error.add_note(f"done before: {_counts(writer.done)}")
        raise
    for path in left:
        output.note(f"{below(place.path, path)} has children by now and was not deleted")
    done = {**writer.done, "equal": plan.equal}
    if output.json:
        behind = {"behind": list(numbers.left_behind)} if numbers.left_behind else {}
        output.record({"path": place.path, **done, **behind})
    else:
        output.line(_counts(done))
    for words in list(numbers.left_behind.values())[:MOST_SHOWN]:
        output.note(words)
    if len(numbers.left_behind) > MOST_SHOWN:
        output.note(f"... and {len(numbers.left_behind) - MOST_SHOWN} more")
    return BEHIND if numbers.left_behind else DONE


def _counts(done: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in done.items())


def _list(output: Output, dump: DumpFile, plan: Plan) -> None:
    """A line for each change that the plan has."""
    changes = [("create", path, "") for path in (n.path for n in dump) if path in plan.missing]
    changes += [("change", path, str(how)) for path, how in plan.different.items()]
    changes += [("delete", path, "") for path in plan.extra]
    for change, path, how in changes:
        full = below(plan.place.path, path)
        if output.json:
            output.record({"change": change, "path": full, "differs": how or None})
        else:
            output.line(f"{change} {full}" + (f" ({how})" if how else ""))


@contextmanager
def _readable(name: str) -> Generator[IO[bytes]]:
    """A file that can be read again and again; what cannot, such as a pipe, is copied."""
    if name != STDOUT:
        with open(name, "rb") as file:
            if file.seekable():
                yield file
                return
            with tempfile.TemporaryFile() as copy:
                shutil.copyfileobj(file, copy)
                yield copy
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(standard_input().buffer, copy)
        yield copy


MOST_SHOWN = 10  # nodes whose counter is behind

AGAIN = """\
It looks at the whole target first: if a node there differs, it changes nothing
and exits with 1, unless --force is given.  Equal nodes are skipped, so if it
was interrupted (status 4 or 5, a signal), run it again: it does what is left.
Numbers of sequential nodes go on behind the names that there are; the status
is 6 where that would take more than a million."""

COMMANDS = {
    "load": Command(
        _load,
        _load_arguments,
        examples=(
            "zkwire load services.jsonl              # to where it was read from",
            "zkwire load services.jsonl /restored    # or elsewhere",
        ),
        details=AGAIN,
    ),
    "copy": Command(
        _copy,
        _copy_arguments,
        examples=(
            "zkwire copy /services /services-old     # a tree and its ACLs",
            "zkwire copy / zk://zk9:2181/backup      # to another ensemble",
            "zkwire copy --force --delete /a /b      # make /b a mirror of /a",
        ),
        details=AGAIN,
    ),
}
