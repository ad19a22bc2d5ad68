"""What threads cost that share a socket: ``python3 -m benchmarks.shared [--rounds N] [--write]``.

zkwire beside the least that a client for threads can be in Python: frames that are ready but for a
number in each, and a lock on which a thread sleeps.  It has no time limit, and cannot cope with an
interrupt or a lost connection.  In one form a thread of its own reads for all; in the other, as in
zkwire, one of those that wait does.  ``--write`` writes the table of docs/how-fast.md.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count as numbers
from statistics import median

from benchmarks.__main__ import measure
from benchmarks.compare import COUNT, Worker
from benchmarks.compare_worker import BASE, DATA, Side, Works, serve, spent
from benchmarks.pages import ROOT, number, preface, table, write
from benchmarks.servers import real_server, version_of
from benchmarks.wire import CHUNK, Bare, request

COMMAND = "benchmarks.shared --write"
PAGE = ROOT / "docs" / "how-fast.md"
WIDTHS = (2, 4, 8, 16, 64)


class Waiter:
    """A request, and the lock on which its thread sleeps."""

    def __init__(self) -> None:
        self.answered = False
        self.asleep = threading.Lock()
        self.asleep.acquire()

    def wake(self) -> None:
        with suppress(RuntimeError):  # it is awake
            self.asleep.release()


class OneReads(Works):
    """A thread of its own reads, and wakes each that has its answer."""

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.partition(":")
        self._bare = Bare((host, int(port)))
        self._bare.ask(request("create", BASE))
        self._bare.ask(request("set", BASE, DATA))
        frame = request("get", BASE)
        self._before, self._behind = frame[:4], frame[8:]
        self._mutex = threading.Lock()
        self._numbers = numbers(1)
        self._waiting: dict[int, Waiter] = {}
        self._received = bytearray()
        self._begin()

    def _begin(self) -> None:
        threading.Thread(target=self._read_for_all, daemon=True).start()

    def _read_for_all(self) -> None:
        while self._read():
            pass

    def _read(self) -> bool:
        """Receive once, and wake those whose answers have come; False at the end."""
        data, buffer = self._bare.socket.recv(CHUNK), self._received
        buffer += data
        at = 0
        while at + 4 <= len(buffer):
            end = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
            if end > len(buffer):
                break
            waiter = self._waiting.pop(int.from_bytes(buffer[at + 4 : at + 8], "big"))
            waiter.answered = True
            waiter.wake()
            at = end
        del buffer[:at]
        return bool(data)

    def get(self, count: int) -> None:
        for _ in range(count):
            waiter = Waiter()
            with self._mutex:
                xid = next(self._numbers)
                self._waiting[xid] = waiter
            self._bare.socket.send(self._before + xid.to_bytes(4, "big") + self._behind)
            self._wait(waiter)

    def _wait(self, waiter: Waiter) -> None:
        waiter.asleep.acquire()

    def close(self) -> None:
        self._bare.socket.close()


class OneOfThemReads(OneReads):
    """A thread that waits reads for all until its own answer has come; then another one does."""

    def _begin(self) -> None:
        self._reading = False

    def _wait(self, waiter: Waiter) -> None:
        while not waiter.answered:
            with self._mutex:
                leads, self._reading = not self._reading, True
            if not leads:
                waiter.asleep.acquire()
                continue
            while not waiter.answered:
                self._read()
            with self._mutex:
                self._reading = False
                follower = next(iter(self._waiting.values()), None)
            if follower is not None:
                follower.wake()


SIDES: dict[str, tuple[str, Callable[[str], Works]]] = {
    "zkwire": ("zkwire", partial(Side, name="zkwire")),
    "leader": ("bare, one of them reads", OneOfThemReads),
    "reader": ("bare, a thread reads", OneReads),
}


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.shared", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    lines: list[list[str]] = []
    with real_server() as (host, port), ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name in SIDES:
            workers[name] = Worker(["-m", "benchmarks.shared", name, f"{host}:{port}"])
            stack.callback(workers[name].close)
        for width in WIDTHS:
            rounds = measure(workers, f"threads {width}", asked.rounds, COUNT)
            found = [
                number(median(each[name][what] for each in rounds))
                for what in ("CPU µs", "voluntary switches")
                for name in SIDES
            ]
            lines.append([str(width), *found])
            print(" | ".join(lines[-1]), flush=True)
        about = preface(version_of((host, port)), f"{asked.rounds} rounds.")
    names = [name for name, _ in SIDES.values()]
    heads = ["threads", *(f"CPU µs: {name}" for name in names), *(f"switches: {n}" for n in names)]
    if asked.write:
        write(COMMAND, f"{about}\n\n{table(heads, lines)}", PAGE)
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] in SIDES:
        serve(SIDES[sys.argv[1]][1](sys.argv[2]), spent)
    else:
        sys.exit(main())
