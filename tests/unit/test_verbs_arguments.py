"""Wrong arguments: refused in the caller, before anything is sent or remembered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.scripted import STAT, Script, script_in
from zkwire.jute import records as r
from zkwire.jute.frames import SEND_LIMIT
from zkwire.operations.checks import LONGEST_TTL
from zkwire.session.watch import Watch
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE, State, WatchType

ACL = list(OPEN_ACL_UNSAFE)
BAD_PATHS: list[tuple[Any, type[Exception]]] = [
    (None, TypeError),
    (b"/a", TypeError),
    (7, TypeError),
    ("", ValueError),
    ("a", ValueError),
    ("/a/", ValueError),
    ("//a", ValueError),
    ("/a/../b", ValueError),
    ("/a\0", ValueError),
    ("/\U0001f600", ValueError),
]
OF_A_PATH: dict[str, tuple[Any, ...]] = {
    "create": (),
    "create_with_stat": (),
    "delete": (),
    "set_data": (b"",),
    "set_acl": (ACL,),
    "exists": (),
    "get_data": (),
    "get_children": (),
    "get_children_with_stat": (),
    "get_acl": (),
    "sync": (),
    "add_watch": (Watch(),),
    "remove_watches": (),
    "get_all_children_number": (),
}
VERSIONED: dict[str, tuple[Any, ...]] = {
    "delete": ("/a",),
    "set_data": ("/a", b""),
    "set_acl": ("/a", ACL),
}
CREATES = ["create", "create_with_stat"]
READS = ["exists", "get_data", "get_children", "get_children_with_stat"]


@pytest.fixture
def script() -> Script:
    return script_in(State.CONNECTED)


def refused(
    script: Script, error: type[Exception], verb: str, *arguments: Any, **named: Any
) -> None:
    """The operation must fail here and leave no trace."""
    with pytest.raises(error):
        script.call(verb, *arguments, **named)
    assert script.session.queued == 0
    assert not script.session.has_output
    assert script.session.watch_count == 0
    assert script.calls == []


@pytest.mark.parametrize("verb", OF_A_PATH)
@pytest.mark.parametrize(("path", "error"), BAD_PATHS)
def test_paths(script: Script, verb: str, path: Any, error: type[Exception]) -> None:
    refused(script, error, verb, path, *OF_A_PATH[verb])


@pytest.mark.parametrize("verb", READS)
@pytest.mark.parametrize("watch", [0, "watch", b"", [], object()])
def test_watches(script: Script, verb: str, watch: Any) -> None:
    refused(script, TypeError, verb, "/a", watch=watch)
    refused(script, TypeError, "add_watch", "/a", watch)
    refused(script, TypeError, "get_config", watch=watch)


@pytest.mark.parametrize("verb", VERSIONED)
@pytest.mark.parametrize(
    ("version", "error"),
    [
        (-2, ValueError),
        (2**31, ValueError),
        (True, TypeError),
        ("1", TypeError),
        (None, TypeError),
        (1.0, TypeError),
    ],
)
def test_versions(script: Script, verb: str, version: Any, error: type[Exception]) -> None:
    refused(script, error, verb, *VERSIONED[verb], version)


@pytest.mark.parametrize("verb", ["create", "create_with_stat", "set_data"])
@pytest.mark.parametrize("data", ["text", None, 7, bytearray(b"x"), memoryview(b"x")])
def test_data(script: Script, verb: str, data: Any) -> None:
    refused(script, TypeError, verb, "/a", data)


@pytest.mark.parametrize(
    ("acl", "error"),
    [
        ([], ValueError),
        (ACL[0], TypeError),
        (None, TypeError),
        ("world:anyone", TypeError),
        ([("world", "anyone")], TypeError),
        ([r.ACL(31, ("world", "anyone"))], TypeError),  # type: ignore[arg-type]
        ([r.ACL(31, r.Id("world", b"anyone"))], TypeError),  # type: ignore[arg-type]
        ([r.ACL(32, r.Id("world", "anyone"))], ValueError),
        ([r.ACL(-1, r.Id("world", "anyone"))], ValueError),
        ([r.ACL("all", r.Id("world", "anyone"))], ValueError),  # type: ignore[arg-type]
    ],
)
def test_access_lists(script: Script, acl: Any, error: type[Exception]) -> None:
    refused(script, error, "set_acl", "/a", acl)
    if acl is not None:  # that is the client's default_acl
        refused(script, error, "create", "/a", b"", acl)
        refused(script, error, "create_with_stat", "/a", b"", acl)


# --- kinds of nodes -------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", CREATES)
@pytest.mark.parametrize(
    "kinds",
    [
        {"ephemeral": True, "container": True},
        {"ephemeral": True, "ttl": 1.0},
        {"container": True, "ttl": 1.0},
        {"container": True, "sequential": True},
        {"ephemeral": True, "container": True, "ttl": 1.0, "sequential": True},
    ],
)
def test_a_node_is_of_one_kind(script: Script, verb: str, kinds: dict[str, Any]) -> None:
    refused(script, ValueError, verb, "/a", **kinds)


@pytest.mark.parametrize("verb", CREATES)
@pytest.mark.parametrize(
    ("ttl", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (0.0009, ValueError),
        ((LONGEST_TTL + 1) / 1000, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (True, TypeError),
        ("1", TypeError),
    ],
)
def test_times_to_live(script: Script, verb: str, ttl: Any, error: type[Exception]) -> None:
    """A wrong one would end the server's process, and every attempt to start it again."""
    refused(script, error, verb, "/a", ttl=ttl)


