"""What `docs/security.md` says and no other test shows.

Some of these show a weakness: they fail when it is gone, and then the document is to be changed.
"""

from __future__ import annotations

import ast
import re
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import zkwire
from tests.hazards.table import test_names
from tests.support.both_clients import LOCKS, Side, both, entered, using
from tests.support.fake_server import Connection, FakeServer
from tests.support.lock_helpers import GRACE, LONG, PATIENCE, SHORT, Running, Stage, acquire_soon
from tests.support.scripted import Script
from tests.support.server_control import ZooKeeperServer, poll
from tests.support.snippets import ROOT
from zkwire import (
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    Client,
    DigestMD5,
    InvalidACLError,
    NoAuthError,
    NodeExistsError,
    NonBlockingLock,
    NotEmptyError,
    ReadWriteLock,
    SequentialLock,
    digest_auth,
)
from zkwire.jute.frames import frame
from zkwire.jute.records import GetChildrenResponse
from zkwire.recipes.locks import GRANTS
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import Action, rewrite

DOCUMENT = ROOT / "docs" / "security.md"
NAMED = re.compile(r"`(test_\w+)::(test_\w+)`")


def test_each_statement_names_a_test_that_exists() -> None:
    text = DOCUMENT.read_text()
    items = re.split(r"^- ", text, flags=re.MULTILINE)[1:]
    assert len(items) > 30
    assert [said for said in items if not NAMED.search(said.partition("\n\n")[0])] == []
    there = {tuple(re.split(r".*/|\.py::", f"/{name}")[1:]) for name in test_names()}
    assert set(NAMED.findall(text)) - there == set()


# --- secrets --------------------------------------------------------------------------------------

# ZooKeeperServer.superSecret, and java.util.Random.
SUPER_SECRET = 0xB3415C00
JAVA_MULTIPLIER, JAVA_INCREMENT, JAVA_MASK = 0x5DEECE66D, 0xB, 2**48 - 1


def password_of(session_id: int) -> bytes:
    """The 16 bytes of `new Random(sessionId ^ superSecret).nextBytes`."""
    seed = ((session_id ^ SUPER_SECRET) ^ JAVA_MULTIPLIER) & JAVA_MASK
    made = b""
    for _ in range(4):
        seed = (seed * JAVA_MULTIPLIER + JAVA_INCREMENT) & JAVA_MASK
        made += (seed >> 16).to_bytes(4, "little")
    return made


@pytest.mark.apache
def test_the_password_of_a_session_follows_from_its_id(zookeeper: ZooKeeperServer) -> None:
    with Client(zookeeper.hosts) as client:
        assert client.credentials.passwd == password_of(client.session_id)


def test_a_proxy_reads_all_and_changes_what_follows_the_login(server: Server) -> None:
    """Who sits in between has only to wait until the login is over."""
    secret = digest_auth("bob", "pass-in-plain-text")
    changed = rewrite(lambda raw: raw.replace(b"true!", b"false"))
    assert server.hosts.startswith("127.0.0.1:")
    with (
        Server(sasl_users={"bob": "secret"}) as asking,
        FaultProxy(asking.hosts) as proxy,
        Client(proxy.hosts, sasl=DigestMD5("bob", "secret"), session_timeout=LONG) as client,
    ):
        client.add_auth(*secret)
        assert any(secret[1] in seen.raw for seen in proxy.frames())
        client.create("/n", b"true!")
        proxy.on("get_data", reply=True, action=changed)
        assert client.get_data("/n").data == b"false"


def test_nothing_is_said_before_tls_stands() -> None:
    """All that a listener gets is one record of a TLS handshake."""
    heard = bytearray()

    def hear(connection: Connection) -> None:
        while True:
            heard.extend(connection.receive())
            connection.server.notify()

    secret = digest_auth("bob", "pass-in-plain-text")
    with FakeServer(hear) as listener:
        client = Client(listener.hosts, tls=ssl.create_default_context(), auth=[secret])
        client._driver.start()
        listener.wait_for(lambda: len(heard) > 5 and len(heard) >= 5 + int.from_bytes(heard[3:5]))
        client.close()
    assert heard[:1] == b"\x16"
    assert len(heard) == 5 + int.from_bytes(heard[3:5])
    assert secret[1] not in heard


# --- a server, or a proxy, that lies --------------------------------------------------------------


