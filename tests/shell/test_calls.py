"""An operation takes no more steps of Python than `benchmarks/counts.json` says."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import gate
from benchmarks.gate import VERSION, WORKS
from zkwire import Client
from zkwire.testing import Server

GROWTH = 1.02
OTHER_VERSIONS = 1.2
"""Other versions of Python have other instructions."""
MOST_RUNS = 40
KEPT: dict[str, dict[str, float]] = json.loads(gate.PATH.read_text())


def grown(work: str) -> dict[str, tuple[float, float]]:
    """The counts that no run keeps to: the least that was seen, and what is allowed."""
    margin = GROWTH if f"{sys.version_info[0]}.{sys.version_info[1]}" == VERSION else OTHER_VERSIONS
    allowed = {name: count * margin for name, count in KEPT[work].items()}
    with gate.side() as (made, steps):
        found = gate.run(made, steps, work)
        for _ in range(MOST_RUNS):
            found = gate.least([found, gate.run(made, steps, work)])
            if all(found[name] <= allowed[name] for name in found):
                break
    return {name: (found[name], most) for name, most in allowed.items() if found[name] > most}


@pytest.mark.parametrize("work", WORKS)
def test_an_operation_takes_no_more_steps_than_it_did(work: str) -> None:
    """Else say why in the commit, and: python3 -m benchmarks.gate --write."""
    assert grown(work) == {}


INLINE = 30
"""So many attributes of an object CPython finds without a look-up in a dict."""


def test_what_requests_need_is_found_at_once() -> None:
    """Attributes beyond that belong into the slots of their class."""
    with Server() as server, Client(server.hosts) as client:
        client.get_data("/")
        assert len(vars(client._driver)) <= INLINE
        assert not hasattr(client._session, "__dict__")


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the margin of other versions is wide")
def test_two_more_calls_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two, as under load the I/O thread makes some of the calls."""
    plain = Client.get_data

    def inner(self: Client, path: str) -> object:
        return plain(self, path)

    def get_data(self: Client, path: str) -> object:
        return inner(self, path)

    monkeypatch.setattr(Client, "get_data", get_data)
    assert "calls" in grown("get")
