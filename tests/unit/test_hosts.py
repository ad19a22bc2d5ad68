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

# --- the connect string ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("a", [("a", 2181)], ""),
        ("a:1", [("a", 1)], ""),
        ("a:65535", [("a", 65535)], ""),
        ("a:02181", [("a", 2181)], ""),
        ("127.0.0.1:2182", [("127.0.0.1", 2182)], ""),
        ("a,b:2182,c.example", [("a", 2181), ("b", 2182), ("c.example", 2181)], ""),
        (" a:1 , b ", [("a", 1), ("b", 2181)], ""),
        ("a,a", [("a", 2181), ("a", 2181)], ""),
        ("a:1,b:2,", [("a", 1), ("b", 2)], ""),
        (", a:1,,b:2, /app", [("a", 1), ("b", 2)], "/app"),
        ("[::1]", [("::1", 2181)], ""),
        ("[::1]:2182", [("::1", 2182)], ""),
        ("[fe80::1%eth0]:1,b", [("fe80::1%eth0", 1), ("b", 2181)], ""),
        ("a/", [("a", 2181)], ""),
        ("a:1/app", [("a", 1)], "/app"),
        ("a:1,b:2/app/sub", [("a", 1), ("b", 2)], "/app/sub"),
        ("[::1]:1/app", [("::1", 1)], "/app"),
        ("a:1,b:2/app,other", [("a", 1), ("b", 2)], "/app,other"),
        ("a/app,x:y/:2,:3", [("a", 2181)], "/app,x:y/:2,:3"),
    ],
)
def test_connect_strings(text: str, hosts: list[tuple[str, int]], chroot: str) -> None:
    assert parse_hosts(text) == (hosts, chroot)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no server"),
        (" ", "names no server"),
        (",", "names no server"),
        ("a,:2181", "without a name"),
        (":2181", "without a name"),
        ("[]:2181", "without a name"),
        ("/app", "names no server"),
        ("a:", "bad port"),
        ("a:0", "bad port"),
        ("a:65536", "bad port"),
        ("a:-1", "bad port"),
        ("a:+1", "bad port"),
        ("a:1x", "bad port"),
        ("a: 1", "bad port"),
        ("a:1_0", "bad port"),
        ("a:\u0661", "bad port"),
        ("a:\u00b2", "bad port"),
        ("[::1]:", "bad port"),
        ("[::1]:x", "bad port"),
        ("::1", r"\[address\]:port"),
        ("::1:2181", r"\[address\]:port"),
        ("a:1:2", r"\[address\]:port"),
        ("[::1", "bad address"),
        ("[::1]2181", "bad address"),
        ("[::1]x:2181", "bad address"),
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


@pytest.mark.parametrize("text", [None, b"a:2181", 2181, ["a:2181"], ("a", 2181)])
def test_other_types(text: object) -> None:
    wrong: Any = text
    with pytest.raises(TypeError, match=f"hosts must be a str .*, not {type(text).__name__}"):
        parse_hosts(wrong)


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


# --- which server next ----------------------------------------------------------------------------

SERVERS = [(name, DEFAULT_PORT) for name in "abcdefg"]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_servers_are_tried_in_turn(count: int, seed: int) -> None:
    hosts = HostList(SERVERS[:count], Random(seed))
    assert len(hosts) == count
    first = [hosts.next() for _ in range(count)]
    assert sorted(first) == SERVERS[:count]
    for _ in range(3):
        assert [hosts.next() for _ in range(count)] == first


def test_clients_spread_over_the_servers(seed: int) -> None:
    rng = Random(seed)
    firsts = [HostList(SERVERS, rng).next() for _ in range(700)]
    assert all(firsts.count(server) > 40 for server in SERVERS)


def test_the_order_is_the_rngs_alone() -> None:
    def order(seed: int) -> list[tuple[str, int]]:
        hosts = HostList(SERVERS, Random(seed))
        return [hosts.next() for _ in SERVERS]

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(20)}) > 10


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


def test_the_callers_list_is_left_alone() -> None:
    given_list = list(SERVERS)
    HostList(given_list, Random(1))
    assert given_list == SERVERS


# --- how long to pause ----------------------------------------------------------------------------


class Jitter(Random):
    """Chance that always says the same."""

    def __init__(self, value: float) -> None:
        super().__init__(0)
        self.value = value

    def random(self) -> float:
        return self.value

    def getrandbits(self, k: int, /) -> int:  # for the shuffle
        return 0


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


def test_a_connection_of_use_ends_the_pauses() -> None:
    hosts = HostList(SERVERS[:2], Jitter(1.0))
    assert [hosts.pause() for _ in range(6)] == [0.0, 0.0, 0.05, 0.05, 0.1, 0.1]
    hosts.served()
    assert [hosts.pause() for _ in range(4)] == [0.0, 0.0, 0.05, 0.05]


def test_looking_for_days_is_no_problem() -> None:
    hosts = HostList(SERVERS[:1], Jitter(1.0))
    assert [hosts.pause() for _ in range(100_000)][-1] == LONGEST_PAUSE


def test_pauses_differ(seed: int) -> None:
    """Or all clients of a server that died would come back in one moment."""
    rng = Random(seed)
    lists = [HostList(SERVERS[:1], rng) for _ in range(50)]
    for _ in range(10):
        pauses = [hosts.pause() for hosts in lists]
    assert len(set(pauses)) > 40
    assert all(LONGEST_PAUSE / 2 <= pause <= LONGEST_PAUSE for pause in pauses)


