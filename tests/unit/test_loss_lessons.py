""" "See it happen" of docs/connection-loss-reference.md: each command says what the page quotes."""

from __future__ import annotations

import json
import re

import pytest

from tests.connection_loss import data
from tests.connection_loss.document import PATH
from tests.connection_loss.lessons import LESSON, flags_of
from tests.support.lesson_page import output_of

PAGE = PATH.read_text()
SECTION = PAGE.partition("\n## See it happen\n")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (.+) \| (.+) \| `zkwire (.+)` \| \*(.+)\* \|$", SECTION, re.MULTILINE)


@pytest.mark.parametrize(("command", "words"), [row[2:] for row in ROWS])
def test_a_command_shows_what_the_page_says(command: str, words: str) -> None:
    shown = " ".join(output_of(*command.split()).split())
    assert words in shown
    assert "✗" not in shown


def test_each_lesson_of_a_line_runs() -> None:
    rows = json.loads(data.PATH.read_text())["rows"]
    linked = {row["id"]: flags for row in rows if (flags := flags_of(row)) is not None}
    assert len(linked) == 16  # four requests, four faults
    for name, flags in linked.items():
        shown = output_of("lesson", LESSON, *flags.split())
        assert "Remember:" in shown, name
        assert "✗" not in shown, name


def test_each_point_of_failure_has_a_command_or_is_named_as_without() -> None:
    rows = json.loads(data.PATH.read_text())["rows"]
    points = {row["point"] for row in rows if row["part"] == "operations"}
    without = set(re.findall(r"\*([^*|]+)\*", " ".join(SECTION.partition("| ---")[0].split())))
    assert points == {row[0] for row in ROWS} - {"cut off"} | without
