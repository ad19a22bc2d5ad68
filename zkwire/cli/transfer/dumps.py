"""The format of a dump: JSON Lines, in ASCII.

The first line says what it is, with the version of the format and the path that it was read from.
Then a node is on each line: its path (from the root of the tree), its data and its access list.
The last line says that nothing is missing: a dump that was cut off is refused.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import IO, Any

from zkwire.cli.output import data_fields, entry_of, entry_text, stat_fields
from zkwire.cli.transfer.tree import Node
from zkwire.operations.sequence import next_number
from zkwire.wire.paths import check_path, parent

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
                f"{name} is no dump of version {VERSION}: its first line has no header"
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
            raise self._wrong(number, "no JSON object")
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
    raise ValueError("data is null, or has text or base64")
