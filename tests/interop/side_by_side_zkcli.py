"""Forty tasks, each done by zkwire and by ZooKeeper's own shell, on a real server.

    python3 -m tests.interop.side_by_side_zkcli           compares with the table in docs/command.md
    python3 -m tests.interop.side_by_side_zkcli --write   writes it

The tasks are the rows of that table: a new one needs its first three cells.  Each begins with the
nodes of `NODES`, those about the quota of ``/app/dir`` with that.  Where zkCli needs several
commands, ``; `` separates them.  What is compared: the nodes afterwards, and the exit statuses.
The processor time, of all processes that a task has taken, is written as seen; only `--write` looks
at it.
"""

from __future__ import annotations

import os
import re
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from tests.check.environment import ROOT
from tests.interop import pages
from tests.support.installed_servers import InstalledBackend, find_installed
from zkwire import Client, NoNodeError

PAGE = pages.DOCUMENTS / "command.md"
NAME = "zkcli"
HEAD = ("task", "`zkwire`", "`zkCli.sh`", "nodes", "status", "keystrokes", "CPU, ms")
NODES = {
    "/app": b"",
    "/app/config": b"limit=10",
    "/app/binary": b"\x00\x01\xfe\xff",
    "/app/dir": b"",
    "/app/dir/inner": b"x",
}
QUOTAS = "/zookeeper/quota"
SECONDS = 300


class Task(NamedTuple):
    """One task: what it is, and how each of the two does it."""

    what: str
    zkwire: str
    zkcli: str

    @property
    def keystrokes(self) -> str:
        """Those of the whole lines."""
        lines = [f"zkCli.sh {command}" for command in self.zkcli.split("; ")]
        return f"{len('zkwire ' + self.zkwire)} / {sum(map(len, lines))}"


TASKS = [
    Task(*cells)
    for cells in re.findall(r"^\| (.+?) \| `(.+?)` \| `(.+?)` \| .* / ", PAGE.read_text(), re.M)
]


class Done(NamedTuple):
    """What one of the two has done: the nodes afterwards, its exit status, its times."""

    nodes: dict[str, object]
    status: int
    milliseconds: float
    elapsed: float


def prepare(client: Client, task: Task) -> None:
    """Leave nothing but what a task begins with."""
    for folder in ("/", f"{QUOTAS}/"):
        for name in client.get_children(folder.rstrip("/") or "/"):
            if name != "zookeeper":
                client.delete_tree(folder + name)
    for path, data in NODES.items():
        client.create(path, data)
    if re.match("quota .* /app/dir", task.zkwire):
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
            command, capture_output=True, env=environment, stdin=subprocess.DEVNULL,
            timeout=SECONDS, check=False,
        )  # fmt: skip
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


def row(task: Task, ours: Done, theirs: Done) -> tuple[str, ...]:
    """The cells of one line of the table."""
    same = "the same" if ours.nodes == theirs.nodes else "**differ**"
    statuses = f"{ours.status} / {theirs.status}"
    times = f"{ours.milliseconds:.0f} / {theirs.milliseconds:.0f}"
    names = task.what, f"`{task.zkwire}`", f"`{task.zkcli}`"
    return (*names, same, statuses, task.keystrokes, times)


def everything() -> str:
    """The table, and the medians of its times in a sentence."""
    backend, rows, seen = find_installed(), [], []
    with backend.standalone() as server, Client(server.hosts, session_timeout=40.0) as client:
        run(client, TASKS[0], with_zkwire(server.hosts, TASKS[0]))  # bytecode is there from now on
        for task in TASKS:
            ours = run(client, task, with_zkwire(server.hosts, task))
            theirs = run(client, task, with_zkcli(backend, server.hosts, task))
            rows.append(row(task, ours, theirs))
            seen.append((*ours[2:], *theirs[2:]))
            print(pages.row(rows[-1]), end="", flush=True)
            if ours.nodes != theirs.nodes:
                print("   ", sorted(map(str, ours.nodes.items() ^ theirs.nodes.items())))
    cpu, elapsed, their_cpu, their_elapsed = map(statistics.median, zip(*seen, strict=True))
    return pages.table(HEAD, rows) + (
        f"\nMedians: {cpu:.0f} ms of CPU for `zkwire` and {their_cpu:.0f} ms for `zkCli.sh`, in "
        f"{elapsed:.0f} and {their_elapsed:.0f} ms.\n"
    )


def without_times(table: str) -> set[str]:
    """The rows, each without its last cell."""
    return {line.rpartition(" | ")[0] for line in table.splitlines()}


def main() -> int:
    table, page = everything(), PAGE.read_text()
    print(table.splitlines()[-1])
    if "--write" in sys.argv:
        return pages.settle({PAGE: pages.with_parts(page, {NAME: table})}, write=True)
    differing = without_times(table) ^ without_times(pages.part(page, NAME))
    print("\n".join(sorted(differing)) or "as the page says")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
