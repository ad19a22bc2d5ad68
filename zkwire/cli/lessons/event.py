"""What happens on a stage, one event at a time, for whatever shows it or keeps it."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.testing.proxy.frames import Frame

FRAME, CUT, END, SERVER, FOLD = "frame", "cut", "end", "server", "fold"
STOP, GO, HELD, FREE, NOTE = "stop", "go", "held", "free", "note"
SAY, ASK, EXPECT, TABLE = "say", "ask", "expect", "table"
PROSE = frozenset({SAY, ASK, EXPECT, TABLE})


class Event(NamedTuple):
    """One event, ``time`` seconds after the beginning.

    ``frame``: ``frame`` has passed between ``actor`` and ``server``.  ``cut``: their connection
    is lost.  ``end``: the client has seen the end of the connection.  ``server``: a change there.
    ``stop``, ``go``: the client's process or network stands still, and goes on.  ``held``,
    ``free``: a lock that a lesson follows is held by ``actor``, and no longer.
    ``note``: what a client does beside the wire, and whether that is well (``passed``).
    ``fold``: frames of these clients that are counted and not shown.  ``say``, ``ask``: words for
    the reader.  ``expect``: a condition that must hold, and whether it has (``passed``).
    ``table``: ``rows``.
    """

    time: float
    kind: str
    text: str
    actor: str = ""
    server: str = ""
    detail: str = ""
    frame: Frame | None = None
    passed: bool = True
    rows: Sequence[Sequence[object]] = ()
