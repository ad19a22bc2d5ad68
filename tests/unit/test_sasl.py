"""SASL mechanisms: DIGEST-MD5 against the RFC's example, a server made here, and bad servers."""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import Callable, Generator
from typing import Any

import pytest

from zkwire.errors import AuthFailedError
from zkwire.net import sasl
from zkwire.net.sasl import DigestMD5

PASSWORD = "correct horse"
CHALLENGE = b'realm="zk-sasl-md5",nonce="a nonce",charset=utf-8,algorithm=md5-sess'


def repeated(mechanism: DigestMD5, cnonce: bytes) -> DigestMD5:
    """The mechanism with this number in the place of a new one."""
    mechanism._cnonce = cnonce
    return mechanism


def begun(mechanism: DigestMD5) -> Generator[bytes, bytes, None]:
    """An exchange after its first token, which is empty."""
    exchange = mechanism.exchange("any.host")
    assert next(exchange) == b""
    return exchange


def answer(challenge: bytes, user: str = "bob", password: str = PASSWORD) -> bytes:
    return begun(repeated(DigestMD5(user, password), b"c")).send(challenge)


def challenged() -> Generator[bytes, bytes, None]:
    """An exchange whose challenge has been answered."""
    exchange = begun(repeated(DigestMD5("bob", PASSWORD), b"c"))
    exchange.send(CHALLENGE)
    return exchange


def directive(token: bytes, name: bytes) -> bytes | None:
    found = re.search(rb"(?:^|,)" + name + rb'=("(?:[^"\\]|\\.)*"|[^",]*)(?=,|$)', token)
    return found[1] if found else None


def md5(data: bytes) -> bytes:
    return hashlib.md5(data).digest()


def proof(hashed: bytes, nonce: bytes, cnonce: bytes, a2: bytes) -> bytes:
    """RFC 2831, 2.1.2.1, from the text ``user:realm:password`` as it is hashed."""
    ha1 = md5(md5(hashed) + b":" + nonce + b":" + cnonce).hex().encode()
    ha2 = md5(a2).hex().encode()
    return md5(b":".join((ha1, nonce, b"00000001", cnonce, b"auth", ha2))).hex().encode()


def rspauth(hashed: bytes, nonce: bytes = b"a nonce", cnonce: bytes = b"c") -> bytes:
    return b"rspauth=" + proof(hashed, nonce, cnonce, b":zookeeper/zk-sasl-md5")


def response(hashed: bytes, nonce: bytes = b"n") -> bytes:
    return proof(hashed, nonce, b"c", b"AUTHENTICATE:zookeeper/zk-sasl-md5")


GOOD_PROOF = rspauth(b"bob:zk-sasl-md5:correct horse")


def test_the_example_of_the_rfc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl, "DIGEST_URI", b"imap/elwood.innosoft.com")
    exchange = begun(repeated(DigestMD5("chris", "secret"), b"OA6MHXh6VqTrRk"))
    token = exchange.send(
        b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",'
        b"algorithm=md5-sess,charset=utf-8"
    )
    assert directive(token, b"response") == b"d388dad90d4bbd760a152321f2143af7"
    with pytest.raises(StopIteration):
        exchange.send(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")


@pytest.mark.parametrize(
    ("user", "password", "hashed"),
    [
        ("grün", "weiß", b"gr\xfcn:zk-sasl-md5:wei\xdf"),
        ("grün", "5 €", b"gr\xfcn:zk-sasl-md5:5 \xe2\x82\xac"),
        ("日本", "weiß", b"\xe6\x97\xa5\xe6\x9c\xac:zk-sasl-md5:wei\xdf"),
    ],
)
def test_what_latin_1_has_is_hashed_in_it_and_sent_in_utf_8(
    user: str, password: str, hashed: bytes
) -> None:
    token = answer(CHALLENGE, user, password)
    assert directive(token, b"username") == b'"' + user.encode() + b'"'
    assert directive(token, b"response") == response(hashed, b"a nonce")


def test_every_exchange_has_a_nonce_of_its_own() -> None:
    mechanism = DigestMD5("bob", PASSWORD)
    tokens = [begun(mechanism).send(CHALLENGE) for _ in range(2)]
    first, second = (directive(token, b"cnonce") for token in tokens)
    assert first != second
    assert first is not None
    assert len(first) >= 2 + 22, "the RFC wants 64 bits at least; this has 128"


GARBAGE = [
    *(b"garbage", b",", b'nonce="n', b'nonce="n\\"', b'nonce="n"x,algorithm=md5-sess'),
    *(b'nonce="n" algorithm=md5-sess', b"nonce=,algorithm=md5-sess", b'="n",algorithm=md5-sess'),
    b"\x60\x82\x01\x0b",
]


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (b"", "perhaps SASL is not enabled"),
        (b'realm="r",algorithm=md5-sess', "lacks nonce"),
        (b'nonce="",algorithm=md5-sess', "lacks nonce"),
        (b'nonce="1",nonce="1",algorithm=md5-sess', "more than one nonce"),
        (b'nonce="n"', "lacks algorithm"),
        (b'nonce="n",algorithm=md5', "not for DIGEST-MD5"),
        (CHALLENGE + b',qop="auth-int,auth-conf"', "does not offer qop=auth"),
        (CHALLENGE + b',qop=""', "does not offer qop=auth"),
        (CHALLENGE + b',qop="authx"', "does not offer qop=auth"),
        (CHALLENGE + b",qop=auth,qop=auth", "more than one qop"),
        (CHALLENGE + b",charset=utf-8", "more than one charset"),
        (b'nonce="n",algorithm=md5-sess,charset=utf-16', "charset other than"),
        (b'realm="\xff",nonce="n",algorithm=md5-sess,charset=utf-8', "garbage"),
        *((garbage, "garbage") for garbage in GARBAGE),
        (b'nonce="n",algorithm=md5-sess\0', "not for DIGEST-MD5"),
    ],
)
def test_an_unusable_challenge(challenge: bytes, message: str) -> None:
    with pytest.raises(AuthFailedError, match=message):
        answer(challenge)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"", "perhaps it refused the user name or the password"),
        (b"maxbuf=1", "no proof"),
        (b'rspauth=""', "wrong"),
        (b"rspauth=" + b"0" * 32, "wrong"),
        (GOOD_PROOF[:-1], "wrong"),
        (GOOD_PROOF + b"0", "wrong"),
        (GOOD_PROOF.upper(), "wrong"),
        (rspauth(b"bob:zk-sasl-md5:wrong horse"), "wrong"),
        (rspauth(b"bob:zk-sasl-md5:correct horse", nonce=b"another"), "wrong"),
        (rspauth(b"bob:zk-sasl-md5:correct horse", cnonce=b"another"), "wrong"),
        (b"rspauth=\xff", "wrong"),
        (GOOD_PROOF + b"," + GOOD_PROOF, "more than one rspauth"),
        (b"rspauth", "garbage"),
    ],
)
def test_a_wrong_proof(token: bytes, message: str) -> None:
    with pytest.raises(AuthFailedError, match=message):
        challenged().send(token)


