"""docs/membership.md is true: its code runs, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import Client, Supervisor

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "membership.md").read_text()
REGISTER, DISCOVER, ONE = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


class EnoughError(Exception):
    """The example's endless loop has shown what it is for."""


def test_its_services_register_and_are_found(zookeeper: ZooKeeperServer, observer: Client) -> None:
    found: list[list[str]] = []

    def discover() -> None:
        def connect_to(services: list[str]) -> None:
            found.append(services)
            raise EnoughError

        names = {"hosts": zookeeper.hosts, "connect_to": connect_to}
        try:
            exec("from zkwire import *\n" + DISCOVER, names)
        except EnoughError:
            return

    exec(REGISTER, {"hosts": zookeeper.hosts, "serve": discover})
    assert found == [["10.0.0.5:8080"]]
    assert not observer.exists("/services/web") or observer.get_children("/services/web") == []


def test_its_node_has_another_owner(zookeeper: ZooKeeperServer, observer: Client) -> None:
    shown: list[object] = []
    code = ONE.replace("5.0", "0.2")
    with Supervisor(zookeeper.hosts) as supervisor:
        names: dict[str, object] = {"supervisor": supervisor, "print": lambda *x: shown.extend(x)}
        exec(ONE, names)
        assert shown == []
        poll("gone", lambda: observer.exists("/services/db") is None or None, PATIENCE)
        observer.ensure_path("/services")
        observer.create("/services/db")
        exec(code, names)
        observer.delete("/services/db")
    text, conflict = shown
    assert text == "another owner:"
    assert getattr(conflict, "ephemeral_owner", None) == 0
