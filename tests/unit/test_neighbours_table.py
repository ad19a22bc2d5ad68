"""The pages show the outcomes that are stored, and they are those of all pairs and scenarios."""

from __future__ import annotations

from tests.interop.neighbours import table
from tests.interop.neighbours.pairs import PAIRS
from tests.interop.neighbours.scenarios import SCENARIOS


def test_the_pages_show_what_is_stored() -> None:
    for path, text in table.pages(table.stored()).items():
        assert path.read_text() == text


def test_each_pair_and_each_scenario_has_a_run() -> None:
    stored = table.stored()
    assert list(stored["locks"]) == [pair.title for pair in PAIRS]
    assert all(counts["grants"] > 0 for counts in stored["locks"].values())
    assert {
        page: {title: tuple(found) for title, found in rows.items()}
        for page, rows in stored["recipes"].items()
    } == {
        page: {title: libraries for title, (_, libraries) in rows.items()}
        for page, rows in SCENARIOS.items()
    }