def test_the_response_sent_back_is_no_proof() -> None:
    exchange = begun(repeated(DigestMD5("bob", PASSWORD), b"c"))
    sent = directive(exchange.send(CHALLENGE), b"response") or b""
    with pytest.raises(AuthFailedError, match="wrong"):
        exchange.send(b"rspauth=" + sent)


def test_a_system_without_md5(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(data: bytes = b"") -> None:
        raise ValueError("disabled for FIPS")

    monkeypatch.setattr(hashlib, "md5", refused)
    with pytest.raises(AuthFailedError, match="does not allow MD5"):
        next(DigestMD5("bob", PASSWORD).exchange("any.host"))


@pytest.mark.parametrize(
    ("user", "password", "error", "message"),
    [
        (b"bob", PASSWORD, TypeError, "the user name must be a str, not bytes"),
        (None, PASSWORD, TypeError, "the user name must be a str, not NoneType"),
        ("", PASSWORD, ValueError, "the user name is empty"),
        ("b\ud800", PASSWORD, ValueError, "the user name contains a surrogate"),
        ("bob", PASSWORD.encode(), TypeError, "the password must be a str, not bytes"),
        ("bob", None, TypeError, "the password must be a str, not NoneType"),
        ("bob", PASSWORD + "\udfff", ValueError, "the password contains a surrogate"),
    ],
)
def test_wrong_arguments(user: Any, password: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        DigestMD5(user, password)
    assert_hidden(caught.value)


def assert_hidden(error: BaseException) -> None:
    """Nothing that the library's frames, the error or its causes hold shows the password."""
    chain: BaseException | None = error
    while chain is not None:
        report = traceback.TracebackException.from_exception(chain, capture_locals=True)
        for frame in report.stack:
            if frame.filename == sasl.__file__:
                assert "horse" not in str(frame.locals), frame
        assert "horse" not in f"{chain} {chain!r} {vars(chain)}"
        assert not isinstance(chain, UnicodeError), "it holds what could not be encoded"
        chain = chain.__cause__ or chain.__context__


@pytest.mark.parametrize(
    "fail",
    [
        lambda: challenged().send(b"rspauth=0"),
        lambda: answer(b"garbage"),
        lambda: answer(b'nonce="n",algorithm=md5-sess', "bob", PASSWORD + "€"),
        lambda: answer(b'nonce="n",algorithm=md5-sess', "€", PASSWORD),
    ],
)
def test_errors_and_tracebacks_hide_the_password(fail: Callable[[], object]) -> None:
    assert repr(DigestMD5("bob", PASSWORD)) == "DigestMD5('bob', <hidden>)"
    with pytest.raises(AuthFailedError) as caught:
        fail()
    assert_hidden(caught.value)
