"""Every hazard has a test that carries its number, and docs/hazards.md says which."""

from __future__ import annotations

import pytest

from tests.hazards import table
from tests.hazards.table import DOCUMENT, NUMBERS, document, numbered, rows


def test_every_row_is_in_the_table_once_and_in_order() -> None:
    assert rows() == NUMBERS


def test_every_row_has_a_test_and_no_test_a_number_that_there_is_not() -> None:
    assert numbered().keys() == {*NUMBERS}


def test_the_document_is_up_to_date() -> None:
    """``python3 -m tests.hazards.table`` writes it."""
    assert DOCUMENT.read_text(encoding="utf-8") == document()


def test_what_is_found_is_what_is_collected(request: pytest.FixtureRequest) -> None:
    """Of the files that this run has collected, every numbered test is in the table."""
    collected = {
        f"{item.path.relative_to(table.TESTS).as_posix()}::{item.function.__name__}"
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path.is_relative_to(table.TESTS)
    }
    carrying = {test for test in collected if table.NUMBERED.match(test.partition("::")[2])}
    assert carrying <= {test for tests in numbered().values() for test in tests}
