"""``zkwire dump``, ``zkwire load`` and ``zkwire copy``: whole trees, out and in."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from argparse import Namespace
from base64 import b64decode
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from zkwire.cli.command import Command, arg, flag
from zkwire.cli.context import Context, standard_input
from zkwire.cli.files import whole
from zkwire.cli.output import BEHIND, DONE, Output, data_fields, entry_of, entry_text, stat_fields
from zkwire.cli.transfer import tree as trees
from zkwire.cli.transfer.plan import ACLS, Numbers, Plan, Writer
from zkwire.cli.transfer.tree import Node, Place, TreeReader, progress
from zkwire.errors import ServerError, ZooKeeperError
from zkwire.operations.sequence import next_number
from zkwire.wire.paths import check_path, parent

Write = Callable[[str], object]


# --- the format -----------------------------------------------------------------------------------
# Of a dump: JSON Lines, in ASCII.
#
# The first line says what it is, with the version of the format and the path that it was read from.
# Then a node is on each line: its path (from the root of the tree), its data and its access list.
# The last line says that nothing is missing: a dump that was cut off is refused.

VERSION = 1
KIND = "zkwire dump"
END = {"end": True}


def head(root: str) -> str:
    """The first line."""
    return json.dumps({"v": VERSION, "kind": KIND, "root": root})


def line(node: Node, *, stat: bool = False) -> str:
    """The line of a node."""
    fields: dict[str, Any] = {
        "path": node.path,
        "data": data_fields(node.data),
        "acl": [entry_text(entry) for entry in node.acl],
    }
    if stat and node.stat is not None:
        fields["stat"] = stat_fields(node.stat)
    return json.dumps(fields)


def end() -> str:
    """The last line."""
    return json.dumps(END)


class DumpFile:
    """A dump, which can be read again and again; ``name`` is the file's, for errors.

    ``root``: the path that it was read from.  Reading raises ValueError at a line that is wrong.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        file.seek(0)
        fields = self._fields(1, file.readline())
        if fields.get("kind") != KIND or fields.get("v") != VERSION:
            raise ValueError(
                f"{name} is not a dump of version {VERSION}: its first line has no header"
            )
        try:
            self.root: str = check_path(fields["root"])
        except KeyError as error:
            raise self._wrong(1, f"no {error}") from None
        except (ValueError, TypeError) as error:
            raise self._wrong(1, str(error)) from None

    def __iter__(self) -> Iterator[Node]:
        self._file.seek(0)
        self._file.readline()
        seen = set[str]()
        for number, text in enumerate(self._file, 2):
            fields = self._fields(number, text)
            if fields == END:
                return
            node = self._node(number, fields)
            if node.path in seen:
                raise self._wrong(number, f"{node.path} a second time")
            if node.path != "/" and parent(node.path) not in seen:
                raise self._wrong(number, f"{node.path} before its parent")
            seen.add(node.path)
            yield node
        raise ValueError(f"{self._name} ends too early: its last line is not {end()}")

    def _fields(self, number: int, text: bytes) -> dict[str, Any]:
        try:
            fields: dict[str, Any] | None = json.loads(text)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise self._wrong(number, "not a JSON object")
        return fields

    def _node(self, number: int, fields: dict[str, Any]) -> Node:
        try:
            acl = [entry_of(entry) for entry in fields["acl"]]
            sequence = _sequence(fields.get("stat"))
            return Node(check_path(fields["path"]), _data(fields["data"]), acl, sequence=sequence)
        except KeyError as error:
            raise self._wrong(number, f"no {error}") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise self._wrong(number, str(error)) from None

    def _wrong(self, number: int, what: str) -> ValueError:
        return ValueError(f"{self._name}, line {number}: {what}")


def _sequence(stat: dict[str, Any] | None) -> int | None:
    """The number that the next sequential child would have got, if the stat is there."""
    return None if stat is None else next_number(stat["cversion"], stat["num_children"])


