"""The documents: what is written by a program is up to date, and each link leads somewhere."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import __main__ as benchmarks
from tests.hazards import table as hazards
from tests.interop.atlas import clients as atlas_clients
from tests.interop.atlas import document as atlas
from tests.interop.matrix import rows as matrix_rows
from tests.support import pypi_readme, wire_pages
from tests.support.diagrams import ROUTES, arrows
from tests.support.operation_samples import OPERATIONS
from tests.support.pages import OTHERS, OURS
from tests.support.pictures import PICTURES
from tests.support.pypi_readme import CODE, LINK, ROOT
from tests.support.speed_pictures import rows as plotted
from tests.support.wire_exchanges import EXCHANGES, Frames, message, stored
from zkwire.wire import ops

DOCS = ROOT / "docs"


@pytest.mark.parametrize("name", [*OURS, *OTHERS])
def test_a_document_is_as_its_program_writes_it(name: str) -> None:
    """Else: python3 -m tests.support.pages, or the module that is the name of the case."""
    for path, text in {**OURS, **OTHERS}[name]().items():
        assert path.read_text(encoding="utf-8") == text


# --- pictures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PICTURES, "spy"])
def test_a_picture_says_what_it_shows_and_needs_nothing(name: str) -> None:
    text = (DOCS / f"{name}.svg").read_text()
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
    assert {"title", "desc"} < tags
    assert "script" not in tags
    assert re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme:dark" in text


def test_each_picture_is_on_a_page_with_words_for_readers_who_do_not_see_it() -> None:
    shown = {
        path.rpartition("/")[2]: words
        for page in DOCUMENTS
        for words, path in re.findall(r"!\[([^\]]*)\]\(([^)]*\.svg)\)", page.read_text())
    }
    assert shown.keys() == {file.name for file in DOCS.glob("*.svg")}
    assert shown.keys() == {f"{name}.svg" for name in (*PICTURES, "spy")}
    assert all(len(words) > 40 for words in shown.values()), shown


def test_the_states_are_those_of_the_table() -> None:
    assert arrows() == ROUTES.keys()


def test_the_picture_of_late_writes_says_which_one_did_harm() -> None:
    harm = ">A writes with 0x5: the storage takes it<"
    assert harm in (DOCS / "holder-without-fence.svg").read_text()
    assert harm not in (DOCS / "holder-with-fence.svg").read_text()


def test_the_plot_of_speed_shows_each_workload_and_peer() -> None:
    assert [*plotted()] == [*benchmarks.WORKS.values()]
    assert all(row["zkwire"] == 1.0 for row in plotted().values())
    assert plotted()["get, one at a time"].keys() == {"zkwire", *benchmarks.PEERS}


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
    tables = wire_pages.tables().values()
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


def test_each_operation_has_its_row_in_the_table_of_releases() -> None:
    titles = " ".join(matrix_rows.OPERATIONS)
    assert OPERATIONS - set(re.findall(r"`(\w+)`", titles)) == matrix_rows.NEEDS_A_SWITCH


def test_the_atlas_has_a_run_of_each_client_at_each_point() -> None:
    cells, clients = atlas.stored(), atlas_clients.CLIENTS
    assert list(cells) == [point.key for each in atlas.SITUATIONS for point in each.points]
    recorded = {name for row in cells.values() for name in row}
    assert {c.language for c in clients if c.name in recorded} >= {"Python", "Java", "C", "Go"}
    assert all(row.keys() == recorded for row in cells.values())
    known = json.loads(atlas.DATA.read_text())["clients"]
    assert known.keys() == {client.name for client in clients}
