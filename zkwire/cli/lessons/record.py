"""What happens in a lesson, kept and told, and the words for the reader.

Everything is kept, so that a lesson takes its numbers from the run.  Where it happens is for the
stage to decide: on a virtual clock, or on a server.
"""

from __future__ import annotations

from contextlib import contextmanager

from zkwire.cli.lessons.event import ASK, EXPECT, FOLD, FRAME, NOTE, PROSE, SAY, TABLE, Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Protocol

    from zkwire.testing.proxy.frames import Frame

    class Named(Protocol):
        """A client of a stage."""

        name: str


class Record:
    """Events, and expectations.  ``tell`` gets each event that is to be shown.

    ``failures``: the expectations that did not hold.
    """

    def __init__(self, tell: Callable[[Event], object]) -> None:
        self.failures: list[str] = []
        self.checks: int = 0
        self.events: list[Event] = []
        self.shown: list[Event] = []
        self._show = tell
        self._quiet = False

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        raise NotImplementedError

    def _tell(self, event: Event) -> None:
        self.events.append(event)
        if event.kind in PROSE or event.kind == FOLD or not self._quiet:
            self.shown.append(event)
            self._show(event)

    # --- what has happened ------------------------------------------------------------------------

    def frames(self, client: Named, op: str, direction: str = "") -> list[Frame]:
        """The client's frames so far, of one operation or of all (""), ``c2s``, ``s2c`` or both.

        ``connect``, ``ping``, ``auth`` and ``notification`` are operations here.
        """
        return [
            event.frame
            for event in self.events
            if event.frame is not None
            and event.actor == client.name
            and op in {"", event.frame.op}
            and direction in {"", event.frame.direction}
        ]

    def traffic(self, begin: float) -> list[Frame]:
        """All requests, replies and events of watches from that moment on."""
        kinds = {"request", "reply", "notification"}
        frames = [e.frame for e in self.events if e.frame is not None and e.time >= begin]
        return [frame for frame in frames if frame.kind in kinds]

    @contextmanager
    def quiet(self, what: str) -> Generator[None]:
        """A context whose frames are counted and not shown; ``what`` they are about."""
        begin, self._quiet = len(self.events), True
        try:
            yield
        finally:
            self._quiet = False
            frames = [e.frame for e in self.events[begin:] if e.kind == FRAME and e.frame]
            size = sum(len(frame.raw) for frame in frames)
            actors = dict.fromkeys(event.actor for event in self.events[begin:] if event.actor)
            text = f"{what}: {len(frames)} frames, {size:,} bytes"
            self._tell(Event(self.now, FOLD, text, " ".join(actors)))

    # --- words ------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """A paragraph for the reader."""
        self._tell(Event(self.now, SAY, " ".join(text.split())))

    def ask(self, text: str) -> None:
        """A question, which the reader answers before the lesson goes on."""
        self._tell(Event(self.now, ASK, " ".join(text.split())))

    def note(self, name: str, text: str, *, well: bool = True) -> None:
        """A row for what the client of this name does beside the wire."""
        self._tell(Event(self.now, NOTE, f"{name} {text}", name, passed=well))

    def table(self, *rows: Sequence[object]) -> None:
        """Rows of numbers from the run, the first of them with the names of the columns."""
        self._tell(Event(self.now, TABLE, "", rows=rows))

    def expect(self, condition: object, words: str) -> None:
        """The lesson fails unless the condition is true; ``words`` say what it is."""
        self.checks += 1
        passed = bool(condition)
        if not passed:
            self.failures.append(words)
        self._tell(Event(self.now, EXPECT, words, passed=passed))
