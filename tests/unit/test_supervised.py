"""Which session a call has: that of its beginning, to its end."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from zkwire.blocking.run import run
from zkwire.recipes._recipe import Recipe, SupervisedRuntime


class Driver:
    def __init__(self, name: str) -> None:
        self.name = name


class Sessions:
    """A supervisor whose sessions follow one another when they are told to."""

    def __init__(self) -> None:
        self.latest_driver = Driver("first")
        self._recipe_runtime = SupervisedRuntime(self, nullcontext())

    async def newest(self) -> Driver:
        return self.latest_driver


class Asking(Recipe):
    """A recipe of two requests, between which something happens."""

    def __init__(self, client: Any, between: Any) -> None:
        self._runtime, self._between = client._recipe_runtime, between

    async def ask(self) -> list[str]:
        return [self._runtime.name, await self._other()]

    async def _other(self) -> str:
        self._between()
        name: str = self._runtime.name
        return name


def test_a_call_has_one_session_and_the_next_call_the_newest() -> None:
    sessions = Sessions()

    def expire() -> None:
        sessions.latest_driver = Driver("second")

    recipe = Asking(sessions, expire)
    assert run(recipe.ask()) == ["first", "first"]
    assert run(recipe.ask()) == ["second", "second"]
    assert type(recipe) is not Asking
    assert isinstance(recipe, Asking)


def test_a_call_that_fails_leaves_its_session() -> None:
    sessions = Sessions()

    def fail() -> None:
        raise KeyError

    recipe = Asking(sessions, fail)
    with pytest.raises(KeyError):
        run(recipe.ask())
    sessions.latest_driver = Driver("second")
    assert recipe._runtime.name == "second"
