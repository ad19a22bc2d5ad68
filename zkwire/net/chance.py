"""Randomness, for the order of servers, for pauses and for the names of nodes."""

from __future__ import annotations

from functools import cached_property

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random
    from typing import Any


class Chance:
    """The methods of a ``random.Random``: of the system's source, or of ``seed``.

    It is made when it is first asked: a client of one server that makes no lock asks nothing, and
    to load it takes as long as a few round trips.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed

    @cached_property
    def _source(self) -> Random:
        from random import Random, SystemRandom

        return SystemRandom() if self._seed is None else Random(self._seed)

    def shuffle(self, items: list[Any]) -> None:
        """Bring them into a random order."""
        if len(items) > 1:
            self._source.shuffle(items)

    def random(self) -> float:
        """A number from 0.0 on, below 1.0."""
        return self._source.random()

    def getrandbits(self, count: int) -> int:
        """A number of so many bits."""
        return self._source.getrandbits(count)
