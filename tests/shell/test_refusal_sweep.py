"""Every recipe, refused each of its requests once with each plausible code: a part of them.

Which quarter is a matter of the seed.  With ``ZKWIRE_REFUSALS=all``, and by ``python3 -m
tests.refusals``, which also writes docs/refusals.md, all are tried.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.conftest import SEED
from tests.refusals import document
from tests.refusals.lives import CELLS
from tests.support.examples import STRIDE
from zkwire.testing.kit import Life, Refusal, sweep_refusals

APART = 1 if os.environ.get("ZKWIRE_REFUSALS") == "all" else 4 * STRIDE
PAGE = document.read(document.PATH.read_text())

pytestmark = pytest.mark.own_server


def some(every: list[Refusal]) -> list[Refusal]:
    return every[SEED % APART :: APART]


@pytest.mark.parametrize(
    ("title", "life", "kind"), CELLS, ids=[f"{title}-{kind.__name__}" for title, _, kind in CELLS]
)
def test_a_recipe_refused_once_is_right_or_raises(title: str, life: Life, kind: type[Any]) -> None:
    rows: document.Rows = {}
    document.add(rows, sweep_refusals(life, kind, chosen=some))
    assert document.untold(PAGE[document.recipe_of(title)], rows) == []
