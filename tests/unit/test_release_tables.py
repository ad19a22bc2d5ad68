"""docs/operations.md shows the outcomes that are stored, and they are those of all rows."""

from __future__ import annotations

import re

from tests.interop.matrix import rows, table
from tests.support.operation_samples import OPERATIONS


def test_the_document_shows_what_is_stored() -> None:
    text = table.DOCUMENT.read_text()
    assert table.replaced(text, table.stored()) == text


def test_each_release_has_each_row() -> None:
    for outcomes in table.stored().values():
        assert {part: list(rows) for part, rows in outcomes.items()} == {
            part: list(titles) for part, titles in table.TITLES.items()
        }


def test_each_operation_has_its_row() -> None:
    titles = " ".join(rows.OPERATIONS)
    assert OPERATIONS - set(re.findall(r"`(\w+)`", titles)) == rows.NEEDS_A_SWITCH
