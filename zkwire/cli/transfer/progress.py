"""How far a transfer is: one line on a terminal, which is gone at the end; else nothing."""

from __future__ import annotations

import sys
import time

from zkwire.cli.output import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from zkwire.cli.output import Output

EVERY = 0.2  # seconds
WIDTH = 79


class Progress:
    """The line of progress of one command; ``output.quiet`` switches it off."""

    def __init__(self, output: Output) -> None:
        self._on = not output.quiet and sys.stderr is not None and sys.stderr.isatty()

    def over(self, items: Iterable[Any], verb: str, total: int | None = None) -> Iterator[Any]:
        """The items, and how many there have been meanwhile, of how many if that is known."""
        if not self._on:
            yield from items
            return
        start = shown = time.monotonic()
        try:
            for done, item in enumerate(items, 1):
                yield item
                now = time.monotonic()
                if now - shown >= EVERY:
                    shown = now
                    self._show(progress_line(verb, done, total, now - start))
        finally:
            self._show("")

    @staticmethod
    def _show(text: str) -> None:
        tell(f"\r{text:{WIDTH}.{WIDTH}}\r", 0.0)


def progress_line(verb: str, done: int, total: int | None, seconds: float) -> str:
    """For example ``writing 1,200 of 5,000 nodes, 4,000/s, 0:01 left``."""
    speed = done / max(seconds, 1e-3)
    if total is None or total < done:
        return f"{verb} {done:,} nodes, {speed:,.0f}/s"
    minutes, rest = divmod(round((total - done) / speed), 60)
    return f"{verb} {done:,} of {total:,} nodes, {speed:,.0f}/s, {minutes}:{rest:02} left"
