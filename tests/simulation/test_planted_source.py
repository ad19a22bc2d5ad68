"""The bugs of `tests/simulation/planted/`: the tests named with each of them find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulation.planted.bugs import StaleBugError, load
from tests.simulation.planted.laboratory import Laboratory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.planted.bugs import Bug

BUGS = load()
LAYERS = {bug.layer: bug for bug in BUGS}


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


@pytest.mark.parametrize("bug", LAYERS.values(), ids=LAYERS)
def test_without_a_bug_nothing_is_found(laboratory: Laboratory, bug: Bug) -> None:
    result = laboratory.run(bug._replace(becomes=bug.text), bug.tests())
    assert not result.errors
    assert not result.failed, result.output
    assert result.passed > 0


def test_a_text_that_is_not_there_is_an_error_with_the_bugs_name() -> None:
    with pytest.raises(StaleBugError, match=r"^jute: .*\nzkwire/jute/.* has this text 0 times"):
        LAYERS["jute"]._replace(text="no such text").planted()


def test_there_are_enough_and_each_has_a_rule_of_its_own() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 100
