"""Arguments that several data commands have: the data of a node, its kind, and its access list."""

from __future__ import annotations

import re

from zkwire.cli.access import entry_of
from zkwire.cli.arguments import duration, version, wrong_word
from zkwire.cli.command import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from zkwire import ACL
    from zkwire.cli.context import Context


def add_version(parser: ArgumentParser, of: str = "the node has") -> None:
    """``-v``: the version that is expected, -1 without it."""
    does = f"only if {of} this version"
    parser.add_argument("-v", dest="version", type=version, default=-1, metavar="N", help=does)


def add_data(parser: ArgumentParser) -> None:
    """``DATA`` and ``--data-file``."""
    parser.add_argument("data", nargs="?", metavar="DATA", help="the data, as text")
    does = "take the data from this file; -: standard input"
    parser.add_argument("--data-file", metavar="FILE", help=does)


def data_of(context: Context, asked: Namespace) -> bytes | None:
    """The bytes that ``DATA`` or ``--data-file`` gives; None without both."""
    if asked.data_file is None:
        return None if asked.data is None else as_bytes(asked.data)
    if asked.data is not None:
        raise UsageError("the data stands in the command or in --data-file, not in both")
    if asked.data_file != "-":
        with open(asked.data_file, "rb") as file:
            return file.read()
    if context.in_shell:
        raise UsageError("in the shell, standard input has the commands: name a file")
    from zkwire.cli.context import standard_input

    return standard_input().buffer.read()


def as_bytes(text: str) -> bytes:
    """A word as the bytes that it came as, UTF-8 or not."""
    return text.encode("utf-8", "surrogateescape")


def add_kind(parser: ArgumentParser) -> None:
    """What kind of node is created, and its access list."""
    does = "the server deletes it when the session ends"
    parser.add_argument("-e", dest="ephemeral", action="store_true", help=does)
    does = "the server appends ten digits to the name, which count up"
    parser.add_argument("-s", dest="sequential", action="store_true", help=does)
    does = "a container: the server deletes it some time after its last child"
    parser.add_argument("-c", dest="container", action="store_true", help=does)
    does = "the server deletes it when it has no child and was not set for so long"
    parser.add_argument("-t", "--ttl", type=duration, metavar="DUR", help=does)
    does = "SCHEME:ID:PERMS[,...], such as world:anyone:r,auth::cdrwa"
    parser.add_argument("--acl", type=access_list, metavar="ACL", help=does)


def kind_of(asked: Namespace) -> dict[str, object]:
    """The arguments of ``Client.create`` for what ``add_kind`` has parsed."""
    names = ("ephemeral", "sequential", "container", "ttl", "acl")
    return {name: getattr(asked, name) for name in names}


def new_path(context: Context, asked: Namespace) -> str:
    """Where a node is created: behind a ``/`` at the end the number becomes the name."""
    path = context.path(asked.path)
    return path.rstrip("/") + "/" if asked.sequential and asked.path.endswith("/") else path


def access_list(text: str) -> list[ACL]:
    """An access list from ``SCHEME:ID:PERMS``, several with commas between them."""
    entries = re.split(r",(?=[A-Za-z0-9_]+:)", text)  # the name of a certificate has commas
    for entry in entries:
        if entry.endswith(":"):  # it would allow nothing
            raise wrong_word(f"{entry!r} is no entry of an access list: it has no PERMS")
    try:
        return [entry_of(entry) for entry in entries]
    except ValueError as error:
        raise wrong_word(str(error)) from None