@pytest.mark.parametrize(
    ("ttl", "milliseconds"),
    [(0.001, 1), (0.0014, 1), (1, 1000), (1.5, 1500), (LONGEST_TTL / 1000, LONGEST_TTL)],
)
@pytest.mark.parametrize("sequential", [False, True])
def test_a_time_to_live_is_sent_in_milliseconds(
    script: Script, ttl: float, milliseconds: int, sequential: bool
) -> None:
    call = script.call("create", "/a", ttl=ttl, sequential=sequential)
    request = r.CreateTTLRequest.decode(call.body)
    assert call.op is ops.CREATE_TTL
    assert (request.ttl, request.flags) == (milliseconds, 6 if sequential else 5)


@pytest.mark.parametrize(
    ("kinds", "op", "flags"),
    [
        ({}, ops.CREATE, 0),
        ({"ephemeral": True}, ops.CREATE, 1),
        ({"sequential": True}, ops.CREATE, 2),
        ({"ephemeral": True, "sequential": True}, ops.CREATE, 3),
        ({"container": True}, ops.CREATE_CONTAINER, 4),
    ],
)
def test_kinds_of_nodes(script: Script, kinds: dict[str, Any], op: ops.Op, flags: int) -> None:
    call = script.call("create", "/a", **kinds)
    assert (call.op, r.CreateRequest.decode(call.body).flags) == (op, flags)
    with_stat = script.call("create_with_stat", "/a", **kinds)
    assert with_stat.op is (ops.CREATE2 if op is ops.CREATE else op)
    assert with_stat.body == call.body


# --- the ensemble and the session -----------------------------------------------------------------


@pytest.mark.parametrize("secret", ["u:p", None, 7, bytearray(b"u:p")])
def test_secrets(script: Script, secret: Any) -> None:
    with pytest.raises(TypeError) as caught:
        script.call("add_auth", "digest", secret)
    assert "u:p" not in str(caught.value)
    refused(script, TypeError, "add_auth", "digest", secret)


@pytest.mark.parametrize(
    ("scheme", "secret"),
    [("\udc80", b"u:p"), ("digest", b"u:p" * SEND_LIMIT)],
    ids=["text", "size"],
)
def test_credentials_that_cannot_be_sent(script: Script, scheme: str, secret: bytes) -> None:
    with pytest.raises(ValueError, match=r"layout|jute\.maxbuffer") as caught:
        script.call("add_auth", scheme, secret)
    assert "u:p" not in str(caught.value)
    script.reconnect()
    assert [sent.name for sent in script.sent] == ["connect"], "it is not remembered either"


@pytest.mark.parametrize("scheme", [b"digest", None, 7])
def test_schemes(script: Script, scheme: Any) -> None:
    refused(script, TypeError, "add_auth", scheme, b"u:p")
    script.reconnect()
    assert [sent.name for sent in script.sent] == ["connect"], "it is not remembered either"


