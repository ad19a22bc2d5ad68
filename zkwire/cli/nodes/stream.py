"""What ``zkwire watch`` writes: a line for each change, until there are enough.

Each line is written at once, by the main thread alone: other threads put functions into a queue,
which is bounded, so a slow reader of the output slows them down.  A reader that has ended is
noticed within a second, even if nothing changes.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from queue import Empty, Full, Queue
from time import monotonic

from zkwire.cli.output import hex_id, now, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from zkwire.cli.output import Output

WIDTH = 80
LOOK_SECONDS = 1.0
QUEUED = 100
CHANGES = frozenset({"created", "changed", "deleted", "added", "removed", "children"})
MISSED = "changes before this line may have been missed"


class EnoughError(Exception):
    """There were as many changes as were asked for, or the time is over; ``status`` says which."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Stream:
    """The lines; ``count`` changes end it with the status 0, ``seconds`` with ``late``."""

    def __init__(self, output: Output, count: int | None, seconds: float | None, late: int) -> None:
        self._output = output
        self._left = count
        self._began = monotonic()
        self._until = None if seconds is None else self._began + seconds
        self._late = late
        self._queue: Queue[Callable[[], object]] = Queue(QUEUED)
        self._closed = False

    def put(self, write: Callable[[], object]) -> None:
        """Have ``write`` called by the main thread; blocks while there are too many."""
        while not self._closed:
            try:
                self._queue.put(write, timeout=LOOK_SECONDS)
            except Full:
                continue
            return

    def run(self) -> int:
        """Write until there are enough changes; the exit status.  Raises what ``write`` raises."""
        try:
            while True:
                self._next()()
        except EnoughError as enough:
            return enough.status

    def _next(self) -> Callable[[], object]:
        while True:
            left = LOOK_SECONDS if self._until is None else self._until - monotonic()
            try:
                return self._queue.get(timeout=max(0.0, min(left, LOOK_SECONDS)))
            except Empty:
                if left <= 0.0:
                    raise EnoughError(self._late) from None
                check_reader()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        while not self._queue.empty():  # a thread may wait for room
            self._queue.get()

    def change(
        self, kind: str, path: str = "", says: str = "", zxid: int | None = None, **more: object
    ) -> None:
        """One line; EnoughError behind the last that is wanted."""
        if self._output.json:
            self._record(kind, path, zxid, more)
        else:
            line = one_line(f"{kind} {path}".rstrip())
            self._output.line(_fitting(line, says), flush=True)
        if kind in CHANGES and self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise EnoughError(0)

    def gap(self, path: str) -> None:
        """Changes may have been missed."""
        self.change("gap", path, MISSED)

    def _record(self, kind: str, path: str, zxid: int | None, more: dict[str, object]) -> None:
        when = {"time": now(), "t": round(monotonic() - self._began, 3)}
        place = {"path": path} if path else {}
        known = {"zxid": hex_id(zxid)} if zxid is not None else {}
        self._output.record({"event": kind, **when, **place, **known, **more}, flush=True)


def _fitting(line: str, says: str) -> str:
    """``line: says``, where ``says`` is cut to what a line of a terminal has room for."""
    room = WIDTH - len(line) - 2
    said = one_line(says)
    if len(said) > room:
        said = said[: max(0, room - 3)] + "..."
    return f"{line}: {said}" if said and room > 3 else line


def check_reader() -> None:
    """BrokenPipeError if nothing reads the output any more."""
    if sys.stdout is None or sys.stdout.closed:
        return
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # it is no file
        return
    if any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0)):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