def listing(change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> Action:
    """Change what the server says of the children."""

    def forge(raw: bytes) -> bytes:
        names = GetChildrenResponse.decode(raw[20:]).children or ()
        return frame(raw[4:20] + GetChildrenResponse(change(names)).encode())

    return rewrite(forge)


def prefix(client: Client) -> str:
    """What the names of a client's nodes in queues begin with."""
    return f"{client.session_id & 2**64 - 1:016x}"


@pytest.mark.since("3.5")
def test_who_forges_a_listing_lets_two_hold(stage: Stage, fresh_path: str) -> None:
    first = SequentialLock(stage.client(direct=True), fresh_path)
    assert first.acquire(LONG)
    client = stage.client()
    second = SequentialLock(client, fresh_path)
    own = prefix(client)
    alone = listing(lambda names: tuple(name for name in names if name.startswith(own)))
    stage.proxy.on("get_children", reply=True, action=alone)
    assert second.acquire(LONG)
    assert first.held
    assert second.held
    second.release()
    first.release()


def test_the_lease_is_as_long_as_the_server_says() -> None:
    script = Script(timeout=9.0)
    script.connect(timeout=90_000.0)
    assert script.session.lease_deadline - script.now > 80_000


FORGED = "a\n2026 ERROR forged 000000000"
HOSTILE = ["../../etc", FORGED + "1", "", ".", "..", "x/y", "\x1b[2J", "\u0661" * 10]


def test_hostile_names_in_a_listing(fresh_path: str) -> None:
    """No such name is asked for; the error shows what it shows escaped; nothing stays behind."""
    with Server() as server, FaultProxy(server.hosts) as proxy, Client(proxy.hosts) as client:
        client.create(fresh_path)
        for name in HOSTILE:
            proxy.reset()
            proxy.on("get_children", reply=True, action=listing(lambda _, name=name: (name,)))  # type: ignore[misc]
            told = ""
            try:
                list(client.walk(fresh_path))
            except ValueError as error:
                told = str(error)
            assert "\n" not in told
            assert "\x1b" not in told
            asked = {seen.path or "" for seen in proxy.frames() if seen.direction == "c2s"}
            assert all(path.isprintable() and ".." not in path for path in asked)
        proxy.reset()
        name = FORGED + "0"
        lock = SequentialLock(client, fresh_path)
        client.create(f"{fresh_path}/before-", sequential=True)  # so that the lock's number is 1
        client.delete(f"{fresh_path}/before-0000000000")
        proxy.on("get_children", reply=True, action=listing(lambda names: (*names, name)))
        with pytest.raises(ValueError, match=r"forbidden character U\+000A") as caught:
            lock.acquire(LONG)
        assert "\n" not in str(caught.value)
        acquire_soon(SequentialLock(client, fresh_path))


# --- a hostile client in the same directory -------------------------------------------------------


def test_who_stands_in_front_is_named_and_shown(stage: Stage, fresh_path: str) -> None:
    stage.observer.create(fresh_path)
    node = stage.observer.create(f"{fresh_path}/x-lock-", b"\xff\n\x1b", sequential=True)
    lock = SequentialLock(stage.client(), fresh_path)
    with pytest.raises(NodeExistsError, match=node):
        lock.acquire(LONG)
    poll("it has gone again", lambda: len(stage.nodes(fresh_path)) == 1 or None, GRACE)
    (shown,) = lock.contenders()
    assert shown.session_id == 0
    assert shown.text == "\ufffd\n\x1b"


def test_a_grant_that_cannot_be_deleted_is_named(stage: Stage, fresh_path: str) -> None:
    token = f"{fresh_path}{GRANTS}/x"
    stage.observer.ensure_path(f"{token}/y")
    with pytest.raises(NotEmptyError, match=token):
        NonBlockingLock(stage.client(), fresh_path).acquire(LONG)
    poll("it has gone again", lambda: not stage.observer.exists(fresh_path) or None, GRACE)
    stage.observer.delete_tree(f"{fresh_path}{GRANTS}")


OWN = [digest_auth("worker", "secret")]
CREATOR, OPEN = list(CREATOR_ALL_ACL), list(OPEN_ACL_UNSAFE)
PATH = "/locks/report"


def open_nodes(server: Server) -> list[str]:
    """The nodes that anybody may do everything with."""
    own = [path for path in server.tree.nodes if not path.startswith("/zookeeper") and path != "/"]
    assert own
    return [path for path in own if list(server.tree.nodes[path].acl) == OPEN]


def test_creator_all_needs_somebody_who_creates(server: Server) -> None:
    """A client that is nobody cannot own a node; the server says so, and nothing is open."""
    with Client(server.hosts, default_acl=CREATOR_ALL_ACL) as client:
        with pytest.raises(InvalidACLError):
            SequentialLock(client, PATH).acquire(PATIENCE)
        assert client.exists("/locks") is None


# --- the recipes ----------------------------------------------------------------------------------


@both
async def test_nothing_of_a_lock_is_open(side: Side) -> None:
    for kind in LOCKS:
        with Server() as server:
            async with (
                using(side.Client(server.hosts, auth=OWN, default_acl=CREATOR)) as client,
                entered(side.lock(kind, client, PATH)),
            ):
                assert open_nodes(server) == []


def test_a_reader_in_its_writers_place_is_not_open(server: Server) -> None:
    """It is created in another way than the rest."""
    with Client(server.hosts, auth=OWN) as client:
        lock = ReadWriteLock(client, PATH, acl=CREATOR_ALL_ACL)
        with lock.write, lock.read:
            assert open_nodes(server) == []


# --- strangers, on a real server ------------------------------------------------------------------


def test_hazard_B37_a_stranger_cannot_take_the_lock_away(
    zookeeper: ZooKeeperServer, fresh_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Client(zookeeper.hosts, auth=OWN, default_acl=CREATOR, session_timeout=LONG) as client,
        Client(zookeeper.hosts) as stranger,
    ):
        lock = SequentialLock(client, f"{fresh_path}/lock")
        with lock:
            (name,) = client.get_children(lock.path)
            node = f"{lock.path}/{name}"
            for refused in (
                lambda: stranger.delete(node),
                lambda: stranger.set_data(node, b"mine"),
                lambda: stranger.set_acl(node, OPEN),
                lambda: stranger.get_data(node),
                lambda: stranger.get_children(lock.path),
                lambda: stranger.create(f"{lock.path}/in-front-0000000000"),
                lambda: stranger.set_acl(lock.path, OPEN),
                lambda: stranger.create(f"{fresh_path}/another"),
                lambda: SequentialLock(stranger, lock.path).acquire(PATIENCE),
                lambda: NonBlockingLock(stranger, f"{lock.path}/l").acquire(PATIENCE),
            ):
                with pytest.raises(NoAuthError):
                    refused()
            lock.check()
            lock.guard([])
        assert caplog.messages == []  # nothing of whoever was refused could stay behind
        client.delete_tree(fresh_path)


QUEUES = dict.fromkeys(("sequential", "re-entrant", "leadership", "read", "write"), "")
QUEUES["lease"] = "/leases"


@pytest.fixture
def two(zookeeper: ZooKeeperServer) -> Iterator[tuple[Client, Client]]:
    """Clients of users who may not read each other's nodes."""
    one, other = ([digest_auth(name, name)] for name in ("one", "two"))
    with (
        Client(zookeeper.hosts, auth=one, default_acl=CREATOR) as first,
        Client(zookeeper.hosts, auth=other, default_acl=CREATOR) as second,
    ):
        yield first, second


@pytest.mark.parametrize("kind", QUEUES)
def test_users_who_may_not_read_each_other_contend(
    two: tuple[Client, Client], observer: Client, fresh_path: str, kind: str
) -> None:
    """A server tells nothing of a node to who may not read it, not even by a watch (3.8.0)."""
    first, second = two

    def lock_of(client: Client, which: str) -> Any:
        return Side("").lock(which, client, fresh_path, text="whose")

    def turn(lock: Any) -> bool:
        with lock.within(PATIENCE):
            return bool(lock.held)

    for folder in ("", "/leases", "/locks") if kind == "lease" else ("",):
        observer.ensure_path(fresh_path + folder)
    if kind == "lease":
        observer.set_data(fresh_path, b"1")
    holder = lock_of(first, "write" if kind == "read" else kind)
    waiter = lock_of(second, kind)
    assert holder.acquire(PATIENCE)
    assert not waiter.try_acquire()
    assert not waiter.acquire(SHORT)
    waiting = Running(lambda: turn(lock_of(second, kind)))
    folder = fresh_path + QUEUES[kind]
    poll("it waits", lambda: len(observer.get_children(folder)) == 2 or None, PATIENCE)
    seen = SequentialLock(second, folder).contenders()
    assert [one.text for one in seen] == [None, "whose"]
    assert seen[0].session_id in (0, first.session_id)
    holder.release()
    assert waiting.result()
    assert observer.get_children(folder) == []


def test_an_open_node_above_lets_a_stranger_be_first(
    zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    """The weakness of what stands open above: an empty parent can be exchanged for one's own."""
    with (
        Client(zookeeper.hosts, auth=OWN, default_acl=CREATOR) as client,
        Client(zookeeper.hosts) as stranger,
    ):
        stranger.create(fresh_path)
        with SequentialLock(client, f"{fresh_path}/lock"):
            pass
        stranger.delete(f"{fresh_path}/lock")
        stranger.create(f"{fresh_path}/lock")
        lock = SequentialLock(client, f"{fresh_path}/lock")
        assert lock.acquire()
        stranger.delete(f"{lock.path}/{lock._algorithm._node_name}")
        assert lock.lost.wait(PATIENCE)
        client.delete_tree(fresh_path)


# --- time -----------------------------------------------------------------------------------------

PACKAGE = Path(zkwire.__file__).parent
WALL_CLOCKS = re.compile(r"\b(time\.(time|time_ns|ctime|localtime|gmtime)|datetime|date\.today)\b")


def test_hazard_A28_nothing_reads_the_wall_clock() -> None:
    """Neither ``time.time`` nor ``datetime``, and not under another name.

    Servers show times of day, and so do the embedded one and the command.
    """
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] not in {"testing", "cli"}:
            tree = ast.parse(file.read_text())
            code = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
            code += [
                f"{node.module}.{alias.name}"
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            ]
            code = [text for text in code if text != "datetime.timedelta"]  # which has no clock
            assert not [text for text in code if WALL_CLOCKS.match(text)], file
