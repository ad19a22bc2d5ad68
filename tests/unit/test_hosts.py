"""The connect string, and in which order and how fast servers are tried."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from zkwire.session.hosts import (
    DEFAULT_PORT,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    HostList,
    parse_config,
    parse_hosts,
)

PROPERTY = settings(derandomize=True, deadline=None, max_examples=examples(200))


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("a:02181", [("a", 2181)], ""),
        ("127.0.0.1:65535", [("127.0.0.1", 65535)], ""),
        (", a:1,,b , a,/app", [("a", 1), ("b", 2181), ("a", 2181)], "/app"),
        ("[::1]", [("::1", 2181)], ""),
        ("[fe80::1%eth0]:1,b", [("fe80::1%eth0", 1), ("b", 2181)], ""),
        ("a/", [("a", 2181)], ""),
        ("[::1]:1/app/sub", [("::1", 1)], "/app/sub"),
        ("a/app,x:y/:2,:3", [("a", 2181)], "/app,x:y/:2,:3"),
    ],
)
def test_connect_strings(text: str, hosts: list[tuple[str, int]], chroot: str) -> None:
    assert parse_hosts(text) == (hosts, chroot)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "names no server") for text in ("", " ", ",", "/app")),
        *((text, "without a name") for text in ("a,:2181", ":2181", "[]:2181")),
        *(
            (f"{host}:{port}", "bad port")
            for host in ("a", "[::1]")
            for port in ("", "0", "65536", "-1", "+1", "1x", " 1", "1_0", "\u0661", "\u00b2")
        ),
        *((text, r"\[address\]:port") for text in ("::1", "::1:2181", "a:1:2")),
        *((text, "bad address") for text in ("[::1", "[::1]2181", "[::1]x:2181")),
        ("a/app/", "end with '/'"),
        ("a//app", "empty name"),
        ("a/../app", r"'\.' or '\.\.'"),
        ("a:1/app,b:2/app", "chroot once, behind the last server"),
        ("a:1/app, b:2 ,c", "chroot once"),
        ("a/,[::1]:2181", "chroot once"),
    ],
)
def test_bad_connect_strings(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_hosts(text)


@PROPERTY
@given(st.text("ab.:,[]/-1 \u0661", max_size=12))
def test_any_text_is_servers_or_a_value_error(text: str) -> None:
    try:
        hosts, chroot = parse_hosts(text)
    except ValueError:
        return
    assert len(hosts) == sum(bool(place.strip()) for place in text.partition("/")[0].split(","))
    assert all(host and 0 < port < 65536 for host, port in hosts)
    assert chroot == "" or chroot.startswith("/")
    if not any("]" in host for host, _ in hosts):
        again = ",".join(f"[{host}]:{port}" for host, port in hosts) + chroot
        assert parse_hosts(again) == (hosts, chroot)


SERVERS = [(name, DEFAULT_PORT) for name in "abcdefg"]


@PROPERTY
@given(st.lists(st.tuples(st.sampled_from([2, 10]), st.integers(0, 9)), unique=True), st.integers())
def test_the_addresses_of_a_name_keep_their_families_and_their_order(
    addresses: list[tuple[int, int]], seed: int
) -> None:
    """Which family goes first is the resolver's to say, and nothing else of its order counts."""
    hosts = HostList([("a", 1)], Random(seed))
    arranged = hosts.arrange(addresses)
    assert sorted(arranged) == sorted(addresses)
    assert [family for family, _ in arranged] == [family for family, _ in addresses]
    rest = sorted(addresses[1:], reverse=True)
    for family in (2, 10):
        again = [address for address in hosts.arrange(rest) if address[0] == family]
        assert again == [a for a in arranged if a[0] == family and a in rest]


class Jitter(Random):
    """Chance that always says the same and leaves lists in their order."""

    def __init__(self, value: float) -> None:
        super().__init__(0)
        self.value = value

    def random(self) -> float:
        return self.value

    def shuffle(self, x: Any) -> None:
        x.sort()


@pytest.mark.parametrize("count", [1, 3])
def test_pauses_grow_from_round_to_round(count: int) -> None:
    def rounds(rng: Random) -> list[list[float]]:
        hosts = HostList(SERVERS[:count], rng)
        return [[hosts.pause() for _ in range(count)] for _ in range(8)]

    expected = [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert rounds(Jitter(1.0)) == [[pause] * count for pause in expected]
    assert rounds(Jitter(0.0)) == [[pause / 2] * count for pause in expected]
    assert expected[1] == FIRST_PAUSE
    assert expected[-1] == LONGEST_PAUSE


BAD_ENDS = ("0.0.0.0:", "0.0.0.0:0", "0.0.0.0:x")


@pytest.mark.parametrize(
    ("line", "servers"),
    [
        ("server.1=a:2888:3888:participant;2181", [("a", 2181)]),
        ("server.1=a:2888:3888;2181", [("a", 2181)]),
        ("server.1=a:2888:3888:observer;b:2182", [("b", 2182)]),
        ("server.1=a:2888:3888:participant;127.0.0.1:2182", [("127.0.0.1", 2182)]),
        (" server.1 = a:2888:3888:participant ; 0.0.0.0:2181 ", [("a", 2181)]),
        ("server.1=[::1]:2888:3888:participant;0.0.0.0:2181", [("::1", 2181)]),
        ("server.1=[::1]:2888:3888|[::2]:2888:3888;2181", [("::1", 2181)]),
        ("server.1=[fe80::2]:2888:3888:participant;[::]:2181", [("fe80::2", 2181)]),
        ("server.1=a:2888:3888:participant;[0:0:0:0:0:0:0:0]:2181", [("a", 2181)]),
        ("server.1=a:2888:3888:participant;[::1]:2182", [("::1", 2182)]),
        ("server.1=a:2888:3888|b:2889:3889:participant;0.0.0.0:2181", [("a", 2181)]),
        ("server.1=a:2888:3888:participant", []),
        *((f"server.1=a:2888:3888:participant;{end}", []) for end in ("", *BAD_ENDS)),
        *((line, []) for line in ("server.1=;2181", "server.1=:2888:3888;2181", "group.1=1:2;3")),
        *((line, []) for line in ("version=100000000", "", "=;", "garbage")),
    ],
)
def test_a_line_of_a_configuration(line: str, servers: list[tuple[str, int]]) -> None:
    assert parse_config(line.encode()) == servers


def in_order(names: str, *, shuffle: bool = True) -> HostList:
    return HostList([(name, 1) for name in names], Jitter(1.0), shuffle=shuffle)


def next_ones(hosts: HostList, count: int) -> str:
    return "".join(hosts.next()[0] for _ in range(count))


def test_a_preferred_server_is_next_and_the_others_follow() -> None:
    hosts = in_order("abc")
    hosts.prefer(("c", 1))
    assert next_ones(hosts, 3) == "cab"
    hosts = in_order("ab")
    hosts.prefer(("gone", 1))
    assert next_ones(hosts, 1) == "a"