@pytest.mark.parametrize(
    ("prefix", "error"), [("", ValueError), ("a", ValueError), (b"/", TypeError), (None, TypeError)]
)
def test_prefixes(script: Script, prefix: Any, error: type[Exception]) -> None:
    refused(script, error, "get_ephemerals", prefix)


def test_a_prefix_is_text_and_no_path() -> None:
    script = Script(chroot="/app")
    script.connect()
    call = script.call("get_ephemerals", "/a/")
    assert r.GetEphemeralsRequest.decode(call.body).prefix_path == "/app/a/"
    script.answer(call, r.GetEphemeralsResponse(("/app/a/1", "/app/a/2")))
    assert call.value() == ["/a/1", "/a/2"]


@pytest.mark.parametrize("which", [0, 6, -1, "any", None])
def test_watch_types(script: Script, which: Any) -> None:
    refused(script, ValueError, "remove_watches", "/a", which)
    script.call("remove_watches", "/a", int(WatchType.DATA))


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({}, ValueError),
        ({"members": ["a"], "joining": ["b"]}, ValueError),
        ({"members": ["a"], "leaving": ["1"]}, ValueError),
        ({"members": ["a"], "joining": [], "leaving": []}, ValueError),
        ({"joining": "server.1=a:1:2;3"}, TypeError),
        ({"leaving": [1]}, TypeError),
        ({"leaving": b"1"}, TypeError),
        ({"members": [None]}, TypeError),
        ({"members": ["a"], "version": -2}, ValueError),
        ({"members": ["a"], "version": 2**63}, ValueError),
        ({"members": ["a"], "version": "1"}, ValueError),
        ({"members": ["a"], "version": None}, ValueError),
    ],
)
def test_reconfigurations(script: Script, named: dict[str, Any], error: type[Exception]) -> None:
    refused(script, error, "reconfig", **named)


@pytest.mark.parametrize(
    ("named", "request_"),
    [
        ({"joining": ["a", "b"]}, r.ReconfigRequest("a,b", None, None, -1)),
        ({"leaving": ["3"], "version": 7}, r.ReconfigRequest(None, "3", None, 7)),
        ({"joining": ["a"], "leaving": ["1"]}, r.ReconfigRequest("a", "1", None, -1)),
        ({"members": ("a", "b")}, r.ReconfigRequest(None, None, "a,b", -1)),
        ({"members": (name for name in "ab")}, r.ReconfigRequest(None, None, "a,b", -1)),
    ],
)
def test_what_a_reconfiguration_sends(
    script: Script, named: dict[str, Any], request_: r.ReconfigRequest
) -> None:
    """What is not meant is null: an empty text would mean no server at all."""
    call = script.call("reconfig", **named)
    assert r.ReconfigRequest.decode(call.body) == request_
    script.answer(call, r.GetDataResponse(b"server.1=a", STAT))
    assert call.value() == (b"server.1=a", STAT)


def test_the_configuration_is_outside_every_chroot() -> None:
    script = Script(chroot="/app")
    script.connect()
    script.call("get_config")
    (sent,) = script.flush()
    assert sent.read(r.GetDataRequest).path == "/zookeeper/config"


def test_the_root_cannot_be_deleted(script: Script) -> None:
    refused(script, ValueError, "delete", "/")


def test_a_request_that_no_server_would_read(script: Script) -> None:
    refused(script, ValueError, "set_data", "/a", bytes(0xFFFFF))
    refused(script, ValueError, "get_data", "/" + "a" * 0xFFFFF, watch=Watch())
    # A set_watches, which sets the watch again, would be longer than this longest read.
    longest = "/" + "a" * (0xFFFFF - 8 - 4 - 1 - 1)
    refused(script, ValueError, "get_data", longest, watch=Watch())
    script.call("get_data", longest)


@pytest.mark.parametrize("verb", READS)
def test_a_read_with_a_watch_asks_the_server_for_one(script: Script, verb: str) -> None:
    script.call(verb, "/a")
    script.call(verb, "/a", watch=Watch())
    assert [sent.body[-1] for sent in script.flush()] == [False, True]
