"""What both clients refuse before they send anything, and what an editor offers."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from tests.shell.test_client import ARGUMENTS, bad, own_threads
from tests.support.both_clients import Side, asking, both, done, entered
from tests.support.fake_server import FakeServer
from tests.support.recipe_samples import RECIPES, made
from zkwire import (
    OPEN_ACL_UNSAFE,
    AsyncClient,
    Client,
    MultiLock,
    SequentialLock,
    State,
    Supervisor,
    Watch,
)
from zkwire.jute.frames import SEND_LIMIT
from zkwire.testing import Server


@both
async def test_a_wrong_argument_is_refused_and_nothing_sent(side: Side, fake: FakeServer) -> None:
    tried = 0
    async with side.opened(fake.hosts) as client:
        for verb, arguments in ARGUMENTS.items():
            good = {name: value for name, value, _ in arguments}
            for name, _, wrongs in arguments:
                for value, error, message in wrongs:
                    for operations in (client, asking(client)):
                        with pytest.raises(error) as caught:
                            getattr(operations, verb)(**{**good, name: value})
                        assert message in str(caught.value), (verb, name, value)
                        tried += 1
        await done(client.exists("/marker"))
        # Numbers leave no gap: nothing was sent, nor given a number, nor kept for later.
        assert [(r.xid, r.op) for r in fake.received] == [(1, "exists")]
        assert client.state is State.CONNECTED
    assert tried == 2 * sum(len(wrongs) for row in ARGUMENTS.values() for *_, wrongs in row)


def test_the_longest_request_is_sent_and_one_byte_more_is_not(
    client: Client, fresh_path: str
) -> None:
    client.create(fresh_path)
    # Behind the length: xid, opcode, path, data, version.
    room = SEND_LIMIT - 4 - 4 - (4 + len(fresh_path)) - 4 - 4
    client.set_data(fresh_path, bytes(room))
    assert len(client.get_data(fresh_path).data) == room
    with pytest.raises(ValueError, match=f"{SEND_LIMIT + 1} bytes"):
        client.set_data(fresh_path, bytes(room + 1))


def test_watches_of_others_and_closed_ones_are_refused(fake: FakeServer) -> None:
    with Client(fake.hosts) as one, Client(fake.hosts) as two:
        foreign, closed = Watch(), Watch()
        one.exists("/a", watch=foreign)
        one.exists("/b", watch=closed)
        closed.close()
        fake.wait_for(lambda: fake.count("remove_watches"))
        before = len(fake.received)
        for verb in ("exists", "get_data", "get_children", "get_children_with_stat"):
            with pytest.raises(ValueError, match="another client"):
                getattr(two, verb)("/a", watch=foreign)
            with pytest.raises(ValueError, match="closed"):
                getattr(one, verb)("/a", watch=closed)
        assert len(fake.received) == before


NAN, INFINITE = float("nan"), float("inf")
PAIRS = "auth must be a list or tuple"
WRONG_OPTIONS = {
    "hosts": [
        *bad(TypeError, "hosts must be a str", None, ["a:1"], b"a:1"),
        *bad(ValueError, "names no server", ""),
        *bad(ValueError, "without a name", "a,:1", ":2181"),
        *bad(ValueError, "bad port", "a:", "a:0", "a:65536", "a:http", "a:-1"),
        *bad(ValueError, "[address]:port", "::1:2181"),
        *bad(ValueError, "bad address", "[::1"),
        *bad(ValueError, "write commas between servers", "a:1;b:1", "a b:1"),
        *bad(ValueError, "hosts has no scheme", "zk://a:1"),
        *bad(ValueError, "empty name", "a/b//c"),
        *bad(ValueError, "is the chroot: path must not end with '/'", "a/b/"),
    ],
    "session_timeout": [
        *bad(TypeError, "session_timeout must be a number", None, "10", True),
        *bad(ValueError, "session_timeout must be a number", NAN),
        *bad(ValueError, "session_timeout must be 0.001", 0, INFINITE),
        *bad(ValueError, "session_timeout must be 0.001", timedelta(0), timedelta(days=25)),
        *bad(ValueError, "session_timeout must not be negative", -1.0, timedelta(-1)),
        *bad(ValueError, "not 10000: 10000 milliseconds are 10; for a longer", 10000),
    ],
    "observer": bad(TypeError, "observer must be an Observer", print),
    "lease_margin": [
        *bad(TypeError, "lease_margin must be a number", None, "1"),
        *bad(ValueError, "lease_margin must not be negative", -1),
        *bad(ValueError, "at most a fifth of session_timeout, 10.0 s", 2.1),
    ],
    "operation_timeout": [
        *bad(TypeError, "operation_timeout must be a number", "1", False),
        *bad(ValueError, "operation_timeout must not be negative", -0.1),
        *bad(ValueError, "operation_timeout must be a number", NAN),
        *bad(ValueError, "operation_timeout is out of the range", 10**400),
    ],
    "receive_limit": [
        *bad(TypeError, "receive_limit must be an int", "1", None, 1e6),
        *bad(ValueError, "receive_limit must be", 0, -1, 2**31),
    ],
    "send_limit": [
        *bad(TypeError, "send_limit must be an int", True),
        *bad(ValueError, "send_limit must be 1024 to", 1023, 2**31),
    ],
    "read_only": [
        *bad(TypeError, "read_only must be True or False, not 'no'", "no"),
        *bad(TypeError, "read_only must be True or False, not 0", 0),
    ],
    "default_acl": [
        *bad(TypeError, "default_acl", None, OPEN_ACL_UNSAFE[0], "world:anyone", [("world", "a")]),
        *bad(ValueError, "default_acl must not be empty", []),
    ],
    "shuffle_hosts": bad(TypeError, "shuffle_hosts must be True or False", "no"),
    "follow_reconfig": bad(TypeError, "follow_reconfig must be True or False", "no"),
    "auth": [
        *bad(TypeError, PAIRS, None, "digest", ("digest", b"a:b"), [("digest",)]),
        *bad(TypeError, PAIRS, [("digest", "a:SECRET")], [(b"digest", b"a:SECRET")]),
        *bad(TypeError, 'such as [digest_auth("user", "password")]', [("digest", "a:SECRET")]),
        *bad(ValueError, "auth cannot be sent", [("\udc80", b"SECRET")]),
        *bad(ValueError, "the request has", [("digest", b"SECRET" * SEND_LIMIT)]),
    ],
}


@both
@pytest.mark.parametrize("option", WRONG_OPTIONS)
def test_a_client_with_a_wrong_argument_is_not_made(side: Side, option: str) -> None:
    for value, error, message in WRONG_OPTIONS[option]:
        with pytest.raises(error) as caught:
            side.Client(**{"hosts": "127.0.0.1:1", option: value})
        assert message in str(caught.value)
        assert "SECRET" not in str(caught.value)
    assert own_threads() == set()


@both
async def test_known_A52_a_session_of_more_than_an_hour_has_a_unit(side: Side) -> None:
    with pytest.raises(ValueError, match="10000 milliseconds are 10"):
        side.Client("h", session_timeout=10_000)
    with Server(timeouts=(4.0, 10_000.0)) as server:
        for timeout in (timedelta(hours=2), timedelta(seconds=5), 3600):
            async with side.opened(server.hosts, session_timeout=timeout) as client:
                assert timeout in (client.session_timeout, timedelta(0, client.session_timeout))


@pytest.mark.parametrize("wrong", ["1", True, -1, -0.001, NAN, 10**400, [1]], ids=repr)
async def test_a_wrong_timeout_is_refused(wrong: Any, fake: FakeServer) -> None:
    error = TypeError if isinstance(wrong, str | bool | list) else ValueError
    message = r"^timeout (must|is out)"
    with Client(fake.hosts) as client:
        answered = client.pipeline.exists("/a")
        answered.result()
        watch = Watch()
        client.exists("/a", watch=watch)
        lock = SequentialLock(client, "/lock")
        for wait in (
            *(client.connect, client.pipeline.exists("/b").result, answered.result),
            *(watch.wait, lock.acquire, lock.lost.wait, MultiLock(lock).lost.wait),
        ):
            with pytest.raises(error, match=message):
                wait(wrong)
    async with AsyncClient(fake.hosts) as other:
        with pytest.raises(error, match=message):
            await other.connect(wrong)


# --- arguments that do not exist ------------------------------------------------------------------


def every(client: Client | AsyncClient) -> dict[str, Any]:
    """One of each public class that has methods."""
    prefix = "Async" if isinstance(client, AsyncClient) else ""
    found = {prefix + name: made(name, client, "/path") for name in RECIPES}
    lock = found[prefix + "ReadWriteLock"]
    return {
        **found,
        type(client).__name__: client,
        f"{prefix}Lease": found[prefix + "Semaphore"].lease(),
        f"{prefix}ReadLock": lock.read,
        f"{prefix}WriteLock": lock.write,
    }


@both
async def test_an_unknown_argument_names_the_public_method(side: Side, server: Server) -> None:
    async with side.opened(server.hosts) as client:
        for public, thing in every(client).items():
            for name in dir(type(thing)):
                if name.startswith("_") or not inspect.isfunction(getattr(type(thing), name)):
                    continue
                message = re.escape(f"{public}.{name}() got an unexpected keyword")
                with pytest.raises(TypeError, match=message):
                    getattr(thing, name)(no_such_argument=1)


# --- members of enumerations ----------------------------------------------------------------------


class Place(str, Enum):  # noqa: UP042 - a StrEnum is formatted as its value
    """Names as a user keeps them, of which a library must take the value."""

    LOCK = "/lock"


@both
async def test_a_member_of_an_enumeration_is_a_str(side: Side, server: Server) -> None:
    async with side.opened(server.hosts) as client:
        await done(client.create(Place.LOCK))
        async with entered(side.SequentialLock(client, Place.LOCK)) as lock:
            assert lock.node.startswith("/lock/")


HOSTS = "127.0.0.1:1"  # nothing is started


def test_an_option_without_a_name_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="the port belongs into hosts"):
        Client("127.0.0.1", 2181)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Supervisor|Client"):
        Supervisor(HOSTS, port=3)  # type: ignore[call-arg]


HEAD = """
from zkwire import AsyncClient, Client, SequentialLock
client, client_aio = Client(''), AsyncClient('')
"""
OFFERED = {
    "client.": "get_data create multi pipeline close watch_data",
    "client.get_data('/').": "data stat is_null",
    "client.get_data('/').stat.": "czxid version ephemeral_owner",
    "client.get_children_with_stat('/').": "children stat",
    "client.pipeline.get_data('/').": "result ready add_done_callback",
    "client.pipeline.get_data('/').result().": "data stat is_null",
    "client_aio.get_data('/').": "result ready add_done_callback",
    "async def f():\n    (await client_aio.get_data('/')).": "data stat is_null",
    "with SequentialLock(client, '/l') as lock:\n    lock.": "fence held release",
    "import zkwire\nzkwire.": "Client SequentialLock NotSentError",
}


@pytest.mark.parametrize("code", OFFERED)
def test_an_editor_offers_what_is_public(code: str) -> None:
    jedi = pytest.importorskip("jedi")
    project = jedi.Project(str(Path(__file__).resolve().parents[2]))
    here = jedi.InterpreterEnvironment()  # no process of its own
    script = jedi.Script(HEAD + code, project=project, environment=here)
    found = {each.name for each in script.complete() if not each.name.startswith("__")}
    assert found >= {*OFFERED[code].split()}
    if "add_done_callback" in OFFERED[code]:  # a reply, and what a coroutine has
        assert found <= {"add_done_callback", "ready", "result", "close", "send", "throw"}
