"""The atlas of clients: its page is made of its data, and what they tell is judged as it says."""

from __future__ import annotations

import json

import pytest

from tests.interop.atlas import document
from tests.interop.atlas.cells import HUNG, LACKS, LESS, TRUTH, WRONG, Seen, cell, meaning
from tests.interop.atlas.changes import FLOOD, flood_judged, judged
from tests.interop.atlas.clients import CLIENTS, DRIVERS
from tests.interop.atlas.driver import Answer
from tests.interop.atlas.page import DATA, differences, merged, stored
from tests.interop.atlas.situations import SITUATIONS

POINTS = [point.key for situation in SITUATIONS for point in situation.points]


def test_page_holds_what_the_data_says() -> None:
    """Else: python3 -m tests.interop.atlas.document."""
    text = document.PATH.read_text()
    assert document.replaced(text, stored()) == text


def test_data_has_a_run_of_each_client_at_each_point() -> None:
    cells = stored()
    assert list(cells) == POINTS
    recorded = {name for row in cells.values() for name in row}
    assert len(recorded) >= 8
    assert {c.language for c in CLIENTS if c.name in recorded} >= {"Python", "Java", "C", "Go"}
    assert all(row.keys() == recorded for row in cells.values())
    assert all(cell["runs"] > 0 for row in cells.values() for cell in row.values())
    assert json.loads(DATA.read_text())["clients"].keys() == {c.name for c in CLIENTS}


def test_each_client_has_its_program() -> None:
    assert all((DRIVERS / client.program).is_file() for client in CLIENTS)


@pytest.mark.parametrize(
    ("words", "way", "times", "sent", "kind"),
    [
        ("ok", "after", 1, 1, TRUTH),
        ("ok", "before", 0, 1, WRONG),
        ("ok /n-1", "after", 2, 2, LESS),
        ("NodeExistsError", "after", 1, 2, WRONG),
        ("NodeExistsError", "refused", 0, 2, TRUTH),
        ("ConnectionLoss", "after", 1, 1, TRUTH),
        ("ConnectionLoss", "down", 0, 0, LESS),
        ("NotSentError maybe_applied=False", "down", 0, 0, TRUTH),
        ("NotSentError maybe_applied=False", "after", 1, 1, WRONG),
        ("TypeError", "after", 1, 1, LESS),
        (None, "after", 1, 1, HUNG),
    ],
)
def test_change_judged(words: str | None, way: str, times: int, sent: int, kind: str) -> None:
    assert judged(Answer(words, 0.1), way, times, sent).kind == kind


@pytest.mark.parametrize(
    ("words", "executed", "kind"),
    [
        (f"ok {FLOOD}*ok", FLOOD, TRUTH),
        (f"ok {FLOOD}*ok", FLOOD + 1, LESS),
        ("ok 500*ok, 500*ConnectionLoss", 600, LESS),
        ("ok 500*ok, 500*ConnectionLoss", 499, WRONG),
        ("ok 1*ok, 9*OutcomeUnknownError maybe_applied=True, 990*NotSentError", 3, LESS),
        ("ok 1*ok, 9*ConnectionLoss, 990*NotSentError maybe_applied=False", 3, TRUTH),
        ("ok 1*ok, 9*ConnectionLoss, 990*ok", 995, TRUTH),
        ("ok 1*ok, 999*no answer", 1, HUNG),
    ],
)
def test_flood_judged(words: str, executed: int, kind: str) -> None:
    assert flood_judged(Answer(words, 0.1), executed).kind == kind


@pytest.mark.parametrize(
    ("words", "means"),
    [
        ("SessionExpiredError maybe_applied=False", "ended"),
        ("zk: connection closed", "doubt"),
        ("ZOPERATIONTIMEOUT", "doubt"),
        ("zk: node already exists", "refused"),
        ("zk: could not connect to a server", "not done"),
        ("BadVersionException", "refused"),
        ("NullPointerException", "other"),
        (None, "no answer"),
    ],
)
def test_meaning_of_words(words: str | None, means: str) -> None:
    assert meaning(words) == means


def test_cell_has_the_worst_kind_and_all_words() -> None:
    made = cell([Seen(TRUTH, "a", 0.2), Seen(WRONG, "b"), Seen(TRUTH, "a", 0.1)])
    assert (made["kind"], made["seconds"], made["runs"]) == (WRONG, [0.1, 0.2], 3)
    assert made["said"] == [[TRUTH, "a", 2], [WRONG, "b", 1]]


def test_other_run_differs_by_new_words_alone() -> None:
    old, new = cell([Seen(TRUTH, "a"), Seen(LESS, "b")]), cell([Seen(TRUTH, "a")])
    assert differences({"p": {"c": old}}, {"p": {"c": new}}) == []
    assert len(differences({"p": {"c": new}}, {"p": {"c": old}})) == 1
    assert merged(new, old)["said"] == [[LESS, "b", 1], [TRUTH, "a", 2]]
    assert merged(None, new) == new
    assert cell([Seen(LACKS, "")])["kind"] == LACKS
