"""The embedded server's SASL DIGEST-MD5, against RFC 2831's example and a client of this file.

That client is a third reading of the RFC: it shares no code with the server's side or zkwire's.
"""

from __future__ import annotations

import hashlib
import re

import pytest

from tests.support.embedded import Peer, Reply, connected
from zkwire.jute import records as r
from zkwire.testing.server.credentials import DigestServer, SaslError
from zkwire.wire import ops
from zkwire.wire.model import Perms

AUTH_FAILED, REQUIRE_AUTH, INVALID_ACL, NO_AUTH = -115, -124, -114, -102
USERS = {"bob": "secret", "jos\u00e9": "p\u00e4ss", "\u5f20": "\u4e09"}


def md5(data: bytes) -> bytes:
    return hashlib.md5(data).digest()


def answer_to(challenge: bytes, user: str, password: str, **changed: str) -> tuple[bytes, bytes]:
    """The client's answer, and the proof that it expects in return."""
    found = re.fullmatch(
        rb'realm="(.*?)",nonce="(.*?)",charset=utf-8,algorithm=md5-sess', challenge
    )
    assert found is not None
    fields = {
        "realm": found[1].decode(),
        "nonce": found[2].decode(),
        "cnonce": 'quo"ted',
        "nc": "00000001",
        "uri": "zookeeper/zk-sasl-md5",
        "qop": "auth",
        **changed,
    }
    authzid = fields.get("authzid")
    charset = "latin-1" if all(ord(c) < 256 for c in user + password) else "utf-8"
    secret = md5(f"{user}:{fields['realm']}:{password}".encode(charset))
    parts = [fields["nonce"], fields["cnonce"], *filter(None, [authzid])]
    first = md5(b":".join([secret, *(part.encode() for part in parts)])).hex()

    def digest(method: str) -> str:
        second = md5(f"{method}:{fields['uri']}".encode()).hex()
        middle = f"{fields['nonce']}:{fields['nc']}:{fields['cnonce']}:{fields['qop']}"
        return md5(f"{first}:{middle}:{second}".encode()).hex()

    cnonce = fields["cnonce"].replace('"', '\\"')
    text = (
        f'charset=utf-8,username="{user}",realm="{fields["realm"]}",nonce="{fields["nonce"]}",'
        f'nc={fields["nc"]},cnonce="{cnonce}",digest-uri="{fields["uri"]}",maxbuf=65536,'
        f"response={digest('AUTHENTICATE')},qop={fields['qop']}"
    ) + (f',authzid="{authzid}"' if authzid else "")
    return text.encode(), b"rspauth=" + digest("").encode()


def send(peer: Peer, token: bytes | None) -> Reply:
    return peer.call(ops.SASL, r.GetSASLRequest(token))


@pytest.mark.parametrize("changed", [{}, {"authzid": "somebody"}])
@pytest.mark.parametrize("user", USERS)
def test_whoever_knows_the_password_is_let_in(user: str, changed: dict[str, str]) -> None:
    peer = connected(sasl_users=USERS)
    challenge = send(peer, b"")
    assert (challenge.zxid, challenge.err) == (0, 0)
    answer, proof = answer_to(challenge.body.token, user, USERS[user], **changed)
    assert send(peer, answer).body.token == proof
    assert r.ClientInfo("sasl", user) in peer.call(ops.WHO_AM_I).body.client_info
    peer.create("/a", acl=(r.ACL(Perms.ALL, r.Id("sasl", user)),))
    peer.create("/b", acl=(r.ACL(Perms.ALL, r.Id("auth", "")),))
    other = Peer(peer.processor).connect()
    assert other.get("/a").err == other.get("/b").err == NO_AUTH
    assert peer.get("/a").err == peer.get("/b").err == 0


@pytest.mark.parametrize(
    ("user", "password", "changed"),
    [
        ("bob", "wrong", {}),
        ("nobody", "secret", {}),
        ("bob", "secret", {"uri": "zookeeper/localhost"}),
        ("bob", "secret", {"nonce": "old"}),
        ("bob", "secret", {"nc": "00000002"}),
        ("bob", "secret", {"realm": "elsewhere"}),
        ("bob", "secret", {"realm": ""}),
        ("bob", "secret", {"qop": "auth-int"}),
    ],
)
@pytest.mark.parametrize(("schemes", "code"), [((), AUTH_FAILED), (("sasl",), REQUIRE_AUTH)])
def test_others_are_not(
    user: str, password: str, changed: dict[str, str], schemes: tuple[str, ...], code: int
) -> None:
    peer = connected(sasl_users=USERS, enforce_auth=schemes)
    answer, _ = answer_to(send(peer, b"").body.token, user, password, **changed)
    assert send(peer, answer) == Reply(2, 0, code, b"\xff\xff\xff\xff")
    assert peer.ended


@pytest.mark.parametrize("token", [b"username=bob", b'a="b', b"a=b c=d", b"a=1,a=2", b",", b""])
def test_what_is_no_answer(token: bytes) -> None:
    peer = connected(sasl_users=USERS)
    send(peer, b"whatever it is, it is answered with a challenge")
    assert send(peer, token).err == AUTH_FAILED
    assert peer.ended


def test_once_is_enough() -> None:
    server = DigestServer(USERS, "n")
    answer, _ = answer_to(server.step(b""), "bob", "secret")
    server.step(answer)
    assert server.user == "bob"
    with pytest.raises(SaslError, match="over"):
        server.step(answer)


def test_a_server_without_sasl_answers_with_null(peer: Peer) -> None:
    assert send(peer, b"") == Reply(1, 0, 0, r.SetSASLResponse(None))
    assert peer.create("/a", acl=(r.ACL(Perms.ALL, r.Id("sasl", "bob")),)).err == INVALID_ACL
    peer.ask(ops.SASL, r.GetSASLRequest(None))
    assert peer.ended
