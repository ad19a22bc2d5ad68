"""What keeps a service from being right at this moment, and when it is tried again.

The rule is in the docstring of :mod:`zkwire.recipes.services.service`.  It must not know how time
passes or where a line goes.
"""

from __future__ import annotations

from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    OnProblem = Callable[[Exception | None], object]

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds between a refusal and the next try: doubled each time, less up to a half of it."""


class Problem:
    """The refusal that stands: ``error``, None while all is right."""

    def __init__(self, on_problem: OnProblem | None, dispatch: Callable[..., object]) -> None:
        self.error: Exception | None = None
        self._pause = FIRST_PAUSE
        self._logged: set[tuple[object, ...]] = set()
        self._on_problem = on_problem
        self._dispatch = dispatch

    def stands(self, what: str, error: Exception, warn: Callable[[str], object]) -> float:
        """There is one; returns the seconds to wait before the next try, without jitter.

        ``what`` begins the line in the log.  An error of the same kind is logged once.
        """
        kind = type(error), getattr(error, "code", 0), getattr(error, "op", None)
        self.error = error.with_traceback(None)  # which would keep what was under way alive
        if kind not in self._logged:
            self._logged.add(kind)
            warn(f"{what}: {type(error).__name__}: {error}")
            self._tell()
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return pause

    def is_over(self) -> None:
        """All is right."""
        if self.error is not None:
            self.error = None
            self._logged.clear()
            self._tell()
        self._pause = FIRST_PAUSE

    def afresh(self) -> None:
        """Begin with the shortest pause, as in a new session."""
        self._pause = FIRST_PAUSE

    def _tell(self) -> None:
        if self._on_problem is not None:
            self._dispatch(partial(self._on_problem, self.error))


def check_on_problem(function: Any) -> None:
    """TypeError unless it is None or can be called."""
    if function is not None and not callable(function):
        raise TypeError(f"on_problem must be a function, not {function!r}")
