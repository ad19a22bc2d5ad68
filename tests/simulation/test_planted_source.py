"""The bugs of `tests/simulation/planted/`: the tests named with each of them find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulation.planted.bugs import load
from tests.simulation.planted.laboratory import Laboratory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.planted.bugs import Bug

BUGS = load()


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    with Laboratory() as laboratory:
        yield laboratory


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_planted_bug_is_found(laboratory: Laboratory, bug: Bug) -> None:
    result = laboratory.run(bug, bug.tests())
    assert not result.errors, "\n".join(result.errors)
    assert result.failed, f"no test finds it:\n{result.output}"
    print(*result.failed)


def test_each_has_a_rule_of_its_own() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)
