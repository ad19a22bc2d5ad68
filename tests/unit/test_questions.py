"""Readers find answers: from the front page in at most two clicks, each on one screen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCREEN = 45
"""Lines of a window; a line of a page takes one, or several if it is long."""
WIDTH = 120


class Answer(NamedTuple):
    """Where a question is answered: page, heading ("" is the top), words of the answer."""

    page: str
    heading: str
    words: str


ANSWERS = {
    "what is a session": Answer("sessions.md", "", "A session is an id, a password and a deadline"),
    "when does a watch fire twice, or never": Answer(
        "watches.md",
        "When can a watch fire twice, or never?",
        "| never fires twice | for one read.",
    ),
    "create lost its reply: what may I do": Answer(
        "connection-loss.md",
        "What to do after OutcomeUnknownError",
        "| `create` | repeat it; `NodeExistsError` then means",
    ),
    "how long can a holder wrongly believe": Answer(
        "fences.md",
        "How long can a holder wrongly believe that it holds?",
        "| cause | longest time | what ends it |",
    ),
    "what must the server allow for a lock": Answer(
        "locks.md", "What the server must allow", "**CREATE, READ and DELETE on the lock's path.**"
    ),
    "how do I test without a JVM": Answer("how-to/testing.md", "", "with Server() as server"),
    "how do I embed under trio": Answer(
        "how-to/trio.md", "", "`zkwire.trio` has a client for [trio]"
    ),
}


def lines_from(page: str, heading: str) -> list[str]:
    text = (DOCS / page).read_text()
    if heading:
        found = re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE)
        assert found, f"{page} has no heading {heading}"
        text = text[found.start() :]
    return text.splitlines()


def screen(page: str, heading: str) -> str:
    """What a reader sees who has followed a link to this heading."""
    shown, height = [], 0
    for line in lines_from(page, heading):
        height += 1 + max(len(line) - 1, 0) // WIDTH
        if height > SCREEN:
            break
        shown.append(line)
    return "\n".join(shown)


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def links(page: str) -> set[str]:
    """The targets of the links of a page, as paths below docs/."""
    found = re.findall(r"\]\(\s*([^)\s]+)\s*\)", (DOCS / page).read_text())
    folder = (DOCS / page).parent
    return {
        f"{(folder / path).resolve().relative_to(DOCS)}{sharp}{name}"
        for target in found
        if "://" not in target
        for path, sharp, name in [target.partition("#")]
        if path and (folder / path).resolve().is_relative_to(DOCS)
    }


@pytest.mark.parametrize("question", ANSWERS)
def test_the_answer_is_two_clicks_and_one_screen_away(question: str) -> None:
    page, heading, words = ANSWERS[question]
    wanted = f"{page}#{anchor(heading)}" if heading else page
    near = links("index.md") | links("questions.md")
    assert "questions.md" in links("index.md")
    assert wanted in near, f"no link to {wanted}"
    assert words in screen(page, heading)


def test_the_questions_fit_on_two_screens() -> None:
    text = (DOCS / "questions.md").read_text()
    assert sum(1 + max(len(line) - 1, 0) // WIDTH for line in text.splitlines()) <= 2 * SCREEN
    answers = re.findall(r"^\*\*(.*?\?)\*\* (.*?)(?=\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    assert len(answers) >= 15
    for question, answer in answers:
        assert "](" in answer, f"{question} leads nowhere"
        assert len(re.sub(r"\[.*?\]\(.*?\)", "", answer, flags=re.DOTALL)) < 300, question
