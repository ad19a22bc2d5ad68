"""The tasks by aiozk, in an environment of its own: tasks_aiozk.py HOSTS.

It has no methods for authentication, sync, reconfiguration and the removal of watches, but their
requests, which its `send` takes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from itertools import count
from typing import Any

from aiozk import ACL, ZKClient, exc, protocol
from aiozk.states import States

OUT, sys.stdout = sys.stdout, sys.stderr  # it prints unknown codes
TYPES = {1: "CREATED", 2: "DELETED", 3: "CHANGED", 4: "CHILDREN"}
SESSION_SECONDS = 10.0


def shown(value: Any) -> str:
    """A result without times and zxids."""
    if isinstance(value, protocol.stat.Stat):
        owned = "owned" if value.ephemeral_owner else "not owned"
        versions = value.version, value.child_version, value.acl_version
        return f"{versions} {owned} {value.data_length} bytes {value.num_children} children"
    if isinstance(value, ACL):
        return f"{value.id.scheme}:{value.id.id}:{value.perms:05b}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, protocol.response.Response):
        return f"{type(value).__name__} {shown([getattr(value, name) for name, _ in value.parts])}"
    return f"{value}"


class Tasks:
    """One client, its calls and the events that it gets."""

    def __init__(self, hosts: str, chroot: str | None = None) -> None:
        self.zk = ZKClient(hosts, chroot=chroot, session_timeout=SESSION_SECONDS)
        self.task = ""
        self.events: asyncio.Queue[str] = asyncio.Queue()
        self._numbers = count()

    def tell(self, call: str, result: object) -> None:
        print(f"{self.task}: {call} = {shown(result)}", file=OUT, flush=True)

    async def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client, and tell what it returns or raises."""
        words = [*map(shown, arguments), *(f"{key}={shown(v)}" for key, v in options.items())]
        await self._told(f"{name} {' '.join(words)}", getattr(self.zk, name)(*arguments, **options))

    async def send(self, name: str, **fields: Any) -> None:
        """Send a request that has no method."""
        request = getattr(protocol, f"{name}Request")(**fields)
        await self._told(f"{name} {shown(list(fields.values()))}", self.zk.send(request))

    async def _told(self, call: str, result: Awaitable[Any]) -> None:
        try:
            self.tell(call, sorted(r) if isinstance(r := await result, list) else r)
        except exc.ResponseError as error:
            self.tell(call, f"{error.error_code} {type(error).__name__}")

    def listen(self, path: str) -> None:
        """Have all events of a node in `events`; after a cut it asks for all of them anew."""
        for kind, name in TYPES.items():

            def came(of: str, name: str = name) -> None:
                self.events.put_nowait(f"{name} {of}")

            self.zk.session.add_watch_callback(kind, path, came)

    async def told_events(self) -> None:
        """Tell those that have come or are on their way."""
        last = f"/last-{next(self._numbers)}"
        self.listen(last)
        await self.zk.exists(last, watch=True)
        await self.zk.create(last)
        found: list[str] = []
        while not (event := await self.events.get()).endswith(last):
            found.append(event)
        for key in [key for key in self.zk.session.watch_callbacks if key[1] == last]:
            del self.zk.session.watch_callbacks[key]
        self.tell("events", found)

    async def change(self, name: str, *arguments: Any, **options: Any) -> None:
        await self.call(name, *arguments, **options)
        await self.told_events()

    async def ask(self, request: str, *states: str) -> None:
        """Have this program's other end act, and tell the states that the session comes to.

        By itself aiozk finds the end of a connection when its session is about to expire.
        """
        session = self.zk.session.state
        change = session.wait_for(states[0])
        print(f"! {request}", file=OUT, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        if session == States.CONNECTED:
            session.transition_to(States.SUSPENDED)
        for number, state in enumerate(states, 1):
            await change
            self.tell("state", state)
            if number < len(states):
                change = session.wait_for(states[number])


async def nodes(t: Tasks) -> None:
    t.task = "nodes"
    await t.call("create", "/t", b"x")
    await t.call("create", "/t", b"y")
    await t.call("create", "/none/x")
    await t.call("get", "/t")
    await t.call("set", "/t", b"yy", -1)
    await t.call("get", "/t")
    for name in ("get", "get_children", "get_acl", "delete", "exists"):
        await t.call(name, "/none")
    await t.call("set", "/none", b"x", -1)
    await t.call("create", "/t/ü", "ä")
    await t.call("delete", "/t")
    await t.call("deleteall", "/t")
    await t.call("ensure_path", "/t/a/b")
    await t.call("get", "/t/a")
    t.task = "versions"
    await t.call("create", "/t/v", b"0")
    for version in (0, 0, 1):
        await t.call("set", "/t/v", b"1", version)
    await t.send("Delete", path="/t/v", version=1)
    await t.send("Delete", path="/t/v", version=2)
    t.task = "sequence"
    for ephemeral in (False, False, True):
        await t.call("create", "/t/s-", b"x", sequential=True, ephemeral=ephemeral)
    t.task = "ephemeral"
    await t.call("create", "/t/e", b"x", ephemeral=True)
    await t.call("create", "/t/e/x")
    await t.call("get", "/t/e")
    t.task = "children"
    await t.call("get_children", "/t")
    await t.call("get_children", "/t/e")
    t.task = "exists"
    await t.call("exists", "/t")
    await t.call("exists", "/t/none")
    t.task = "container"
    await t.call("create", "/t/box", container=True)
    await t.call("get", "/t/box")
    t.task = "sync"
    await t.send("Sync", path="/t")
    await t.send("Sync", path="/none")
    t.task = "configuration"
    await t.call("get", "/zookeeper/config")
    servers = {"joining_servers": "", "leaving_servers": "3", "new_members": ""}
    await t.send("Reconfig", **servers, current_config_id=-1)


async def access(t: Tasks) -> None:
    t.task = "acl"
    await t.call("get_acl", "/t")
    every = {"read": True, "write": True, "create": True, "delete": True, "admin": True}
    mine = ACL.make("auth", "", **every)
    await t.call("create", "/t/early", acl=[mine])
    await t.send("Auth", type=0, scheme="digest", auth=b"u:p")
    await t.call("create", "/t/mine", acl=[mine])
    await t.call("get_acl", "/t/mine")
    await t.call("set_acl", "/t/mine", [ACL.make("ip", "10.0.0.1", read=True)], force=True)
    await t.call("get", "/t/mine")
    await t.call("get_acl", "/t/mine")
    await t.call("exists", "/t/mine")
    await t.call("create", "/t/mine/x")
    await t.call("create", "/t/read", acl=[ACL.make("world", "anyone", read=True)])
    await t.call("set", "/t/read", b"x", -1)
    await t.call("delete", "/t/read", force=True)
    for scheme, name in (("none", "x"), ("digest", "x"), ("ip", "x"), ("world", "x")):
        await t.call("create", "/t/wrong", acl=[ACL.make(scheme, name, **every)])
    await t.send("SetACL", path="/t", acl=[ACL.make("world", "anyone", **every)], version=7)


async def transactions(t: Tasks) -> None:
    t.task = "transactions"
    for version in (0, 1):
        together = t.zk.begin_transaction()
        together.check_version("/t", version)
        together.create("/t/m", b"x")
        together.create("/t/m/s-", b"x", sequential=True, ephemeral=True)
        together.set_data("/t/m", b"y", 0)
        together.delete("/t/m/s-0000000000")
        try:
            done = await together.commit()
            found = [sorted(found) for found in vars(done).values()]
            t.tell(f"check version {version}, create, set, delete", found)
        except exc.ZKError as error:
            t.tell(f"check version {version}, create, set, delete", f"{error}")
    await t.call("get", "/t/m")


async def watches(t: Tasks) -> None:
    t.task = "watches"
    t.listen("/t/w")
    await t.call("exists", "/t/w", watch=True)
    await t.change("create", "/t/w", b"x")
    await t.call("get", "/t/w", watch=True)
    await t.change("set", "/t/w", b"y", -1)
    await t.change("set", "/t/w", b"z", -1)
    await t.call("get_children", "/t/w", watch=True)
    await t.change("create", "/t/w/x")
    await t.change("create", "/t/w/y")
    await t.call("get_children", "/t/w", watch=True)
    await t.call("exists", "/t/w", watch=True)
    await t.change("deleteall", "/t/w")
    await t.call("exists", "/t/w", watch=True)
    await t.send("CheckWatches", path="/t/w", type=2)
    await t.send("CheckWatches", path="/t/w", type=1)
    await t.send("RemoveWatches", path="/t/w", type=2)
    await t.send("RemoveWatches", path="/t/w", type=3)
    await t.change("create", "/t/w")


async def sessions(t: Tasks, hosts: str) -> None:
    t.task = "cut"
    await t.call("create", "/t/cut", b"x")
    await t.call("create", "/t/of-session", b"x", ephemeral=True)
    t.listen("/t/cut")
    await t.call("get", "/t/cut", watch=True)
    await t.ask("cut /t/cut", States.SUSPENDED, States.CONNECTED)
    await t.call("get", "/t/of-session")
    await t.told_events()
    t.task = "expiry"
    await t.ask("expire /t/of-session", States.SUSPENDED, States.LOST, States.CONNECTED)
    await t.call("exists", "/t/of-session")
    await t.call("create", "/t/of-session", b"x", ephemeral=True)
    t.task = "chroot"
    inner = Tasks(hosts, "/t/inner")
    inner.task = "chroot"
    await inner.zk.start()
    await inner.call("create", "/x", b"x", ephemeral=True)
    await inner.call("create", "/s-", b"x", sequential=True)
    await inner.call("get_children", "/")
    await t.call("get_children", "/t/inner")
    t.task = "close"
    await inner.zk.close()
    await t.call("get_children", "/t/inner")


async def main(hosts: str) -> None:
    t = Tasks(hosts)
    t.task = "connect"
    await t.zk.start()
    t.tell("version", t.zk.session.conn.version_info[:2])
    t.tell("timeout", t.zk.session.timeout)
    for task in (nodes, access, transactions, watches):
        await task(t)
    await sessions(t, hosts)
    await t.zk.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