# --- the ensemble's own list ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "servers"),
    [
        ("server.1=a:2888:3888:participant;0.0.0.0:2181", [("a", 2181)]),
        ("server.1=a:2888:3888:participant;2181", [("a", 2181)]),
        ("server.1=a:2888:3888;2181", [("a", 2181)]),
        ("server.1=a:2888:3888:observer;b:2182", [("b", 2182)]),
        ("server.1=a:2888:3888:participant;127.0.0.1:2182", [("127.0.0.1", 2182)]),
        (" server.1 = a:2888:3888:participant ; 0.0.0.0:2181 ", [("a", 2181)]),
        ("server.1=[::1]:2888:3888:participant;0.0.0.0:2181", [("::1", 2181)]),
        ("server.1=[::1]:2888:3888;2181", [("::1", 2181)]),
        ("server.1=[fe80::2]:2888:3888:participant;[::]:2181", [("fe80::2", 2181)]),
        ("server.1=a:2888:3888:participant;[0:0:0:0:0:0:0:0]:2181", [("a", 2181)]),
        ("server.1=a:2888:3888:participant;[::1]:2182", [("::1", 2182)]),
        ("server.1=a:2888:3888|b:2889:3889:participant;0.0.0.0:2181", [("a", 2181)]),
        ("server.1=[::1]:2888:3888|[::2]:2888:3888;2181", [("::1", 2181)]),
        ("server.1=a:2888:3888:participant", []),
        ("server.1=a:2888:3888:participant;", []),
        ("server.1=a:2888:3888:participant;0.0.0.0:", []),
        ("server.1=a:2888:3888:participant;0.0.0.0:0", []),
        ("server.1=a:2888:3888:participant;0.0.0.0:x", []),
        ("server.1=;2181", []),
        ("server.1=:2888:3888;2181", []),
        ("version=100000000", []),
        ("group.1=1:2;3", []),
        ("", []),
        ("=;", []),
        ("garbage", []),
    ],
)
def test_a_line_of_a_configuration(line: str, servers: list[tuple[str, int]]) -> None:
    assert parse_config(line.encode()) == servers


def test_a_configuration() -> None:
    """As a server writes it; what cannot be understood costs its own line only."""
    text = (
        b"server.1=zoo1:2888:3888:participant;0.0.0.0:2181\n"
        b"server.2=\xff\xfe;;\n"
        b"server.3=zoo3:2888:3888:observer;client3:2183\n"
        b"version=100000003"
    )
    assert parse_config(text) == [("zoo1", 2181), ("client3", 2183)]
    assert parse_config(b"") == []


@PROPERTY
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_configuration_makes_it_raise(data: bytes) -> None:
    for host, port in parse_config(b"server.1=" + data):
        assert host
        assert 0 < port < 65536


# --- other servers, and one in particular ---------------------------------------------------------


class InOrder(Random):
    """No randomness."""

    def shuffle(self, x: Any) -> None:
        x.sort()


def test_a_preferred_server_is_next_and_the_others_follow() -> None:
    hosts = HostList([("a", 1), ("b", 1), ("c", 1)], InOrder())
    hosts.prefer(("c", 1))
    assert [hosts.next() for _ in range(3)] == [("c", 1), ("a", 1), ("b", 1)]


def test_a_server_that_is_none_any_more_is_not_preferred() -> None:
    hosts = HostList([("a", 1), ("b", 1)], InOrder())
    hosts.prefer(("gone", 1))
    assert hosts.next() == ("a", 1)


def test_a_replaced_list_is_shuffled_and_begun_anew() -> None:
    hosts = HostList([("a", 1), ("b", 1)], InOrder())
    hosts.next()
    hosts.replace([("d", 1), ("c", 1), ("b", 1)])
    assert len(hosts) == 3
    assert [hosts.next() for _ in range(4)] == [("b", 1), ("c", 1), ("d", 1), ("b", 1)]


def test_the_same_list_in_another_order_changes_nothing() -> None:
    """Else every reading of the configuration would begin the round anew."""
    hosts = HostList([("a", 1), ("b", 1)], InOrder())
    hosts.next()
    hosts.replace([("b", 1), ("a", 1)])
    assert hosts.next() == ("b", 1)


def test_a_replaced_list_is_a_copy() -> None:
    servers = [("c", 1)]
    hosts = HostList([("a", 1)], InOrder())
    hosts.replace(servers)
    servers.clear()
    assert hosts.next() == ("c", 1)


def test_a_shorter_list_makes_pauses_of_its_own_rounds() -> None:
    hosts = HostList([("a", 1), ("b", 1), ("c", 1)], InOrder())
    hosts.pause()
    hosts.replace([("a", 1)])
    assert hosts.pause() > 0.0


def test_without_shuffle_servers_are_tried_in_turn_as_given() -> None:
    given = [(f"z{n}", 1) for n in range(20)]
    hosts = HostList(given, Random(1), shuffle=False)
    assert [hosts.next() for _ in range(25)] == given + given[:5]
    addresses = [(2, (f"10.0.0.{n}", 1)) for n in range(20)]
    assert hosts.arrange(addresses) == addresses


def test_without_shuffle_another_order_is_another_list() -> None:
    hosts = HostList([("a", 1), ("b", 1)], Random(1), shuffle=False)
    hosts.next()
    hosts.replace([("a", 1), ("b", 1)])
    assert hosts.next() == ("b", 1), "nothing has changed"
    hosts.replace([("b", 1), ("a", 1)])
    assert [hosts.next(), hosts.next()] == [("b", 1), ("a", 1)]
