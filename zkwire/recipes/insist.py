"""What must be done, whatever interrupts it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TRIES = 8


def insist(step: Callable[[], object]) -> None:
    """Call ``step`` until it returns; then raise what has interrupted it, if anything has.

    The step must be one that can be repeated.  What interrupts it each time (a full stack) is
    raised with the step undone.
    """
    interrupt: BaseException | None = None
    for _ in range(TRIES):
        try:
            step()
            break
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
