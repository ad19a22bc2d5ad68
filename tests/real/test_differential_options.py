"""What the embedded server does when something is switched on, against a real one set up alike.

A few fixed requests each: that there is no third answer is what counts here, chance is for
`test_differential.py`. What is answered to logins is in `tests/testbed/test_sasl_server.py`, and on
real servers in `test_secure_servers.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.differential_sides import SILENCE, EmbeddedSide, Link, RealSide, Side, playing
from tests.support.random_requests import multi_body
from tests.support.server_control import Backend, Settings, ZooKeeperServer
from tests.testbed.test_processor import WRITES
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.jute.record import Record
from zkwire.testing.server.credentials import digest_id
from zkwire.testing.server.processor import Processor
from zkwire.wire import ops
from zkwire.wire.model import Perms

pytestmark = [pytest.mark.apache, pytest.mark.since("3.7")]

TICK = 0.2
CONFIG = "/zookeeper/config"


@pytest.fixture(autouse=True)
def own_servers(backend: Backend) -> None:
    """Options and files of this machine's own are what these tests are about."""
    if backend.name != "installed":
        pytest.skip(f"needs servers with settings of its own; the servers are {backend}")


def embedded(**options: Any) -> EmbeddedSide:
    return EmbeddedSide(
        Processor(rng=random.Random(1), tick=TICK, timeouts=(2 * TICK, 60.0), **options)
    )


def real(server: ZooKeeperServer) -> RealSide:
    return RealSide(server.host, server.port)


class Talk:
    """One connection to one side; what it hears is kept in a form that can be compared."""

    def __init__(self, side: Side, *, read_only: bool | None = False) -> None:
        self.link: Link = side.connect()
        self.xid = 0
        self.heard: list[Any] = []
        request = r.ConnectRequest(0, 0, 10_000, 0, bytes(16), read_only)
        (greeting,) = self.link.exchange(frame(request.encode()), 1)
        if len(greeting) > 16:
            answer = r.ConnectResponse.decode(greeting)
            self.heard.append((answer.time_out, answer.session_id != 0, answer.read_only))
        else:
            self.heard.append(greeting and tuple(r.ReplyHeader.decode(greeting))[::2])

    def ask(self, op: ops.Op, record: Record | None = None, *, body: bytes = b"") -> bytes:
        """Ask, and return the reply's body; of a zxid only what kind it is is remembered."""
        self.xid += 1
        data = r.RequestHeader(self.xid, op.opcode).encode()
        data += body if record is None else record.encode()
        found = b""
        for raw in self.link.exchange(frame(data), 1):
            if raw in (b"", SILENCE):
                self.heard.append(raw)
                continue
            header, at = r.ReplyHeader.unpack(raw)
            found = raw[at:]
            self.heard.append((op.name, header.xid, min(header.zxid, 1), header.err, len(found)))
        return found

    def see_end(self) -> None:
        self.heard.append(self.link.exchange(b"", None))

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()


def who(talk: Talk) -> list[tuple[str, str]]:
    """Its ids, which a real server keeps in a hash set."""
    infos = r.WhoAmIResponse.decode(talk.ask(ops.WHO_AM_I)).client_info
    return sorted((info.auth_scheme, info.user) for info in infos)


def talk_to_strict(side: Side) -> Iterable[Any]:
    nobody = (r.ACL(0, r.Id("world", "anyone")),)
    mine = (r.ACL(Perms.ALL, r.Id("auth", "")),)
    for op in (ops.PING, ops.WHO_AM_I, ops.CLOSE_SESSION):
        with Talk(side) as stranger:
            stranger.ask(op)
            stranger.see_end()
            yield stranger.heard
    with Talk(side) as stranger:
        stranger.ask(ops.AUTH, body=b"\0\0\0\0\xff\xff\xff\xff\0\0\0\0")  # of no scheme
        stranger.see_end()
        yield stranger.heard
    for secret in (b"u:p", b"super:magic"):
        with Talk(side) as known:
            known.ask(ops.AUTH, r.AuthPacket(0, "digest", secret))
            yield who(known)
            path = f"/{secret[:1].decode()}"
            known.ask(ops.CREATE, r.CreateRequest(path, b"", nobody, 0))
            known.ask(ops.GET_DATA, r.GetDataRequest(path, False))
            known.ask(ops.CREATE, r.CreateRequest(path + "2", b"", mine, 0))
            known.ask(ops.GET_ACL, r.GetACLRequest(path + "2"))
            known.ask(ops.CREATE_TTL, r.CreateTTLRequest("/ttl", b"", nobody, 5, 1000))
            known.ask(ops.SASL, r.GetSASLRequest(b""))
            known.ask(ops.RECONFIG, r.ReconfigRequest(None, "3", None, -1))
            known.ask(ops.CLOSE_SESSION)
            known.see_end()
            yield known.heard


