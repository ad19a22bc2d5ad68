"""The documents: what is written by a program is up to date, and each link leads somewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.hazards import table as hazards
from tests.interop import pages
from tests.interop.atlas import clients as atlas_clients
from tests.interop.atlas import document as atlas
from tests.interop.matrix import rows as matrix_rows
from tests.interop.matrix import settings
from tests.interop.matrix import table as matrix
from tests.interop.neighbours import table as neighbours
from tests.interop.neighbours.pairs import PAIRS
from tests.interop.neighbours.scenarios import SCENARIOS
from tests.interop.other_clients import compare
from tests.support import lesson_page, man_page, pypi_readme, wire_page
from tests.support import wire_reference as reference
from tests.support.operation_samples import OPERATIONS
from tests.support.pypi_readme import CODE, LINK, ROOT
from tests.support.wire_exchanges import EXCHANGES, Frames, message, stored
from zkwire.wire import ops

DOCS = ROOT / "docs"
WRITTEN: dict[str, Callable[[], dict[Path, str]]] = {
    "tests.support.lesson_page": lambda: {lesson_page.PATH: lesson_page.written()},
    "tests.support.man_page": lambda: {man_page.PATH: man_page.page()},
    "tests.support.wire_page": lambda: {
        wire_page.PATH: wire_page.written(wire_page.PATH.read_text())
    },
    "tests.support.wire_reference": lambda: {reference.PATH: reference.page()},
    "tests.hazards.table": lambda: {hazards.DOCUMENT: hazards.document()},
    "tests.interop.atlas.document": lambda: {
        atlas.PATH: atlas.replaced(atlas.PATH.read_text(), atlas.stored())
    },
    "tests.interop.neighbours.contend": lambda: neighbours.pages(neighbours.stored()),
    "tests.interop.matrix --write": lambda: {
        matrix.DOCUMENT: matrix.replaced(matrix.DOCUMENT.read_text(), matrix.stored())
    },
    "tests.interop.matrix.settings --write": lambda: {
        settings.DOCUMENT: settings.replaced(settings.DOCUMENT.read_text(), settings.stored())
    },
}
"""By the module that writes them."""


@pytest.mark.parametrize("module", WRITTEN)
def test_a_document_is_as_its_program_writes_it(module: str) -> None:
    """Else: python3 -m the module, which is the name of the case."""
    for path, text in WRITTEN[module]().items():
        assert path.read_text(encoding="utf-8") == text


# --- links ----------------------------------------------------------------------------------------

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]


def targets(text: str) -> list[str]:
    """The targets of a document's links, those of other sites left out."""
    return [target for target in LINK.findall(CODE.sub("`", text)) if "://" not in target]


def anchor(heading: str) -> str:
    """GitHub's name for a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def anchors(document: Path) -> frozenset[str]:
    """What can stand behind the ``#``; a repeated heading has a number."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    found: list[str] = []
    for heading in re.findall(r"^#{1,6} +(.+?) *$", text, re.MULTILINE):
        name = anchor(heading)
        repeated = found.count(name)
        found += [name, f"{name}-{repeated}"] if repeated else [name]
    return frozenset(found)


def broken(document: Path, target: str) -> bool:
    path, _, name = target.partition("#")
    file = (document.parent / path).resolve() if path else document
    return not file.exists() or bool(name and name not in anchors(file))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_has_its_target(document: Path) -> None:
    assert [link for link in targets(document.read_text()) if broken(document, link)] == []
    for wrong in ("security.md#no-such-heading", "#no-such-heading", "no-such-page.md"):
        assert broken(document, wrong)


def test_the_index_leads_to_each_page() -> None:
    entries = {
        (index.parent / entry).with_suffix(".md")
        for index in DOCS.rglob("*.md")
        for tree in re.findall(r"^```{toctree}\n(.*?)^```", index.read_text(), re.DOTALL | re.M)
        for entry in tree.split()
        if not entry.startswith(":")
    }
    assert entries >= {*DOCS.rglob("*.md")} - {DOCS / "index.md"}


