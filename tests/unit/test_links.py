"""Every relative link in the documents leads to a file that exists, every #anchor to a heading."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(\s*([^)\s]+)\s*\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def targets(text: str) -> list[str]:
    """The targets of a document's links, those of other sites left out."""
    return [target for target in LINK.findall(CODE.sub("`", text)) if "://" not in target]


@cache
def anchors(document: Path) -> frozenset[str]:
    """What can stand behind the ``#``: GitHub's name for each heading."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    found: list[str] = []
    for heading in HEADING.findall(text):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        repeated = found.count(name)
        found += [name, f"{name}-{repeated}"] if repeated else [name]
    return frozenset(found)


def broken(document: Path, target: str) -> str:
    """What is wrong with a link, or nothing."""
    path, _, anchor = target.partition("#")
    file = (document.parent / path).resolve() if path else document
    if not file.exists():
        return f"{target}: no such file"
    if anchor and anchor not in anchors(file):
        return f"{target}: no such heading"
    return ""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_has_its_target(document: Path) -> None:
    links = targets(document.read_text())
    assert [wrong for target in links if (wrong := broken(document, target))] == []


def test_the_index_leads_to_each_page() -> None:
    docs = ROOT / "docs"
    entries = {
        (index.parent / entry).with_suffix(".md")
        for index in docs.rglob("*.md")
        for tree in re.findall(r"^```{toctree}\n(.*?)^```", index.read_text(), re.DOTALL | re.M)
        for entry in tree.split()
        if not entry.startswith(":")
    }
    assert entries >= {*docs.rglob("*.md")} - {docs / "index.md"}


def test_there_are_links_to_follow() -> None:
    assert sum(len(targets(document.read_text())) for document in DOCUMENTS) > 30


def test_a_broken_link_is_found() -> None:
    locks = ROOT / "docs" / "locks.md"
    assert broken(locks, "security.md#no-such-heading")
    assert broken(locks, "#no-such-heading")
    assert broken(locks, "no-such-page.md")
    assert not broken(locks, "connection-loss.md#fences-and-leases")


def test_what_is_code_or_another_site_is_no_link() -> None:
    text = "`a[0](b)`\n```\n[c](d)\n```\n[e](f#g)\n[h](https://example.org)"
    assert targets(text) == ["f#g"]


def test_a_repeated_heading_has_a_number(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n\n## The `set`, again\n\n```\n# no heading\n```\n\n## The set again\n")
    assert anchors(page) == {"a", "the-set-again", "the-set-again-1"}
