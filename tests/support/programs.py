"""What users write for a service that outlives a session, with zkwire and with kazoo.

The programs with zkwire are those of docs/supervisor.md.  Imports are not counted, and neither is
what the program is about: `work`, `configure`, `use`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

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
