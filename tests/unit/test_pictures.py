"""The pictures of the documentation are those of a fresh run, are used, and need nothing else."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.support.diagrams import ROUTES, arrows
from tests.support.pictures import FOLDER, PICTURES, picture
from tests.support.speed_pictures import PAGE, written

PAGES = [*FOLDER.rglob("*.md"), *FOLDER.parent.glob("*.md")]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_that_of_a_fresh_run(name: str) -> None:
    """Else: python3 -m tests.support.pictures."""
    text = picture(name)
    assert text == (FOLDER / f"{name}.svg").read_text()
    root = ElementTree.fromstring(text)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert {"title", "desc"} < tags
    assert "script" not in tags
    assert re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme:dark" in text


def test_each_picture_is_on_a_page_with_words_for_readers_who_do_not_see_it() -> None:
    shown = {
        path.rpartition("/")[2]: words
        for page in PAGES
        for words, path in re.findall(r"!\[([^\]]*)\]\(([^)]*\.svg)\)", page.read_text())
    }
    assert shown.keys() == {file.name for file in FOLDER.glob("*.svg")}
    assert shown.keys() == {f"{name}.svg" for name in PICTURES} | {"spy.svg"}
    assert all(len(words) > 40 for words in shown.values()), shown


def test_the_table_of_where_time_goes_is_that_of_the_kept_run() -> None:
    """Else: python3 -m tests.support.speed_pictures."""
    assert PAGE.read_text() == written()


def test_the_states_are_those_of_the_table() -> None:
    assert arrows() == ROUTES.keys()


def test_the_picture_of_late_writes_says_which_one_did_harm() -> None:
    def bad(name: str) -> list[str]:
        root = ElementTree.fromstring(picture(name))
        words = [str(e.text) for e in root.iter() if e.get("class") == "bad"]
        return [text for text in words if "writes" in text]

    assert bad("holder-without-fence") == ["A writes with 0x5: the storage takes it"]
    assert bad("holder-with-fence") == []
