"""The parts of documents that programs write: between ``begin: NAME`` and ``end: NAME``."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.check.environment import ROOT
from tests.support.installed_servers import every_release

DOCUMENTS = ROOT / "docs"
Replaced = Callable[[str, Any], str]
"""A text with its generated parts made of these outcomes."""


def marks(name: str) -> tuple[str, str]:
    """What stands before and after the part."""
    return f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"


def part(text: str, name: str) -> str:
    """The part as it is."""
    begin, end = marks(name)
    return text.partition(begin)[2].partition(end)[0]


def with_parts(text: str, parts: Mapping[str, str]) -> str:
    """The text with these parts; ValueError unless it has one place for each."""
    for name, new in parts.items():
        begin, end = marks(name)
        if (text.count(begin), text.count(end)) != (1, 1):
            raise ValueError(f"{text.count(begin)} places for {name}")
        before, _, rest = text.partition(begin)
        text = before + begin + new + end + rest.partition(end)[2]
    return text


def row(cells: Iterable[object]) -> str:
    """A line of a table."""
    return f"| {' | '.join(map(str, cells))} |\n"


def table(head: Sequence[object], rows: Iterable[Iterable[object]]) -> str:
    """A whole one."""
    return row(head) + row(["---"] * len(head)) + "".join(map(row, rows))


def as_json(data: object) -> str:
    """What is stored beside the pages."""
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def settle(files: Mapping[Path, str], *, write: bool) -> int:
    """Write these files, or compare them; the exit status."""
    status = 0
    for path, text in files.items():
        if write:
            path.write_text(text)
        elif path.read_text() != text:
            print(f"{path.name} says something else; --write mends it")
            status = 1
    return status


def on_each_release(
    program: str, found: Callable[[str], Any], data: Path, document: Path, replaced: Replaced
) -> int:
    """Compare the document and its data with what is found on each release, or write both.

    The releases are Debian's and those of `ZOOKEEPER_HOME`; what is stored of others stays.
    """
    parser = ArgumentParser(prog=f"python3 -m {program}")
    parser.add_argument("--write", action="store_true", help="put the tables into the document")
    write = parser.parse_args().write
    outcomes = json.loads(data.read_text())
    for release in every_release():
        os.environ["ZKWIRE_TEST_RELEASE"] = release
        outcomes[release] = found(release)
        print(f"{release}: {len(outcomes[release])} parts", flush=True)
    outcomes = dict(sorted(outcomes.items()))
    files = {document: replaced(document.read_text(), outcomes), data: as_json(outcomes)}
    return settle(files, write=write)
