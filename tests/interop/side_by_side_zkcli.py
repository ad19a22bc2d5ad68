"""Forty tasks, each done by zkwire and by ZooKeeper's own shell, on a real server.

    python3 -m tests.interop.side_by_side_zkcli           compares with the table in docs/command.md
    python3 -m tests.interop.side_by_side_zkcli --write   writes it

What is compared: the nodes afterwards, and the exit statuses.  The processor time, of all processes
that a task has taken, is written as seen; only `--write` looks at it.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.check.environment import ROOT
from tests.interop import pages
from tests.interop.zkcli_tasks import NODES, TASKS, Task
from tests.support.installed_servers import InstalledBackend, find_installed
from zkwire import Client, NoNodeError

PAGE = pages.DOCUMENTS / "command.md"
NAME = "zkcli"
BEGIN, END = pages.marks(NAME)
HEAD = pages.table(
    ["task", "`zkwire`", "`zkCli.sh`", "nodes", "status", "keystrokes", "CPU, ms"], []
)
QUOTAS = "/zookeeper/quota"
SECONDS = 300


class Done(NamedTuple):
    """What one of the two has done: the nodes afterwards, its exit status, its times."""

    nodes: dict[str, object]
    status: int
    milliseconds: float
    elapsed: float


def prepare(client: Client, task: Task) -> None:
    """Leave nothing but what a task begins with."""
    for name in client.get_children("/"):
        if name != "zookeeper":
            client.delete_tree(f"/{name}")
    for name in client.get_children(QUOTAS):
        client.delete_tree(f"{QUOTAS}/{name}")
    for path, data in NODES.items():
        client.create(path, data)
    if task.quota:
        client.ensure_path(f"{QUOTAS}/app/dir")
        client.create(f"{QUOTAS}/app/dir/zookeeper_limits", b"count=50,bytes=-1")
        client.create(f"{QUOTAS}/app/dir/zookeeper_stats", b"count=0,bytes=0")


def nodes_of(client: Client) -> dict[str, object]:
    """What can be seen of each node, but ids and times."""
    found: dict[str, object] = {}
    for path in client.walk():
        try:
            data, stat = client.get_data(path)
            acl = tuple(client.get_acl(path).acl)
        except NoNodeError:
            continue
        found[path] = data, stat.version, stat.aversion, bool(stat.ephemeral_owner), acl
    return found


def run(client: Client, task: Task, commands: Sequence[Sequence[str]]) -> Done:
    """Do it; the status is that of the first command that fails."""
    prepare(client, task)
    status, before = 0, resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for command in commands:
        done = subprocess.run(
            command,
            capture_output=True,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
        status = status or done.returncode
    elapsed = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Done(nodes_of(client), status, seconds * 1000, elapsed * 1000)


def with_zkwire(hosts: str, task: Task) -> list[list[str]]:
    return [[sys.executable, "-m", "zkwire", "-s", hosts, *shlex.split(task.zkwire)]]


def with_zkcli(backend: InstalledBackend, hosts: str, task: Task) -> list[list[str]]:
    # As zkCli.sh starts it.
    java = [
        *(backend.java, "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"),
        *("-cp", backend.classpath, "org.apache.zookeeper.ZooKeeperMain", "-server", hosts),
    ]
    return [[*java, *shlex.split(command)] for command in task.zkcli.split("; ")]


def row(task: Task, ours: Done, theirs: Done) -> str:
    """One line of the table."""
    same = "the same" if ours.nodes == theirs.nodes else "**differ**"
    keys = f"{len('zkwire ' + task.zkwire)} / {keystrokes(task)}"
    statuses = f"{ours.status} / {theirs.status}"
    times = f"{ours.milliseconds:.0f} / {theirs.milliseconds:.0f}"
    cells = task.what, f"`{task.zkwire}`", f"`{task.zkcli}`", same, statuses, keys, times
    return pages.row(cells)


def keystrokes(task: Task) -> int:
    """Those of all lines that zkCli takes."""
    return sum(len(f"zkCli.sh {command}") for command in task.zkcli.split("; "))


def rows() -> Iterator[tuple[str, Done, Done]]:
    backend = find_installed()
    with backend.standalone() as server, Client(server.hosts, session_timeout=40.0) as client:
        run(client, TASKS[0], with_zkwire(server.hosts, TASKS[0]))  # bytecode is there from now on
        for task in TASKS:
            ours = run(client, task, with_zkwire(server.hosts, task))
            theirs = run(client, task, with_zkcli(backend, server.hosts, task))
            line = row(task, ours, theirs)
            print(line, end="", flush=True)
            if ours.nodes != theirs.nodes:
                print("   ", sorted(map(str, ours.nodes.items() ^ theirs.nodes.items())))
            yield line, ours, theirs


def medians(seen: Sequence[tuple[str, Done, Done]]) -> str:
    """The times of all tasks, in a sentence."""

    def both(time: str) -> list[str]:
        return [f"{statistics.median(getattr(one[i], time) for one in seen):.0f}" for i in (1, 2)]

    (ours, theirs), elapsed = both("milliseconds"), both("elapsed")
    return (
        f"Medians: {ours} ms of CPU for `zkwire` and {theirs} ms for `zkCli.sh`, in "
        f"{elapsed[0]} and {elapsed[1]} ms.\n"
    )


def without_times(table: str) -> list[str]:
    """The rows, each without its last cell."""
    return [line.rpartition(" | ")[0] for line in table.splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    seen = list(rows())
    table = HEAD + "".join(line for line, _, _ in seen) + "\n" + medians(seen)
    print(medians(seen))
    page = PAGE.read_text()
    if options.write:
        PAGE.write_text(pages.with_parts(page, {NAME: table}))
        return 0
    old = pages.part(page, NAME)
    differing = set(without_times(table)) ^ set(without_times(old))
    print("\n".join(sorted(differing)) or "as the page says")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
