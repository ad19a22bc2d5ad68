"""What `zkwire ls /` costs from a cold start, and what each way to make it cheaper would save.

    python3 -m benchmarks.starting [--rounds N] [--update-readme]

Each round starts one process for each way, in turn, with bytecode compiled before.  The server is
the embedded one, in the process of the benchmark.
"""

# ruff: noqa: RUF001 - the sign for "times" is what a ratio is read as
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

from benchmarks.costs import Cost, median
from benchmarks.figures import this_machine, write_between
from benchmarks.processes import ROOT
from zkwire.testing import Server

BEGIN = "<!-- written by `python3 -m benchmarks.starting --update-readme` -->\n"
END = "<!-- end of the start -->\n"
TARGET = 1.3

FLOOR = """
import socket, struct, sys
def ask(body):
    server.sendall(struct.pack(">i", len(body)) + body)
    rest = struct.unpack(">i", server.recv(4))[0]
    return server.recv(rest)
host, port = sys.argv[1].split(":")
server = socket.create_connection((host, int(port)))
server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
ask(struct.pack(">iqiqi16s?", 0, 0, 10000, 0, 16, b"", False))
reply = ask(struct.pack(">iii1s?", 1, 8, 1, b"/", False))
at = 20
for _ in range(struct.unpack_from(">i", reply, 16)[0]):
    end = at + 4 + struct.unpack_from(">i", reply, at)[0]
    print(reply[at + 4 : end].decode())
    at = end
ask(struct.pack(">ii", 2, -11))
"""
NEEDED = """
import atexit, collections, enum, functools, gc, heapq, math, queue, selectors, socket, struct
import threading, types, weakref
"""
COMMAND = """
import sys
sys.argv[1:] = ["--server", sys.argv[1], "ls", "/"]
from zkwire.__main__ import run
"""
# Of a wheel's scripts, as pip writes them.
SCRIPT = COMMAND.replace("sys\n", "re, sys\n", 1) + "sys.exit(run())"
ARGPARSE = COMMAND.replace('"/"]', '"--", "/"]') + "sys.exit(run())"
GARBAGE = COMMAND.replace("__main__ import run", "cli.main import main") + "sys.exit(main())"
NO_EXIT = COMMAND + "status = run(); sys.stdout.flush(); import os; os._exit(status)"
PACK = (
    COMMAND
    + """
import marshal
run()
def code(module):
    with open(module.__spec__.cached, "rb") as file:
        return marshal.loads(file.read()[16:])
own = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "zkwire"}
packed = {name: (hasattr(module, "__path__"), code(module)) for name, module in own.items()}
with open("packed", "wb") as file:
    file.write(marshal.dumps(packed))
"""
)
PACKED = """
import sys, marshal
with open("packed", "rb") as file:
    packed = marshal.loads(file.read())
Spec = type(__spec__ or sys.__spec__)
class Finder:
    def find_spec(self, name, path=None, target=None):
        return Spec(name, self, is_package=packed[name][0]) if name in packed else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(packed[module.__name__][1], module.__dict__)
sys.meta_path.insert(0, Finder())
"""
REFERENCE = "`import socket, argparse`, the measure"
IMPORTS, FLOOR_WAY = "`import socket, struct`", "... and the same round trips on a bare socket"
WAYS = {
    REFERENCE: ["-c", "import socket, argparse"],
    "the interpreter alone": ["-c", "pass"],
    IMPORTS: ["-c", "import socket, struct"],
    FLOOR_WAY: ["-c", FLOOR],
    "what zkwire needs of the standard library": ["-c", NEEDED],
    "`zkwire ls /`": ["-c", SCRIPT],
    "`python3 -m zkwire ls /`": ["-m", "zkwire", "--server"],
    "... with `-I`, without the user's folder and variables": ["-I", "-c", COMMAND + "run()"],
    "... without `site`": ["-S", "-c", COMMAND + "run()"],
    "... by argparse, as for a line that is not plain": ["-c", ARGPARSE],
    "... with the usual search for garbage": ["-c", GARBAGE],
    "... ended by `os._exit`": ["-c", NO_EXIT],
    "... with zkwire's bytecode in one file": ["-c", PACKED + COMMAND + "run()"],
    "... in one file, ended by `os._exit`": ["-c", PACKED + NO_EXIT],
}


def run(words: list[str], hosts: str, directory: str) -> Cost:
    """The milliseconds of one process."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{directory}/bytecode"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPATH"] = str(ROOT)
    behind = ["ls", "/"] if words[-1] == "--server" else []
    if "-I" in words:  # which ignores the variables, too
        words = ["-I", "-X", f"pycache_prefix={directory}/bytecode", "-c", _with_path(words[-1])]
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words, hosts, *behind],
        cwd=directory,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{words} ended with {process.returncode}")
    return Cost(seconds * 1e3, (used.ru_utime + used.ru_stime) * 1e3)


def _with_path(code: str) -> str:
    return f"import sys\nsys.path.append({str(ROOT)!r})\n{code}"


def measure(rounds: int) -> dict[str, list[Cost]]:
    """What each way has cost, round by round."""
    found: dict[str, list[Cost]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as directory, Server() as server:
        run(["-c", COMMAND + "run()"], server.hosts, directory)  # compiles
        run(["-c", PACK], server.hosts, directory)
        for number in range(rounds + 1):
            for way, words in WAYS.items():
                cost = run(words, server.hosts, directory)
                if number:  # the first compiles what is missing
                    found[way].append(cost)
    return found


def table(rounds: int) -> str:
    """Milliseconds, and their proportion to the measure's."""
    found = measure(rounds)
    costs = {way: median(found[way]) for way in WAYS}
    of = costs[REFERENCE]
    trips = (one - other for one, other in zip(costs[FLOOR_WAY], costs[IMPORTS], strict=True))
    goal = Cost(*(TARGET * one + trip for one, trip in zip(of, trips, strict=True)))
    costs[f"the goal: {TARGET} × the measure and the round trips"] = goal
    machine = "; ".join(f"{what} {value}" for what, value in this_machine().items())
    lines = [
        f"{machine}. Median of {rounds} rounds, milliseconds of a process.",
        "",
        "| | CPU | × the measure | wall | × the measure |",
        "| --- |" + " ---: |" * 4,
    ]
    for way, cost in costs.items():
        lines.append(
            f"| {way} | {cost.cpu:.1f} | {cost.cpu / of.cpu:.2f} "
            f"| {cost.wall:.1f} | {cost.wall / of.wall:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--update-readme", action="store_true")
    asked = parser.parse_args()
    text = table(asked.rounds)
    print(text)
    if asked.update_readme:
        write_between(BEGIN, END, text)


if __name__ == "__main__":
    main()
