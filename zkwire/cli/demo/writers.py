"""The demo's first scene: several processes write to one file, without a lock and with one.

A writer puts each line into the file in pieces, like a program that needs several system calls for
a line.  The processes begin together: each watches for a node, the gate, until it is created.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from zkwire import BlockingLock, Client, NodeExistsError, NonBlockingLock, SequentialLock, Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.cli.demo.processes import Processes
    from zkwire.cli.demo.screen import Screen

PROCESSES = 4
LINES = 4
PIECES = 6
# Long enough for the other processes to write in between, if no lock prevents it.
PIECE_SECONDS = 0.002
LOCKS = {"nonblocking": NonBlockingLock, "blocking": BlockingLock, "sequential": SequentialLock}


def scene(screen: Screen, processes: Processes, hosts: str, root: str, folder: Path) -> None:
    """All four rounds."""
    screen.heading("1. Many processes, one file")
    screen.say(
        f"{PROCESSES} processes write {LINES} lines each, every line in {PIECES} pieces: first "
        "without a lock, then with each of three locks. A line begins with the lock's fence, a "
        "number that rises with every acquire."
    )
    for kind in ("none", *LOCKS):
        lines = _round(processes, hosts, f"{root}/{kind}", folder / f"{kind}.txt", kind)
        whole = [line for line in lines if _fence(line) is not None]
        for line in lines[:2]:
            screen.show(line)
        if kind == "none":
            screen.check("without a lock the lines are mixed up", len(whole) < PROCESSES * LINES)
            continue
        fences = [fence for line in whole if (fence := _fence(line)) is not None]
        screen.check(
            f"{LOCKS[kind].__name__}: {len(whole)} of {PROCESSES * LINES} lines are whole, and "
            "each fence is higher than the one before",
            len(whole) == len(lines) == PROCESSES * LINES and fences == sorted(set(fences)),
        )


def _round(processes: Processes, hosts: str, path: str, file: Path, kind: str) -> list[str]:
    with Client(hosts) as client:
        client.create(path)
        for number in range(PROCESSES):
            processes.start("writer", hosts, path, str(file), kind, str(number))
        # Each writer shows that it is ready with a child of the path.
        while len(client.get_children(path, watch=(watch := Watch()))) < PROCESSES:
            if watch.wait(10.0) is None:
                break
        watch.close()
        client.create(f"{path}/gate")
        processes.wait()
    return file.read_text(errors="replace").splitlines()


def _fence(line: str) -> int | None:
    """The fence at the beginning of a whole line; None for a line that is mixed up."""
    words = line.split()
    whole = len(words) == PIECES + 2 and len(set(words[1:-1])) == 1
    return int(words[0]) if whole and words[0].isdigit() and words[-1] == "." else None


def writer(hosts: str, path: str, file: str, kind: str, number: str) -> int:
    """The main function of one writing process."""
    with Client(hosts) as client, Path(file).open("ab", buffering=0) as out:
        _wait_at_gate(client, path, number)
        lock = LOCKS[kind](client, f"{path}-lock") if kind != "none" else None
        for _ in range(LINES):
            while lock is not None and not lock.acquire():
                time.sleep(PIECE_SECONDS)  # a non-blocking lock does not wait
            fence = lock.fence if lock is not None else 0
            for piece in (str(fence), *[f"writer-{number}"] * PIECES, ".\n"):
                os.write(out.fileno(), f"{piece} ".encode() if piece != ".\n" else b".\n")
                time.sleep(PIECE_SECONDS)
            if lock is not None:
                lock.release()
    return 0


def _wait_at_gate(client: Client, path: str, number: str) -> None:
    watch = Watch()
    if client.exists(f"{path}/gate", watch=watch) is None:
        try:
            client.create(f"{path}/ready-{number}")
        except NodeExistsError:
            sys.exit("zkwire: a writer with this number runs already")
        watch.wait(20.0)
    watch.close()
