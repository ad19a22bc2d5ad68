"""docs/membership.md is true: its code runs, and does what it says."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import Client

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "membership.md").read_text()
HOSTS = "127.0.0.1:2181"
REGISTER, DISCOVER, ONE = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


class EnoughError(Exception):
    """The example's endless loop has shown what it is for."""


def test_its_services_register_and_are_found(zookeeper: ZooKeeperServer, observer: Client) -> None:
    found: list[list[str]] = []

    def discover(_: str) -> None:
        def show(services: list[str]) -> None:
            found.append(services)
            raise EnoughError

        with suppress(EnoughError):
            exec(DISCOVER.replace(HOSTS, zookeeper.hosts), {"print": show})

    exec(REGISTER.replace(HOSTS, zookeeper.hosts), {"input": discover})
    assert found == [["10.0.0.5:8080"]]
    assert not observer.exists("/services/web") or observer.get_children("/services/web") == []


def test_its_node_has_another_owner(zookeeper: ZooKeeperServer, observer: Client) -> None:
    shown: list[object] = []
    names: dict[str, object] = {"print": lambda *x: shown.extend(x)}
    code = ONE.replace(HOSTS, zookeeper.hosts)
    exec(code, names)
    assert shown == []
    poll("gone", lambda: observer.exists("/services/db") is None or None, PATIENCE)
    observer.ensure_path("/services")
    observer.create("/services/db")
    exec(code.replace("5.0", "0.2"), names)
    observer.delete("/services/db")
    text, conflict = shown
    assert text == "another owner:"
    assert getattr(conflict, "ephemeral_owner", None) == 0
