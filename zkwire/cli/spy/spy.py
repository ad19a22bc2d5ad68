"""``zkwire spy``: a proxy between clients and servers that shows, keeps and breaks what passes.

In a run, signals, the end of the program and times all arrive at one place, the queue of events, so
the end is always the same: what has passed is written, then the drawings.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from argparse import Namespace
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from queue import Empty
from time import monotonic

from zkwire.cli.command import Command, Group, UsageError, arg, duration, flag, integer
from zkwire.cli.context import Context
from zkwire.cli.interrupts import handled
from zkwire.cli.output import BY_SIGNAL, FAILED, cannot_run, host_port, with_status
from zkwire.cli.spy.outputs import FORMATS, Filter, Outputs, Pair
from zkwire.cli.spy.records import Privacy, Recorder
from zkwire.cli.spy.tap import KINDS, Event, Faults, Tap
from zkwire.session.hosts import parse_hosts

_LAST_WORDS = 2.0  # seconds for the connections of a program that has ended
_PATIENCE = 5.0  # seconds between SIGTERM and SIGKILL


def _spy(context: Context, asked: Namespace) -> int:
    """
    zkwire spy 127.0.0.1:2181                 # then point a client at its address
    zkwire spy 127.0.0.1:2181 -- myclient {}  # run one through it
    zkwire spy --fault cut-after:create HOST:PORT -- myclient {}
    zkwire spy -f text -f svg -o run.svg HOST:PORT   # lines, and a drawing

    The words behind -- are a program that is run with {} replaced by the address of
    the spy; its exit status is the spy's.  Bytes pass untouched, whatever is shown.
    Ctrl-C ends it, and drawings are written.  For `create`,
    `getChildren` and `setWatches` all kinds of them count.
    """
    faults, shown = Faults(asked.fault), Filter(asked)
    listen = _listen(asked.listen)
    hosts, chroot = parse_hosts(asked.upstream)
    upstreams = [host_port(*host) for host in hosts]
    pairs = asked.pairs or [["jsonl" if context.output.json else "text", None]]
    try:
        outputs = Outputs(pairs, context.output, tables=asked.hex)
        try:
            tap = Tap(upstreams, faults, listen)
        except OSError as error:
            outputs.abandon(error)
            raise
    except OSError as error:
        raise with_status(error, FAILED) if asked.program else error from None
    return _Run(context, asked, shown, outputs, tap).run(faults, chroot)


def _listen(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise UsageError(f"--listen {text}: HOST:PORT, such as 127.0.0.1:2182")
    return host.strip("[]"), int(port)


class _Run:
    """One run: events from the proxy become records, until something ends it."""

    def __init__(
        self, context: Context, asked: Namespace, shown: Filter, outputs: Outputs, tap: Tap
    ) -> None:
        self._note = context.output.note
        self._asked, self._filter, self._outputs, self._tap = asked, shown, outputs, tap
        self._program: _Program | None = None
        self._timers: list[tuple[float, Callable[[], object]]] = []
        privacy = Privacy(asked.data, asked.max_data)
        self._recorder = Recorder(tap.start, privacy, rows=asked.hex)

    def run(self, faults: Faults, chroot: str) -> int:
        """Run until the end; the exit status."""
        status, tap, asked = 0, self._tap, self._asked
        self._set_timers(faults)
        try:
            with self._signals():
                address = ",".join(tap.hosts) + chroot
                self._note(f"listening on {address}, for {asked.upstream}")
                if asked.program:
                    self._program = _Program(asked.program, address, lambda: self._put("exit"))
                ended = self._take_all()
        finally:
            if self._program is not None:
                status = self._program.finish()
            tap.close()
            try:
                while not tap.events.empty():  # what has passed until the end
                    event = tap.events.get()
                    if event.what in ("frame", "open", "close", "fault"):
                        self._show(event)
            finally:  # the reader of the text may have ended, and there are files
                self._outputs.finish()
        if self._program is None and ended in (signal.SIGTERM, signal.SIGHUP):
            return BY_SIGNAL + ended
        return status

    def _set_timers(self, faults: Faults) -> None:
        tap, seconds = self._tap, self._asked.seconds
        for fault in faults.timed:
            at = tap.start + fault.at
            if fault.kind == "expire":
                self._timers.append((at, partial(tap.expire_all, fault)))
            else:
                self._timers.append((at, partial(tap.freeze, fault, True)))
                self._timers.append((at + fault.seconds, partial(tap.freeze, fault, False)))
        if seconds is not None:
            self._timers.append((tap.start + seconds, lambda: self._put("time")))
        self._timers.sort(key=lambda timer: timer[0])

    def _take_all(self) -> int:
        """Take events until the end; the number of the signal that has brought it, or 0."""
        last = False
        while not (last and not self._tap.connections):
            event = self._next()
            if event.what == "exit":
                last = True
                self._tap.settle()
                self._timers = [(monotonic() + _LAST_WORDS, lambda: self._put("time"))]
            elif event.what == "signal" and self._program is not None:  # from before it began
                self._signal(int(event.detail))
            elif event.what == "signal":
                return int(event.detail)
            elif event.what == "time":
                return 0
            else:
                self._show(event)
            if self._enough:
                return 0
        return 0

    @property
    def _enough(self) -> bool:
        return self._asked.count is not None and self._outputs.count >= self._asked.count

    def _next(self) -> Event:
        while True:
            while self._timers and self._timers[0][0] <= monotonic():
                self._timers.pop(0)[1]()
            wait = max(self._timers[0][0] - monotonic(), 0.0) if self._timers else None
            try:
                return self._tap.events.get(timeout=wait)
            except Empty:
                continue

    def _show(self, event: Event) -> None:
        record = self._recorder.record(event)
        if self._enough or not self._filter.shows(record):
            return
        self._outputs.show(record)

    def _put(self, what: str, detail: str = "") -> None:
        self._tap.events.put(Event(0, monotonic(), 0, what, detail))

    def _signal(self, number: int) -> None:
        """Send it on at once, as the output may wait for its reader; or have it end the run."""
        if self._program is None:
            self._put("signal", str(number))
        elif number != signal.SIGINT:  # the terminal sends that to both
            self._program.process.send_signal(number)

    @contextmanager
    def _signals(self) -> Generator[None]:
        """Of SIGINT, SIGTERM and SIGHUP the first is heard, and the second ends the run at once."""
        came: list[int] = []

        def handle(number: int, _: object) -> None:
            came.append(number)
            if len(came) > 1:
                raise KeyboardInterrupt
            self._signal(number)

        with handled(handle):
            yield


class _Program:
    """The program that is run as the client; ``{}`` in its words becomes the address.

    ``ended`` is called in a thread when it has ended.  OSError, with the exit status 126 or 127, if
    it cannot be started.
    """

    def __init__(self, words: list[str], address: str, ended: Callable[[], object]) -> None:
        words = [word.replace("{}", address) for word in words]
        try:
            self.process = subprocess.Popen(words)
        except OSError as error:
            raise cannot_run(words[0], error) from None
        self._ended = ended
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def finish(self) -> int:
        """End it if it still runs; its exit status, or 128 and the number of its signal."""
        self.process.terminate()
        try:
            status = self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self._thread.join()
        return status if status >= 0 else BY_SIGNAL - status

    def _wait(self) -> None:
        self.process.wait()
        self._ended()


# fmt: off
PROXY = (
    arg("-l", "--listen", default="127.0.0.1:0", metavar="HOST:PORT",
        help="where to listen (a free port of 127.0.0.1); several servers get ports from PORT on"),
    arg("--fault", action="append", default=[], metavar="SPEC", help=f"do this, too: {KINDS}"),
    arg("-n", "--count", type=integer("number from 1 on", 1), metavar="COUNT",
        help="end behind so many shown messages"),
    arg("--for", dest="seconds", type=duration, metavar="TIME", help="end after this time"),
)
SHOWN = (
    flag("--pings", "pings, too"),
    arg("--op", action="append", default=[], metavar="LIST",
        help="only these operations: create,setData, also open and close"),
    arg("--path", metavar="GLOB", help="only messages about such a path; * takes / as well"),
    arg("--session", metavar="HEX", help="only this session"),
    flag("--errors-only", "only replies that say no, and bad bytes"),
    arg("--data", choices=("none", "size", "text", "hex"), default="size",
        help="of nodes' data: nothing, its size (default), its text or its bytes"),
    arg("--max-data", type=integer("number from 0 on"), default=64, metavar="BYTES",
        help="at most so much of it (64)"),
    flag("--hex", "a table of its bytes below each message"),
)
HOW = (
    arg("-f", "--format", dest="pairs", action=Pair, choices=FORMATS, metavar="FORMAT",
        help="text (default), jsonl, svg, or none; several with -o"),
    arg("-o", "--output", dest="pairs", action=Pair, metavar="FILE",
        help="write the format before it to a file; without -f its ending says the format"),
)
COMMANDS = {
    "spy": Command(_spy,
        arg("upstream", metavar="UPSTREAM", help="HOST:PORT[,...] of the servers"),
        Group("the proxy", PROXY), Group("what is shown", SHOWN), Group("how", HOW),
        in_shell=False, connects=False, runs_program=True),
}
