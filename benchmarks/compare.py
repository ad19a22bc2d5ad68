"""Two commits, or trees, of zkwire in one run: ``python3 -m benchmarks.compare A B [WORK...]``.

Each side is a process of its own, on one real ZooKeeper.  The rounds go in turn, A B B A, so that
what else happens on the machine meets both.  Printed is, for each work and operation: the median of
A and of B, and B : A with the range of its middle half.  Time, of the whole process, is noisy, so
the steps of Python (calls and instructions, by thread) and the system calls, counted with `strace`
in a run of their own, stand beside it: these say whether a ratio comes from the code.

A or B is a revision or a folder.  WORK is get, create, create_1000, free_lock, event, ``window N``
(N requests in flight) or ``threads N``; without it a standard list.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.servers import real_server

ROOT = Path(__file__).resolve().parent.parent
WORKER = Path(__file__).with_name("compare_worker.py")
WORKS = (
    "get", "create", "window 10", "window 1000", "create_1000", "free_lock", "event", "threads 8",
)  # fmt: skip
COUNTS = {"get": 1500, "create": 1500, "window": 4000, "create_1000": 2000, "threads": 2400}
COUNT = 600
STEPS = 200
"""Operations in a run that counts; a multiple of what a work does at once."""


def count_of(work: str, least: int) -> int:
    """How many operations are done at once; a multiple of the width of the work."""
    width = int(work.partition(" ")[2] or (1000 if work == "create_1000" else 1))
    return max(1, least // width) * width


class Worker:
    """The process of one side, with the zkwire of this tree."""

    def __init__(self, words: Sequence[str], tree: Path = ROOT, mode: str = "time") -> None:
        command = [sys.executable, *words, mode]
        self._log: Path | None = None
        if mode == "system calls":
            self._log = Path(tempfile.mkstemp(prefix="zkwire-strace-")[1])
            command = ["strace", "-f", "-qq", "-o", str(self._log), *command]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env={**os.environ, "PYTHONPATH": str(tree)},
        )  # fmt: skip
        (loaded,) = self._said().values()
        if Path(str(loaded)).parent != tree:
            raise RuntimeError(f"a side runs {loaded} and not {tree}")

    def _said(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a side has ended with status {self._process.wait()}")
        said: dict[str, float] = json.loads(line)
        return said

    def do(self, work: str, count: int) -> dict[str, float]:
        assert self._process.stdin is not None
        before = self._calls()
        self._process.stdin.write(json.dumps({"work": work, "count": count}) + "\n")
        said = self._said()
        if self._log is not None:
            return {name: n / count for name, n in (self._calls() - before).items()}
        return said

    def _calls(self) -> Counter[str]:
        """The system calls so far, by name."""
        text = self._log.read_text(errors="replace") if self._log is not None else ""
        return Counter(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._log is not None:
            self._log.unlink()


@contextmanager
def tree_of(name: str) -> Iterator[Path]:
    """The folder that is named, or one with the package of that revision."""
    if (Path(name) / "zkwire").is_dir():
        yield Path(name).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="zkwire-compare-") as folder:
        archive = subprocess.run(
            ["git", "archive", name, "zkwire"], cwd=ROOT, check=True, capture_output=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        yield Path(folder).resolve()


@contextmanager
def sides(trees: Sequence[Path], hosts: str, mode: str) -> Iterator[list[Worker]]:
    """The process of A and that of B."""
    with ExitStack() as stack:
        workers: list[Worker] = []
        for tree, name in zip(trees, "ab", strict=True):
            workers.append(Worker([str(WORKER), hosts, name], tree, mode))
            stack.callback(workers[-1].close)
        yield workers


def timed(workers: Sequence[Worker], work: str, rounds: int, least: int) -> list[dict[str, object]]:
    """The rows of one work: the medians of A and B, and B : A round by round."""
    count = count_of(work, COUNTS.get(work.partition(" ")[0], least))
    for worker in workers:
        worker.do(work, count)
    seen: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(rounds):
        first, second = (0, 1) if number % 2 == 0 else (1, 0)
        found = {side: workers[side].do(work, count) for side in (first, second)}
        seen.append((found[0], found[1]))
    return [row(what, [(a[what], b[what]) for a, b in seen]) for what in seen[0][0]]


def row(what: str, pairs: Sequence[tuple[float, float]]) -> dict[str, object]:
    """One figure of both sides."""
    ratios = sorted(b / a for a, b in pairs if a)
    quarter = len(ratios) // 4
    return {
        "what": what,
        "A": statistics.median(a for a, _ in pairs),
        "B": statistics.median(b for _, b in pairs),
        "B : A": statistics.median(ratios) if ratios else None,
        "middle half": [ratios[quarter], ratios[-1 - quarter]] if ratios else None,
    }


def counted(workers: Sequence[Worker], work: str) -> list[dict[str, object]]:
    """What both sides do in one operation, the least of three runs."""
    count = count_of(work, STEPS)
    runs = [[worker.do(work, count) for _ in range(4)][1:] for worker in workers]
    names = dict.fromkeys(name for side in runs for run in side for name in run)
    least = [{n: min(run.get(n, 0.0) for run in side) for n in names} for side in runs]
    return [row(n, [(least[0][n], least[1][n])]) for n in names if max(s[n] for s in least) >= 0.05]


def show(work: str, rows: Sequence[Mapping[str, object]]) -> None:
    print(f"\n{work}")
    for each in rows:
        a, b, ratio, half = (each[name] for name in ("A", "B", "B : A", "middle half"))
        shown = f"{ratio:7.3f}" if isinstance(ratio, float) else "      -"
        if isinstance(half, list) and half[0] != half[1]:
            shown += f"   ({half[0]:.3f} to {half[1]:.3f})"
        print(f"  {each['what']:28} {a:10.2f} {b:10.2f} {shown}", flush=True)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python3 -m benchmarks.compare", description=summary, epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument("works", metavar="WORK", nargs="*")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--count", type=int, default=COUNT, help="operations in a round, at least")
    parser.add_argument("--no-counts", action="store_true", help="time alone")
    parser.add_argument("--no-time", action="store_true", help="counts alone")
    parser.add_argument("--json", type=Path)
    return parser.parse_intermixed_args(arguments)


def main() -> int:
    options = parse(sys.argv[1:])
    works = options.works or WORKS
    found: dict[str, list[dict[str, object]]] = {work: [] for work in works}
    modes = ["time"] * (not options.no_time) + ["steps"] * (not options.no_counts)
    if not options.no_counts and shutil.which("strace"):
        modes.append("system calls")
    with ExitStack() as stack:
        host, port = stack.enter_context(real_server())
        trees = [stack.enter_context(tree_of(name)) for name in (options.a, options.b)]
        for mode in modes:
            print(f"\n== {mode}, for one operation: {'A':>14} {'B':>10}   B : A")
            with sides(trees, f"{host}:{port}", mode) as workers:
                for work in works:
                    rows = (
                        timed(workers, work, options.rounds, options.count)
                        if mode == "time"
                        else counted(workers, work)
                    )
                    show(work, rows)
                    found[work] += rows
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
