"""What users write: each program of a few lines comes back by itself when its session is killed.

The programs with zkwire are those of docs/supervisor.md, the same with kazoo are here.  Imports are
not counted, and neither is what the program is about: `work`, `configure`, `use`.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import zkwire
from tests.support.lock_helpers import LONG
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import Client, NodeExistsError, NoNodeError, Supervisor

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


class Run:
    """One program that runs in a thread, under a chroot of its own."""

    def __init__(self, program: Program, hosts: str) -> None:
        self.supervisors: list[Supervisor] = []
        self.terms: list[int] = []
        self.seen: list[Any] = []
        self.killed = threading.Event()
        names = {
            "HOSTS": hosts,
            "Supervisor": self._supervisor,
            "work": self._work,
            "configure": lambda seen: self.seen.append(seen.data),
            "use": self.seen.append,
            **{name: getattr(zkwire, name) for name in ("PersistentNode", "Group", "Cache")},
        }
        self.thread = threading.Thread(target=self._run, args=(program.zkwire, names))
        self.thread.start()

    def _run(self, program: str, names: dict[str, Any]) -> None:
        with suppress(zkwire.ClientClosedError):
            exec(program, names)

    def _supervisor(self, hosts: str) -> Supervisor:
        supervisor = Supervisor(hosts, session_timeout=LONG)
        self.supervisors.append(supervisor)
        return supervisor

    def _work(self, lock: Any) -> None:
        self.terms.append(lock.fence)
        lock.lost.wait()

    def end(self) -> None:
        """Close its supervisor; the program ends with it."""
        self.supervisors[0].close()
        self.thread.join(LONG)
        assert not self.thread.is_alive()


def _changed(client: Client, n: int) -> None:
    """Change whatever the programs look at."""
    for path in ("/app", "/app/members", f"/app/members/m{n}", "/app/config"):
        with suppress(NodeExistsError):
            client.create(path)
    client.set_data("/app/config", b"%d" % n)


def _knows(run: Run, client: Client, name: str, n: int) -> bool:
    session = run.supervisors[0].client(LONG).session_id
    match name:
        case "election with fail-over":
            if not run.terms:
                return False
            owners = [
                client.exists(f"/app/leader/{node}") for node in client.get_children("/app/leader")
            ]
            return run.terms[-1] in [
                stat.czxid for stat in owners if stat and stat.ephemeral_owner == session
            ]
        case "configuration forever":
            return run.seen[-1:] == [b"%d" % n]
        case "registration":
            with suppress(NoNodeError):
                seen = client.get_data("/app/members/web-1")
                return seen.data == b"10.0.0.5:80" and seen.stat.ephemeral_owner == session
            return False
        case "discovery":
            return bool(run.seen) and f"m{n}" in run.seen[-1]
        case _:
            return any(
                event.path == "/app/config" and event.data == b"%d" % n for event in run.seen
            )


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_it_survives_a_killed_session(
    zookeeper: ZooKeeperServer, fresh_path: str, program: Program
) -> None:
    with Client(zookeeper.hosts, session_timeout=LONG) as admin:
        admin.create(fresh_path)
        with Client(zookeeper.hosts + fresh_path, session_timeout=LONG) as client:
            _changed(client, 0)
            run = Run(program, zookeeper.hosts + fresh_path)

            def back(n: int) -> bool | None:
                return _knows(run, client, program.name, n) or None

            try:
                poll("the program has begun", lambda: run.supervisors or None, LONG)
                for n in range(3):
                    poll("it knows", partial(back, n), LONG)
                    _kill(run.supervisors[0], zookeeper.hosts)
                    _changed(client, n + 1)
                poll("it knows", partial(back, 3), LONG)
            finally:
                run.end()
        admin.delete_tree(fresh_path)


def _kill(supervisor: Supervisor, hosts: str) -> None:
    """End the session behind its back; the next one is another."""
    old = supervisor.client(LONG)
    with Client(hosts, resume=old.credentials):
        pass
    poll("another", lambda: supervisor.client(LONG).session_id != old.session_id or None, LONG)
