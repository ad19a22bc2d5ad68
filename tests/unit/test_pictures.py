"""The pictures and the figures of the documentation are those of a run, and are used."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from benchmarks import __main__ as main
from tests.support.diagrams import ROUTES, arrows
from tests.support.pictures import FOLDER, PICTURES, picture
from tests.support.speed_pictures import OPERATIONS, PAGE, by_layer, kept, rows, written

PAGES = [*FOLDER.rglob("*.md"), *FOLDER.parent.glob("*.md")]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_that_of_a_fresh_run(name: str) -> None:
    """Else: python3 -m tests.support.pictures."""
    text = picture(name)
    assert text == (FOLDER / f"{name}.svg").read_text()
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
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


def test_the_states_are_those_of_the_table() -> None:
    assert arrows() == ROUTES.keys()


def test_the_picture_of_late_writes_says_which_one_did_harm() -> None:
    def bad(name: str) -> list[str]:
        root = ElementTree.fromstring(picture(name))
        words = [str(e.text) for e in root.iter() if e.get("class") == "bad"]
        return [text for text in words if "writes" in text]

    assert bad("holder-without-fence") == ["A writes with 0x5: the storage takes it"]
    assert bad("holder-with-fence") == []


# --- benchmarks -----------------------------------------------------------------------------------


def test_the_page_of_speed_shows_the_kept_run() -> None:
    """Else: python3 -m tests.support.speed_pictures."""
    assert PAGE.read_text() == written()
    for name in OPERATIONS:
        assert round(sum(by_layer(name).values()), 3) == round(kept()[name]["cpu"], 3)
    shown = rows()
    assert list(shown) == [*main.WORKS.values()]
    assert all(row["zkwire"] == 1.0 for row in shown.values())
    assert shown["get, one at a time"].keys() == {"zkwire", *main.PEERS}
