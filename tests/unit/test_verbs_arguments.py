"""Wrong arguments: refused in the caller, before anything is sent or remembered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.shell.test_client import ARGUMENTS
from tests.support.scripted import Script
from zkwire.jute import records as r
from zkwire.jute.frames import SEND_LIMIT
from zkwire.operations.nodes import LONGEST_TTL
from zkwire.session.waitable import Watch
from zkwire.wire import ops

READS = ["exists", "get_data", "get_children", "get_children_with_stat"]


def refused(
    script: Script, error: type[Exception], verb: str, *arguments: Any, **named: Any
) -> str:
    """The operation must fail here and leave no trace; what it says."""
    with pytest.raises(error) as caught:
        script.call(verb, *arguments, **named)
    assert script.session.queued == 0
    assert not script.session.has_output
    assert script.session.watch_count == 0
    assert script.calls == []
    return str(caught.value)


def test_a_wrong_argument_is_refused(script: Script) -> None:
    """Of every operation; a wrong time to live would end the server's process for good."""
    for verb, arguments in ARGUMENTS.items():
        good = {name: value for name, value, _ in arguments}
        for name, _, wrongs in arguments:
            for value, error, message in wrongs:
                said = refused(script, error, verb, **{**good, name: value})
                assert message in said, (verb, name, value)


def test_credentials(script: Script) -> None:
    for scheme, secret, error in (
        ("digest", "u:p", TypeError),
        ("\udc80", b"u:p", ValueError),
        ("digest", b"u:p" * SEND_LIMIT, ValueError),
    ):
        assert "u:p" not in refused(script, error, "add_auth", scheme, secret)
    script.reconnect()
    assert [sent.name for sent in script.sent] == ["connect"], "it is not remembered either"


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


def test_a_prefix_is_text_and_no_path() -> None:
    script = Script(chroot="/app")
    script.connect()
    call = script.call("get_ephemerals", "/a/")
    assert r.GetEphemeralsRequest.decode(call.body).prefix_path == "/app/a/"
    script.answer(call, r.GetEphemeralsResponse(("/app/a/1", "/app/a/2")))
    assert call.value() == ["/a/1", "/a/2"]


def test_a_request_that_no_server_would_read(script: Script) -> None:
    refused(script, ValueError, "delete", "/")
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