def _data(fields: dict[str, str] | None) -> bytes:
    """The opposite of :func:`zkwire.cli.output.data_fields`; null is empty."""
    if fields is None:
        return b""
    if set(fields) == {"text"}:
        return fields["text"].encode()
    if set(fields) == {"base64"}:
        return b64decode(fields["base64"], validate=True)
    raise ValueError("data must be null, or have text or base64")


# --- dump -----------------------------------------------------------------------------------------
# ``zkwire dump``: a tree as JSON Lines.

STDOUT = "-"


def _dump(context: Context, asked: Namespace) -> None:
    """
    zkwire dump /services services.jsonl    # one line for each node
    zkwire dump / | gzip > everything.gz    # to standard output

    FILE has its name only once it is whole.  The dump is no snapshot: each node is
    as it was at some moment while the tree was read.  Containers and nodes with a
    time to live look like persistent ones to a client, and so become such.
    """
    trees.check_place(asked.path)
    if asked.file != STDOUT and os.path.isfile(asked.file) and not asked.force:
        raise FileExistsError(f"{asked.file} is there already; --force overwrites it")
    with trees.at(context, asked.path) as place, _opened(asked.file, context.output) as write:
        write_dump(context.output, place, write, asked)


def write_dump(output: Output, place: Place, write: Write, asked: Namespace) -> int:
    """Write the tree at the place, a line for each call; returns how many nodes there were."""
    stat, count = getattr(asked, "stat", False), 0
    tree = TreeReader(place, ephemerals=asked.ephemerals == "persistent")
    for node in progress(output, tree, "reading", _total(place)):
        if not count:  # behind the first answer: nothing is written if there is no such tree
            write(head(place.path))
        write(line(node, stat=stat))
        count += 1
    if not count:
        raise ValueError(f"{place.path} is ephemeral: see --ephemerals")
    write(end())
    for some, what in (
        (tree.left_out, "ephemeral, left out (--ephemerals persistent)"),
        (tree.gone, "deleted meanwhile, left out"),
        (tree.hidden, "shown without the hash of a password in the ACL"),
    ):
        if some:
            output.note(f"{'1 node is' if some == 1 else f'{some} nodes are'} {what}")
    return count


def _total(place: Place) -> int | None:
    """How many nodes there are, about; None where the server does not tell."""
    try:
        counted = trees.result(place.client, lambda ops: ops.get_all_children_number(place.path))
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


# --- load -----------------------------------------------------------------------------------------
# ``zkwire load`` and ``zkwire copy``: they make one tree equal to another.


def _load(context: Context, asked: Namespace) -> int:
    """
    zkwire load services.jsonl              # to where it was read from
    zkwire load services.jsonl /restored    # or elsewhere

    It looks at the whole target first: if a node there differs, it changes nothing
    and exits with 1, unless --force is given.  Equal nodes are skipped, so if it
    was interrupted (status 4 or 5, a signal), run it again: it does what is left.
    Numbers of sequential nodes go on behind the names that there are; the status
    is 6 where that would take more than a million.
    """
    with _readable(asked.file) as file:
        dump = DumpFile(file, asked.file)
        with trees.at(context, trees.check_place(asked.path or dump.root)) as place:
            return _make_equal(context.output, dump, place, asked)


def _copy(context: Context, asked: Namespace) -> int:
    """
    zkwire copy /services /services-old     # a tree and its ACLs
    zkwire copy / zk://zk9:2181/backup      # to another ensemble
    zkwire copy --force --delete /a /b      # make /b a mirror of /a

    It looks at the whole target first: if a node there differs, it changes nothing
    and exits with 1, unless --force is given.  Equal nodes are skipped, so if it
    was interrupted (status 4 or 5, a signal), run it again: it does what is left.
    Numbers of sequential nodes go on behind the names that there are; the status
    is 6 where that would take more than a million.
    """
    trees.check_place(asked.source)
    trees.check_place(asked.target)
    asked.stat = True  # where the source counts from
    with tempfile.TemporaryFile() as file, trees.at(context, asked.target) as target:
        with trees.at(context, asked.source) as source:
            if target.is_within(source) or (asked.delete and source.is_within(target)):
                raise ValueError(f"{asked.source} and {asked.target} overlap")
            write_dump(
                context.output, source, lambda line: file.write(line.encode() + b"\n"), asked
            )
        return _make_equal(context.output, DumpFile(file, asked.source), target, asked)


