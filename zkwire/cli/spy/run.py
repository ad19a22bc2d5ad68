"""One run of the spy: events from the proxy become records, until something ends it.

Signals, the end of the program and times all arrive at one place, the queue of events, so the end
is always the same: what has passed is written, then the drawings, then the statistics.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from functools import partial
from queue import Empty
from time import monotonic

from zkwire.cli.exits import BY_SIGNAL, FAILED, with_status
from zkwire.cli.spy.program import Program
from zkwire.cli.spy.records import Recorder
from zkwire.cli.spy.tap import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Generator

    from zkwire.cli.context import Context
    from zkwire.cli.spy.details import Privacy
    from zkwire.cli.spy.faults import Faults
    from zkwire.cli.spy.filters import Filter
    from zkwire.cli.spy.outputs import Outputs
    from zkwire.cli.spy.stats import Stats
    from zkwire.cli.spy.tap import Tap

_LAST_WORDS = 2.0  # seconds for the connections of a program that has ended


class Run:
    """See the module's docstring."""

    def __init__(
        self,
        context: Context,
        asked: Namespace,
        shown: Filter,
        outputs: Outputs,
        stats: Stats | None,
        open_tap: Callable[[list[str], Faults, tuple[str, int]], Tap],
    ) -> None:
        self._context = context
        self._open_tap = open_tap
        self._asked = asked
        self._filter = shown
        self._outputs = outputs
        self._stats = stats
        self._timers: list[tuple[float, Callable[[], object]]] = []
        self._program: Program | None = None

    def run(
        self,
        upstreams: list[str],
        chroot: str,
        faults: Faults,
        listen: tuple[str, int],
        privacy: Privacy,
        *,
        rows: bool,
    ) -> int:
        """Run until the end; the exit status."""
        try:
            tap = self._open_tap(upstreams, faults, listen)
        except OSError as error:
            self._outputs.abandon(error)
            raise with_status(error, FAILED) if self._asked.program else error from None
        recorder = Recorder(tap.start, privacy, rows=rows)
        self._set_timers(tap, faults)
        try:
            with _signals(lambda number: self._signal(tap, number)):
                address = ",".join(tap.hosts) + chroot
                self._context.output.note(f"listening on {address}, for {self._asked.upstream}")
                if self._asked.program:
                    ended = partial(_put, tap, "exit", "")
                    self._program = Program(self._asked.program, address, ended)
                number = self._take_all(tap, recorder)
        finally:
            status = self._program.finish() if self._program is not None else 0
            tap.close()
            try:
                self._drain(tap, recorder)
            finally:  # the reader of the text may have ended, and there are files
                self._outputs.finish(self._stats)
        if self._program is not None:
            return status
        return BY_SIGNAL + number if number in (signal.SIGTERM, signal.SIGHUP) else 0

    def _signal(self, tap: Tap, number: int) -> None:
        """Send it on at once, as the output may wait for its reader; or have it end the run."""
        if self._program is None:
            _put(tap, "signal", str(number))
        elif number != signal.SIGINT:  # the terminal sends that to both
            self._program.send(number)

    def _set_timers(self, tap: Tap, faults: Faults) -> None:
        for fault in faults.timed:
            at = tap.start + fault.at
            if fault.kind == "expire":
                self._timers.append((at, partial(tap.expire_all, fault)))
            else:
                self._timers.append((at, partial(tap.freeze, fault, True)))
                self._timers.append((at + fault.seconds, partial(tap.freeze, fault, False)))
        if self._asked.seconds is not None:
            at = tap.start + self._asked.seconds
            self._timers.append((at, lambda: _put(tap, "time", "")))
        self._timers.sort(key=lambda timer: timer[0])

    def _take_all(self, tap: Tap, recorder: Recorder) -> int:
        """Take events until the end; the number of the signal that has brought it, or 0."""
        last = False
        while not (last and not tap.connections):
            event = self._next(tap)
            if event.what == "exit":
                last = True
                tap.settle()
                self._timers = [(monotonic() + _LAST_WORDS, lambda: _put(tap, "time", ""))]
            elif event.what == "signal" and self._program is not None:  # from before it began
                self._signal(tap, int(event.detail))
            elif event.what == "signal":
                return int(event.detail)
            elif event.what == "time":
                return 0
            else:
                self._show(recorder, event)
            if self._enough:
                return 0
        return 0

    @property
    def _enough(self) -> bool:
        return self._asked.count is not None and self._outputs.count >= self._asked.count

    def _next(self, tap: Tap) -> Event:
        while True:
            while self._timers and self._timers[0][0] <= monotonic():
                self._timers.pop(0)[1]()
            wait = max(self._timers[0][0] - monotonic(), 0.0) if self._timers else None
            try:
                return tap.events.get(timeout=wait)
            except Empty:
                continue

    def _drain(self, tap: Tap, recorder: Recorder) -> None:
        """What has passed until the end."""
        while not tap.events.empty():
            event = tap.events.get()
            if event.what in ("frame", "open", "close", "fault"):
                self._show(recorder, event)

    def _show(self, recorder: Recorder, event: Event) -> None:
        record = recorder.record(event)
        if self._enough or not self._filter.shows(record):
            return
        if self._stats is not None:
            self._stats.add(record)
        self._outputs.show(record)


def _put(tap: Tap, what: str, detail: str) -> None:
    tap.events.put(Event(0, monotonic(), 0, what, detail))


@contextmanager
def _signals(heard: Callable[[int], object]) -> Generator[None]:
    """Of SIGINT, SIGTERM and SIGHUP the first is heard, and the second ends the run at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def handle(number: int, _: object) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt
        heard(number)

    before = {
        number: signal.signal(number, handle)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
