"""The data tree of the embedded server: times, ends of counters, reaped nodes, addresses.

Refusals, their order, events and what a multi takes back are in what real servers have answered
(`recorded.py`).
"""

from __future__ import annotations

import pytest

from zkwire.errors import InvalidACLError, NodeExistsError
from zkwire.jute.records import ACL, ClientInfo, Id, Stat
from zkwire.testing.server.credentials import Credentials
from zkwire.testing.server.tree import (
    CONTAINER,
    DataTree,
    NewNode,
    adjusted,
    ttl_owner,
)
from zkwire.wire.model import OPEN_ACL_UNSAFE, Perms
from zkwire.wire.paths import LAST_SEQUENCE

ANYBODY = Credentials()


class Garden:
    """A tree in which each operation is a transaction, at the time of its zxid."""

    def __init__(self) -> None:
        self.tree = DataTree()

    def create(self, path: str, *, owner: int = 0, sequential: bool = False) -> str:
        self.tree.begin(self.tree.zxid + 1000)
        new = NewNode(path, b"data", OPEN_ACL_UNSAFE, owner, sequential)
        return self.tree.create(new, ANYBODY)[0]

    def delete(self, path: str) -> None:
        self.tree.begin(self.tree.zxid + 1000)
        self.tree.delete(path, -1, ANYBODY)

    def stat(self, path: str) -> Stat:
        return self.tree.node(path).stat()


@pytest.fixture
def garden() -> Garden:
    return Garden()


def test_fresh_root_shows_as_on_a_real_server(garden: Garden) -> None:
    assert garden.stat("/") == Stat(0, 0, 0, 0, 0, -1, 0, 0, 0, 1, 0)
    assert garden.stat("") == garden.stat("/")
    assert garden.stat("/zookeeper").cversion == -2


def test_counter_sticks_at_its_end_and_pzxid_with_it(garden: Garden) -> None:
    garden.create("/a")
    garden.tree.node("/a").created = LAST_SEQUENCE
    before = garden.stat("/a")
    assert garden.create("/a/x", sequential=True) == "/a/x2147483647"
    with pytest.raises(NodeExistsError):
        garden.create("/a/x", sequential=True)
    assert garden.stat("/a").pzxid == before.pzxid
    assert before.cversion == -2  # 2 * (2**31 - 1), in 32 bits


# --- nodes that a server removes ------------------------------------------------------------------


def test_containers_and_old_nodes_are_removed(garden: Garden) -> None:
    garden.create("/never-used", owner=CONTAINER)
    garden.create("/used", owner=CONTAINER)
    garden.create("/used/a")
    garden.create("/old", owner=ttl_owner(50))  # at 1003
    tree = garden.tree
    assert tree.reapable(1053) == []
    assert tree.reapable(1054) == ["/old"]
    garden.delete("/used/a")
    assert tree.reapable(0) == ["/used"]
    tree.remove("/used")
    assert tree.reapable(0) == []


@pytest.mark.parametrize("number", [b"5_0", b" 5", b"many"])
def test_statistics_that_cannot_be_read_stay(number: bytes) -> None:
    """ZooKeeper 3.8.0 was seen to end the connection of who then creates a node there."""
    assert adjusted(b"count=" + number, 1, 1) == b"count=" + number


# --- access lists ---------------------------------------------------------------------------------


# What 3.9.5 does with each, for clients at ::1 and 127.0.0.1; 3.8.0 refuses all of them.
IPV6 = {
    "::1": True,
    "0:0:0:0:0:0:0:01": True,
    "::1/128": True,
    "::2/126": True,
    "::/0": True,
    "::1/+064": True,
    "-0::+1": True,
    "::2/127": False,
    "8000::/1": False,
    "::ffff:7f00:1": False,  # 127.0.0.1
    "2001:DB8::1": False,
    "0:0:0:0:0:0:0::": False,
    "::-1": False,
}
NO_IPV6 = [
    *("::1%lo", "[::1]", "::ffff:127.0.0.1", "::1/129", "::1/-1", "::1/", "::g", "::fffff", ":1"),
    *("1:2:3:4:5:6:7:8:9", "::0:0:0:0:0:0:0:1", "1::2::3", "1:::2", "::1/64/64", "::1 ", "/64"),
]


@pytest.mark.parametrize("expression", [*IPV6, *NO_IPV6])
def test_ipv6_from_39_on(expression: str) -> None:
    acl = (ACL(Perms.READ, Id("ip", expression)),)
    with pytest.raises(InvalidACLError):
        ANYBODY.expand(acl)
    new = Credentials("::1", ipv6=True)
    if expression in IPV6:
        assert new.expand(acl) == acl
        assert new.allows(acl, Perms.READ) is IPV6[expression]
        assert not Credentials("127.0.0.1", ipv6=True).allows(acl, Perms.READ)
    else:
        with pytest.raises(InvalidACLError):
            new.expand(acl)
    assert not Credentials("::1").allows(acl, Perms.READ)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::a0b:1%eth0", "fe80:0:0:0:0:0:a0b:1%eth0"),
    ],
)
def test_address_is_shown_as_java_writes_it(address: str, shown: str) -> None:
    credentials = Credentials(address)
    credentials.authenticate("digest", b"u:p")
    assert credentials.client_infos() == (ClientInfo("ip", shown), ClientInfo("digest", "u"))