def _make_equal(output: Output, dump: DumpFile, place: Place, asked: Namespace) -> int:
    plan, paths = Plan(place, asked.acl), set[str]()
    numbers = Numbers(place)
    for node in progress(output, dump, "checking"):  # all of it before anything else
        paths.add(node.path)
        numbers.add(node)
    plan.look(progress(output, dump, "comparing", len(paths)))
    if asked.delete:
        plan.find_extra(paths)
    if asked.dry_run:
        _list(output, dump, plan)
        plan.check_allowed(force=asked.force)
        return DONE
    plan.check_allowed(force=asked.force)
    writer = Writer(plan)
    try:
        writer.write(progress(output, dump, "writing", plan.total))
        left = writer.delete()
        numbers.bring_forward()
    except ZooKeeperError as error:
        error.add_note(f"done before: {_counts(writer.done)}")
        raise
    for path in left:
        output.note(f"{trees.below(place.path, path)} has children by now and was not deleted")
    done = {**writer.done, "equal": plan.equal}
    behind = {"behind": list(numbers.left_behind)} if numbers.left_behind else {}
    output.result({"path": place.path, **done, **behind}, [_counts(done)])
    for words in list(numbers.left_behind.values())[:MOST_SHOWN]:
        output.note(words)
    if len(numbers.left_behind) > MOST_SHOWN:
        output.note(f"... and {len(numbers.left_behind) - MOST_SHOWN} more")
    return BEHIND if numbers.left_behind else DONE


def _counts(done: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in done.items())


def _list(output: Output, dump: DumpFile, plan: Plan) -> None:
    """A line for each change that the plan has."""
    changes = [("create", node.path, "") for node in dump if node.path in plan.missing]
    changes += [("change", path, str(how)) for path, how in plan.different.items()]
    changes += [("delete", path, "") for path in plan.extra]
    for change, path, how in changes:
        full = trees.below(plan.place.path, path)
        fields = {"change": change, "path": full, "differs": how or None}
        output.result(fields, [f"{change} {full}" + (f" ({how})" if how else "")])


@contextmanager
def _readable(name: str) -> Generator[IO[bytes]]:
    """A file that can be read again and again; what cannot, such as a pipe, is copied."""
    with ExitStack() as files:
        file: IO[bytes]
        file = standard_input().buffer if name == STDOUT else files.enter_context(open(name, "rb"))
        if name == STDOUT or not file.seekable():
            copy = files.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, copy)
            file = copy
        yield file


MOST_SHOWN = 10  # nodes whose counter is behind


# fmt: off
PLACE = {"help": "a path, or zk://HOST:PORT,.../PATH"}
READING = arg("--ephemerals", choices=("leave-out", "persistent"), default="leave-out",
    help="leave ephemeral nodes out (the default), or take them as persistent ones")
WRITING = (
    arg("--acl", choices=ACLS, default="keep",
        help="the nodes' own access lists (keep), or one for all"),
    flag("--force", "overwrite nodes that differ"),
    flag("--delete", "delete what the source lacks, but ephemeral nodes"),
    flag("--dry-run", "change nothing, and list what would be changed"),
)
COMMANDS = {
    "dump": Command(_dump,
        arg("path", metavar="PATH", **PLACE),
        arg("file", nargs="?", default=STDOUT, metavar="FILE"),
        READING,
        flag("--stat", "the stat of each node as well"),
        flag("--force", "overwrite FILE")),
    "load": Command(_load,
        arg("file", metavar="FILE", help="what dump has written; - is standard input"),
        arg("path", nargs="?", metavar="PATH", help="else where it was read from"),
        *WRITING),
    "copy": Command(_copy,
        arg("source", metavar="SOURCE", **PLACE),
        arg("target", metavar="TARGET", help="the same"),
        READING, *WRITING),
}
