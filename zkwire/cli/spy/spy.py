"""``zkwire spy``: a proxy between clients and servers that shows, keeps and breaks what passes.

In a run, signals, the end of the program and times all arrive at one place, the queue of events, so
the end is always the same: what has passed is written, then the drawings.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from queue import Empty
from time import monotonic
from typing import Any

from zkwire.cli import output as statuses
from zkwire.cli.command import Command, Group, UsageError, arg, duration, flag, integer
from zkwire.cli.context import Context
from zkwire.cli.files import handled, recording, whole
from zkwire.cli.output import Output, host_port, only_ascii, printable
from zkwire.cli.spy import records
from zkwire.cli.spy.message import operations
from zkwire.cli.spy.records import Privacy, Record, Recorder
from zkwire.cli.spy.tap import KINDS, Event, Faults, Tap
from zkwire.session.hosts import parse_hosts

HAPPENINGS = frozenset({"open", "close", "fault"})
FORMATS = ("text", "jsonl", "svg", "none")
ENDINGS = {"txt": "text", "log": "text", "jsonl": "jsonl", "svg": "svg"}
MOST = 300


class Filter:
    """Which records are shown; what is forwarded is none of its business.

    ``pings``, ``op``, ``path``, ``session`` and ``errors_only`` are as the command has them.
    ValueError for an operation or a session that cannot be.  A reply is shown for its own path or
    for that of its request.  Faults are always shown.
    """

    def __init__(self, asked: Namespace) -> None:
        names = [name for word in asked.op for name in word.split(",")]
        kinds = [(name,) if name in HAPPENINGS else operations(name) for name in names]
        self._ops = {op for kind in kinds for op in kind}
        self._hidden = {"ping"} - self._ops if not asked.pings else set[str]()
        self._path = asked.path
        self._session = f"{int(asked.session, 16):#x}" if asked.session else None
        self._errors = bool(asked.errors_only)

    def shows(self, record: Record) -> bool:
        """Whether this record is shown."""
        op = record["op"]
        if op == "fault":
            return True
        if op in self._hidden or (self._ops and op not in self._ops):
            return False
        if self._session is not None and record.get("session") != self._session:
            return False
        if self._errors and not records.failed(record):
            return False
        return self._path is None or any(
            fnmatchcase(p, self._path) for p in records.paths_of(record)
        )


# --- outputs --------------------------------------------------------------------------------------
# Text and jsonl are written as records come; a drawing is made at the end, of the first ``MOST``
# records, and says how many are left out.


class Outputs:
    """What goes to standard output as ``form``, and the files."""

    def __init__(self, form: str, paths: list[str], output: Output, *, tables: bool) -> None:
        self._output, self._tables = output, tables
        self._drawn: list[Record] = []
        self.count: int = 0
        wanted: list[tuple[str, str | None]] = [(form, None)] if form != "none" else []
        wanted += [(ENDINGS[path.rpartition(".")[2]], path) for path in paths]
        self._open: list[tuple[str, Any]] = []
        with ExitStack() as files:
            for name, place in wanted:
                opened = whole if name == "svg" else recording
                file = None if place is None else files.enter_context(opened(place))
                self._open.append((name, file))
            self._files = files.pop_all()

    def show(self, record: Record) -> None:
        """Write a record; a recording that cannot be written ends, the run goes on."""
        self.count += 1
        if self.count <= MOST:
            self._drawn.append(record)
        for name, file in [*self._open]:
            lines = () if name == "svg" else self._lines(name, file, record)
            try:
                for text, colour in lines:
                    if file is None:
                        self._output.line(text, colour=colour, flush=True)
                    else:
                        file.write(printable(text) + "\n")
                        file.flush()
            except OSError as error:
                if file is None:
                    raise
                self._open.remove((name, file))
                with suppress(OSError):  # what it has kept
                    file.close()
                self._output.note(f"the recording ends here: {error.strerror or error}")

    def _lines(self, name: str, file: object, record: Record) -> Iterator[tuple[str, str]]:
        """The lines of a record, with their colours."""
        if name == "jsonl":
            yield json.dumps(record), ""
            return
        (width, plain), op, colour = terminal(file), record["op"], ""
        if op in ("fault", "close") or record.get("err") or "problem" in record or "lost" in record:
            colour = "red"
        elif op == "ping":
            colour = "dim"
        rows = records.table(record, width) if self._tables else ()
        for text in (records.line(record, width), *rows):
            yield records.in_ascii(text) if plain else text, colour
            colour = "dim"

    def finish(self) -> None:
        """Make the drawings, close the files."""
        with self._files:
            for name, file in self._open:
                if name == "svg":
                    drawn = records.as_svg(self._drawn, self.count - len(self._drawn)).encode()
                    (self._output.bytes if file is None else file.write)(drawn)


def terminal(file: object) -> tuple[int, bool]:
    """How wide lines may be, and whether only ASCII can be shown."""
    if file is not None:
        return records.WIDEST, False
    plain = only_ascii()
    if sys.stdout is None or not sys.stdout.isatty():
        return records.WIDEST, plain
    return max(40, min(records.WIDEST, shutil.get_terminal_size((80, 24)).columns)), plain


# --- a run ----------------------------------------------------------------------------------------

_LAST_WORDS = 2.0  # seconds for the connections of a program that has ended
_PATIENCE = 5.0  # seconds between SIGTERM and SIGKILL


def _spy(context: Context, asked: Namespace) -> int:
    """
    zkwire spy 127.0.0.1:2181                 # then point a client at its address
    zkwire spy 127.0.0.1:2181 -- myclient {}  # run one through it
    zkwire spy --fault cut-after:create HOST:PORT -- myclient {}
    zkwire spy -o run.svg 127.0.0.1:2181      # and a drawing, at the end

    The words behind -- are a program that is run with {} replaced by the address of
    the spy; its exit status is the spy's.  Bytes pass untouched, whatever is shown.
    Ctrl-C ends it, and drawings are written.  For `create`,
    `getChildren` and `setWatches` all kinds of them count.
    """
    faults, shown = Faults(asked.fault), Filter(asked)
    listen = _listen(asked.listen)
    for path in asked.output:
        if path.rpartition(".")[2] not in ENDINGS:
            raise UsageError(f"-o {path}: the name must end in .{', .'.join(ENDINGS)}")
    hosts, chroot = parse_hosts(asked.upstream)
    upstreams = [host_port(*host) for host in hosts]
    form = asked.format or ("jsonl" if context.output.json else "text")
    try:
        tap = Tap(upstreams, faults, listen)
        try:
            outputs = Outputs(form, asked.output, context.output, tables=asked.hex)
        except BaseException:
            tap.close()
            raise
    except OSError as error:
        raise statuses.with_status(error, statuses.FAILED) if asked.program else error from None
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
        self._recorder = Recorder(tap.start, Privacy(asked.data), rows=asked.hex)

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
            return statuses.BY_SIGNAL + ended
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
            raise statuses.cannot_run(words[0], error) from None
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
        return status if status >= 0 else statuses.BY_SIGNAL - status

    def _wait(self) -> None:
        self.process.wait()
        self._ended()


# fmt: off
PROXY = (
    arg("-l", "--listen", default="127.0.0.1:0", metavar="HOST:PORT",
        help="where to listen (a free port of 127.0.0.1); several servers get ports from PORT on"),
    arg("--fault", action="append", default=[], metavar="SPEC", help=f"do this, too: {KINDS}"),
    arg("-n", "--count", type=integer("number from 1 on", 1), metavar="COUNT",
        help="end after this many shown messages"),
    arg("--for", dest="seconds", type=duration, metavar="TIME", help="end after this time"),
)
SHOWN = (
    flag("--pings", "pings, too"),
    arg("--op", action="append", default=[], metavar="LIST",
        help="only these operations, such as create,setData,open,close"),
    arg("--path", metavar="GLOB", help="only messages about such a path; * also matches /"),
    arg("--session", metavar="HEX", help="only this session"),
    flag("--errors-only", "only refusals and malformed bytes"),
    arg("--data", choices=("none", "size", "text", "hex"), default="size",
        help="of nodes' data show nothing, the size (default), or 64 bytes as text or hex"),
    flag("--hex", "a table of its bytes below each message"),
)
HOW = (
    arg("-f", "--format", choices=FORMATS, metavar="FORMAT",
        help="what standard output gets: text (default), jsonl, svg, or none"),
    arg("-o", "--output", action="append", default=[], metavar="FILE",
        help="write a file as well: .txt or .log, .jsonl or .svg; may be repeated"),
)
COMMANDS = {
    "spy": Command(_spy,
        arg("upstream", metavar="UPSTREAM", help="HOST:PORT[,...] of the servers"),
        Group("the proxy", PROXY), Group("what is shown", SHOWN), Group("how", HOW),
        in_shell=False, connects=False, runs_program=True),
}
