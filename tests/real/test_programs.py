"""What users write: each program of a few lines comes back by itself when its session is killed.

The programs with zkwire are those of docs/supervisor.md, the same with kazoo are here.  Imports are
not counted, and neither is what the program is about: `work`, `configure`, `use`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import pytest

import zkwire
from tests.support.family_helpers import soon
from tests.support.lock_helpers import LONG, Running
from tests.support.server_control import ZooKeeperServer
from zkwire import Client, NodeExistsError, Supervisor

PAGE = Path(__file__).resolve().parents[2] / "docs" / "supervisor.md"
KAZOO = {
    "election with fail-over": """
client = KazooClient(HOSTS)
client.start()
election = client.Election("/app/leader", "me")
election.run(work)
""",
    "configuration forever": """
client = KazooClient(HOSTS)
client.start()
client.DataWatch("/app/config", configure)
wait()
""",
    "registration": """
client = KazooClient(HOSTS)
def register():
    client.create("/app/members/web-1", b"10.0.0.5:80", ephemeral=True, makepath=True)
def listen(state):
    if state == KazooState.CONNECTED:
        client.handler.spawn(register)
client.add_listener(listen)
client.start()
wait()
""",
    "discovery": """
client = KazooClient(HOSTS)
client.start()
client.ensure_path("/app/members")
def changed(names):
    found = {}
    for name in names:
        found[name] = client.get(f"/app/members/{name}")[0]
    use(found)
client.ChildrenWatch("/app/members", changed)
wait()
""",
    "tree cache": """
client = KazooClient(HOSTS)
client.start()
cache = AsyncCache(client, "/app")
cache.listen(use)
cache.start()
wait()
""",
}


class Program(NamedTuple):
    """The same service, written twice."""

    name: str
    zkwire: str
    kazoo: str


_FOUND = re.findall(
    r"^\*([^*\n]+):\*\n\n```py(\n.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE
)
_ZKWIRE = {name[:1].lower() + name[1:]: code for name, code in _FOUND}
PROGRAMS = tuple(Program(name, _ZKWIRE[name], kazoo) for name, kazoo in KAZOO.items())


def lines(program: str) -> int:
    """Lines that are not blank."""
    return sum(1 for line in program.splitlines() if line.strip())


def section() -> str:
    """What docs/supervisor.md shows of the programs."""
    found = ["| program, lines | zkwire | kazoo |", "| --- | ---: | ---: |"]
    found += [f"| {p.name} | {lines(p.zkwire)} | {lines(p.kazoo)} |" for p in PROGRAMS]
    for program in PROGRAMS:
        found += ["", f"*{program.name.capitalize()}:*", "", f"```py{program.zkwire}```"]
    return "\n".join(found) + "\n"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_it_is_short_and_documented(program: Program) -> None:
    assert lines(program.zkwire) <= lines(program.kazoo)
    assert not any(word in program.zkwire for word in ("while", "sleep", "except"))
    assert section() in PAGE.read_text()


def change(client: Client, n: int) -> None:
    """Change whatever the programs look at."""
    for path in ("/app", "/app/members", f"/app/members/m{n}", "/app/config"):
        with suppress(NodeExistsError):
            client.create(path)
    client.set_data("/app/config", b"%d" % n)


def knows(program: str, seen: list[Any], client: Client, session: int, n: int) -> bool:
    """Whether the program has come to terms with the ``n``-th change, in this session."""
    match program:
        case "election with fail-over":
            return len(seen) > n and bool(seen[-1].held)
        case "configuration forever":
            return bool(seen) and seen[-1].data == b"%d" % n
        case "registration":
            stat = client.exists("/app/members/web-1")
            return stat is not None and stat.ephemeral_owner == session
        case "discovery":
            return bool(seen) and f"m{n}" in seen[-1]
        case _:
            return any(event.path == "/app/config" and event.data == b"%d" % n for event in seen)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_it_survives_a_killed_session(
    zookeeper: ZooKeeperServer, fresh_path: str, program: Program
) -> None:
    hosts, seen, made = zookeeper.hosts + fresh_path, list[Any](), SimpleQueue[Supervisor]()

    def supervised(hosts: str) -> Supervisor:
        made.put(supervisor := Supervisor(hosts, session_timeout=LONG))
        return supervisor

    def work(lock: Any) -> None:
        seen.append(lock)
        lock.lost.wait()

    names = {
        **{name: getattr(zkwire, name) for name in ("PersistentNode", "Group", "Cache")},
        "HOSTS": hosts,
        "Supervisor": supervised,
        "work": work,
        "configure": seen.append,
        "use": seen.append,
    }
    with Client(zookeeper.hosts) as admin, Client(hosts, session_timeout=LONG) as client:
        admin.create(fresh_path)
        change(client, 0)
        running = Running(lambda: exec(program.zkwire, names))
        with made.get(timeout=LONG) as supervisor:
            for n in range(4):
                old = supervisor.client(LONG)
                told = partial(knows, program.name, seen, client, old.session_id, n)
                soon("it knows", told, LONG)
                with Client(hosts, resume=old.credentials):
                    pass  # its end is the session's
                soon("another", lambda id=old.session_id: supervisor.client(LONG).session_id != id)  # type: ignore[misc]
                change(client, n + 1)
        with suppress(zkwire.ClientClosedError):
            running.result(LONG)
        admin.delete_tree(fresh_path)