def test_servers_that_insist_on_credentials(backend: Backend) -> None:
    flags = (
        "-Dzookeeper.enforce.auth.enabled=true",
        "-Dzookeeper.enforce.auth.schemes=digest",
        f"-Dzookeeper.DigestAuthenticationProvider.superDigest={digest_id(b'super:magic')}",
        "-Dzookeeper.extendedTypesEnabled=false",
    )
    options: dict[str, Any] = {
        "enforce_auth": ("digest",),
        "super_password": "magic",
        "extended_types": False,
    }
    with backend.standalone(Settings(java_flags=flags)) as server:
        assert list(talk_to_strict(embedded(version=playing(server), **options))) == list(
            talk_to_strict(real(server))
        )


CHECK = (ops.CHECK, r.CheckVersionRequest("/a", -1))


def talk_read_only(side: Side) -> Iterable[Any]:
    for flag in (False, None):
        with Talk(side, read_only=flag) as refused:
            yield refused.heard
    with Talk(side, read_only=True) as checker:
        checker.ask(*CHECK)  # behind which 3.9 ends the connection, sooner or later
        yield checker.heard
    with Talk(side, read_only=True) as reader:
        for op, record in WRITES:
            if op is not CHECK[0]:
                reader.ask(op, record)
        reader.ask(ops.EXISTS, r.ExistsRequest("/a", True))
        reader.ask(ops.GET_CHILDREN, r.GetChildrenRequest("/", True))
        reader.ask(ops.ADD_WATCH, r.AddWatchRequest("/", 1))
        reader.ask(ops.SET_WATCHES, r.SetWatches(0, (), ("/",), ("/none",)))
        reads = [(ops.GET_CHILDREN, r.GetChildrenRequest("/none", False))]
        reader.ask(ops.MULTI_READ, body=multi_body(reads))
        reader.ask(ops.AUTH, r.AuthPacket(0, "digest", b"u:p"))
        reader.ask(ops.WHO_AM_I)
        reader.ask(ops.GET_EPHEMERALS, r.GetEphemeralsRequest("/"))
        reader.ask(ops.SASL, r.GetSASLRequest(b""))
        reader.ask(ops.PING)
        reader.ask(ops.CLOSE_SESSION)
        reader.see_end()
        yield reader.heard


RECONFIGURATIONS = (
    r.ReconfigRequest(None, "3", None, 77),
    r.ReconfigRequest(None, "2,3", None, -1),
    r.ReconfigRequest(None, "three", None, -1),
    r.ReconfigRequest("server.4=h4", None, None, -1),
    r.ReconfigRequest("server.4=127.0.0.1:1001:1002", None, None, -1),
    r.ReconfigRequest(
        None, None, "server.8=127.0.0.1:1001:1002;1003,server.9=127.0.0.1:1004:1005;1006", -1
    ),
)


def talk_reconfig(side: Side) -> Iterable[Any]:
    with Talk(side) as one:
        one.ask(ops.RECONFIG, RECONFIGURATIONS[0])
        one.ask(ops.RECONFIG, r.ReconfigRequest(None, None, None, -1))
        one.ask(ops.AUTH, r.AuthPacket(0, "digest", b"super:magic"))
        for request in RECONFIGURATIONS:
            one.ask(ops.RECONFIG, request)
        before = r.GetDataResponse.decode(one.ask(ops.GET_DATA, r.GetDataRequest(CONFIG, True)))
        *members, version = (before.data or b"").decode().splitlines()
        # A real ensemble's first configuration is its first leader's; the embedded has none.
        yield version == f"version={before.stat.mzxid:x}", before.stat.version
        whole = r.ReconfigRequest(None, None, ",".join(members), before.stat.mzxid)
        after = r.GetDataResponse.decode(one.ask(ops.RECONFIG, whole))
        *same, version = (after.data or b"").decode().splitlines()
        yield same == members, version == f"version={after.stat.mzxid:x}", after.stat.version
        yield after.stat.mzxid > before.stat.mzxid, after.stat.aversion, after.stat.cversion
        one.ask(ops.RECONFIG, whole)
        # Ports and versions differ in length.
        one.heard = [entry if entry[3] else entry[:4] for entry in one.heard[1:]]
        yield one.heard


def test_ensembles(backend: Backend) -> None:
    """Reconfiguration while there is a quorum, a read-only server when there is none."""
    digest = digest_id(b"super:magic")
    settings = Settings(
        options={"localSessionsEnabled": "true", "reconfigEnabled": "true"},
        java_flags=(
            "-Dreadonlymode.enabled=true",
            f"-Dzookeeper.DigestAuthenticationProvider.superDigest={digest}",
        ),
    )
    with backend.ensemble(settings) as ensemble:
        leader = ensemble.leader()
        options: dict[str, Any] = {
            "reconfig": True,
            "super_password": "magic",
            "version": playing(leader),
        }
        side = embedded(members=3, **options)
        side.processor.set_members({n: f"h{n}:1:2:participant;h{n}:3" for n in (1, 2, 3)})
        assert list(talk_reconfig(side)) == list(talk_reconfig(real(leader)))
        last = ensemble.leave_read_only()
        assert last.four_letter("isro") == "ro"
        for number in range(3):
            side.processor.set_read_only(True, 0.0, number)
        assert list(talk_read_only(side)) == list(talk_read_only(real(last)))
