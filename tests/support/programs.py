"""What users write for a service that outlives a session, with zkwire and with kazoo.

Imports are not counted, and neither is what the program is about: `work`, `configure`, `use`.
"""

from __future__ import annotations

from typing import NamedTuple


class Program(NamedTuple):
    """The same service, written twice."""

    name: str
    zkwire: str
    kazoo: str


PROGRAMS = (
    Program(
        "election with fail-over",
        """
with Supervisor(HOSTS) as supervisor:
    supervisor.lead("/app/leader", work)
    supervisor.wait()
""",
        """
client = KazooClient(HOSTS)
client.start()
election = client.Election("/app/leader", "me")
election.run(work)
""",
    ),
    Program(
        "configuration forever",
        """
with Supervisor(HOSTS) as supervisor:
    supervisor.watch_data("/app/config", configure)
    supervisor.wait()
""",
        """
client = KazooClient(HOSTS)
client.start()
client.DataWatch("/app/config", configure)
wait()
""",
    ),
    Program(
        "registration",
        """
with Supervisor(HOSTS) as supervisor:
    PersistentNode(supervisor, "/app/members/web-1", b"10.0.0.5:80")
    supervisor.wait()
""",
        """
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
    ),
    Program(
        "discovery",
        """
with Supervisor(HOSTS) as supervisor, Group(supervisor, "/app/members") as group:
    for members in group.changes():
        use({member.name: member.data for member in members})
""",
        """
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
    ),
    Program(
        "tree cache",
        """
with Supervisor(HOSTS) as supervisor, Cache(supervisor, "/app", on_event=use) as cache:
    cache.wait_ready()
    supervisor.wait()
""",
        """
client = KazooClient(HOSTS)
client.start()
cache = AsyncCache(client, "/app")
cache.listen(use)
cache.start()
wait()
""",
    ),
)


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
