"""The atlas of clients: it has a run of each, and what they tell is judged as it says."""

import json

import pytest

from tests.interop.atlas.cells import HUNG, LESS, TRUTH, WRONG
from tests.interop.atlas.changes import FLOOD, flood_judged, judged
from tests.interop.atlas.clients import CLIENTS, DRIVERS
from tests.interop.atlas.document import DATA, SITUATIONS, stored
from tests.interop.atlas.driver import Answer


def test_data_has_a_run_of_each_client_at_each_point() -> None:
    cells = stored()
    assert list(cells) == [point.key for situation in SITUATIONS for point in situation.points]
    recorded = {name for row in cells.values() for name in row}
    assert len(recorded) >= 8
    assert {c.language for c in CLIENTS if c.name in recorded} >= {"Python", "Java", "C", "Go"}
    assert all(row.keys() == recorded for row in cells.values())
    assert all(cell["runs"] > 0 for row in cells.values() for cell in row.values())
    assert json.loads(DATA.read_text())["clients"].keys() == {c.name for c in CLIENTS}
    assert all((DRIVERS / client.program).is_file() for client in CLIENTS)


@pytest.mark.parametrize(("words", "way", "times", "sent", "kind"), [
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
])  # fmt: skip
def test_change_judged(words: str | None, way: str, times: int, sent: int, kind: str) -> None:
    assert judged(Answer(words, 0.1), way, times, sent).kind == kind


@pytest.mark.parametrize(("words", "executed", "kind"), [
    (f"ok {FLOOD}*ok", FLOOD, TRUTH),
    (f"ok {FLOOD}*ok", FLOOD + 1, LESS),
    ("ok 500*ok, 500*ConnectionLoss", 600, LESS),
    ("ok 500*ok, 500*ConnectionLoss", 499, WRONG),
    ("ok 1*ok, 9*OutcomeUnknownError maybe_applied=True, 990*NotSentError", 3, LESS),
    ("ok 1*ok, 9*ConnectionLoss, 990*NotSentError maybe_applied=False", 3, TRUTH),
    ("ok 1*ok, 9*ConnectionLoss, 990*ok", 995, TRUTH),
    ("ok 1*ok, 999*no answer", 1, HUNG),
])  # fmt: skip
def test_flood_judged(words: str, executed: int, kind: str) -> None:
    assert flood_judged(Answer(words, 0.1), executed).kind == kind