def test_the_readme_on_pypi_has_no_relative_link() -> None:
    written = pypi_readme.absolute((ROOT / "README.md").read_text(), "https://example.org/zkwire/")
    assert [target for target in targets(written) if not target.startswith("#")] == []


# --- hazards: each has a test that carries its number ---------------------------------------------


def test_a_hazard_has_a_test_and_no_test_a_number_that_there_is_not() -> None:
    assert hazards.rows() == hazards.NUMBERS
    assert hazards.numbered().keys() == {*hazards.NUMBERS}


# --- the wire -------------------------------------------------------------------------------------


def test_the_bytes_of_each_frame_of_the_page_are_whole() -> None:
    """No field is cut, hidden or left out: the length in front counts them all."""
    tables = wire_page.tables().values()
    assert len(tables) == 12
    for table in tables:
        cells = [line.split(" | ")[1].strip("`") for line in table.splitlines()[2:]]
        data = bytes.fromhex("".join(cells))
        assert int.from_bytes(data[:4], "big") == len(data) - 4, table


def test_each_operation_has_an_exchange_with_each_byte_named() -> None:
    shown = {exchange.op for exchange in EXCHANGES} | {ops.CHECK}  # which is sent in a multi only
    assert set(ops.OPS.values()) <= shown
    for release, exchanges in stored().items():
        assert list(exchanges) == [exchange.name for exchange in EXCHANGES], release
        for name, frames in exchanges.items():
            for part, data in zip(Frames._fields, frames, strict=True):
                if data:
                    found = message(data, name, part)
                    assert found.problem is None, f"{release} {name} {part}"
                    assert sum(row.size for row in found.rows) == len(data)


# --- tables of other clients and releases ---------------------------------------------------------


def test_each_release_has_each_row_and_each_operation_its_row() -> None:
    for outcomes in matrix.stored().values():
        assert {part: list(found) for part, found in outcomes.items()} == matrix.TITLES
    titles = " ".join(matrix_rows.OPERATIONS)
    assert OPERATIONS - set(re.findall(r"`(\w+)`", titles)) == matrix_rows.NEEDS_A_SWITCH


def test_each_pair_and_each_scenario_of_neighbours_has_a_run() -> None:
    found = neighbours.stored()
    assert list(found["locks"]) == [pair.title for pair in PAIRS]
    assert all(counts["grants"] > 0 for counts in found["locks"].values())
    for page, rows in SCENARIOS.items():
        runs = {title: tuple(libraries) for title, libraries in found["recipes"][page].items()}
        assert runs == {title: libraries for title, (_, libraries) in rows.items()}
    assert found["recipes"].keys() == SCENARIOS.keys()


def test_the_table_of_other_clients_has_a_row_for_each() -> None:
    table = pages.part(compare.PAGE.read_text(), compare.NAME)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert tuple(rows[0]) == compare.HEAD
    assert [name for name, _, _ in rows[2:]] == [client.what for client in compare.CLIENTS]


def test_the_atlas_has_a_run_of_each_client_at_each_point() -> None:
    cells, clients = atlas.stored(), atlas_clients.CLIENTS
    points = [point.key for situation in atlas.SITUATIONS for point in situation.points]
    assert list(cells) == points
    recorded = {name for row in cells.values() for name in row}
    assert len(recorded) >= 8
    assert {c.language for c in clients if c.name in recorded} >= {"Python", "Java", "C", "Go"}
    assert all(row.keys() == recorded for row in cells.values())
    assert all(cell["runs"] > 0 for row in cells.values() for cell in row.values())
    known = json.loads(atlas.DATA.read_text())["clients"]
    assert known.keys() == {client.name for client in clients}
    assert all((atlas_clients.DRIVERS / client.program).is_file() for client in clients)
