"""The TLS filter against a peer in memory: any pieces, any end, and every way to be refused."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from tests.support.certificates import Authority
from zkwire.net.tls import TlsFilter, check_context, describe

BOTH_NAMES = ("DNS:localhost", "IP:127.0.0.1")


@pytest.fixture(scope="session")
def server_context(authority: Authority) -> ssl.SSLContext:
    """For a server with a good certificate; not to be changed."""
    return context_for(authority, "good", hosts=BOTH_NAMES)


@pytest.fixture(scope="session")
def client_context(authority: Authority) -> ssl.SSLContext:
    """For a client that trusts it; not to be changed."""
    return authority.client_context()


def context_for(authority: Authority, name: str, **how: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown = authority.sign(name, **how)
    context.load_cert_chain(shown.certificate, shown.key)
    return context


class Peer:
    """The server's side, and the wire: what one side made and the other has not got yet."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.error: ssl.SSLError | None = None
        self.ready = False

    def handshake(self) -> None:
        if self.ready or self.error is not None:
            return
        try:
            self.tls.do_handshake()
            self.ready = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = error

    def send(self, plaintext: bytes) -> bytes:
        """The ciphertext of it."""
        self.tls.write(plaintext)
        return self.outgoing.read()


Pair = tuple[TlsFilter, Peer]


def shake(client: TlsFilter, peer: Peer) -> None:
    """Carry the handshake to its end on both sides."""
    done = client.handshake()
    for _ in range(10):
        peer.incoming.write(client.take_output())
        peer.handshake()
        assert client.feed(peer.outgoing.read()) == b""
        done = done or client.handshake()
        if done and not client._outgoing.pending and not peer.outgoing.pending:
            return
    raise AssertionError("the handshake does not end")


@pytest.fixture
def pair(client_context: ssl.SSLContext, server_context: ssl.SSLContext) -> Pair:
    """Both sides after the handshake."""
    client, peer = TlsFilter(client_context, "localhost"), Peer(server_context)
    shake(client, peer)
    return client, peer


def test_an_address_with_a_zone(authority: Authority, client_context: ssl.SSLContext) -> None:
    peer = Peer(context_for(authority, "zone", hosts=("IP:fe80::1",)))
    shake(TlsFilter(client_context, "fe80::1%eth0"), peer)
    assert peer.ready


def test_a_stream_that_is_cut_has_no_end_and_no_half_record(pair: Pair) -> None:
    client, peer = pair
    whole, half = peer.send(b"whole"), peer.send(b"half")[:-1]
    assert client.feed(whole + half) == b"whole"
    assert client.feed(b"") == b""
    assert not client.eof
    assert client.error is None


# OpenSSL 3.6 does not tell these two apart.
NO_RECORD = "TLS: what came is no TLS record, or was changed on its way"
CHANGED = {"TLS: decryption failed or bad record mac", NO_RECORD}


@pytest.mark.parametrize("size", [1, 65536])
def test_a_forged_record_is_an_error_after_all_before_it(pair: Pair, size: int) -> None:
    client, peer = pair
    good, forged = peer.send(b"good"), bytearray(peer.send(b"forged"))
    forged[-1] ^= 1
    data = good + bytes(forged)
    came = b"".join(client.feed(data[at : at + size]) for at in range(0, len(data), size))
    assert came == b"good"
    error = client.error
    assert error is not None
    assert describe(error) in CHANGED
    assert client.feed(peer.send(b"more")) == b""
    assert client.error is error
    assert client.take_output(), "an alert tells the peer"


@pytest.mark.parametrize("host", ["other.example", "127.0.0.2"])
def test_a_certificate_for_another_host_ends_the_handshake(
    client_context: ssl.SSLContext, server_context: ssl.SSLContext, host: str
) -> None:
    client, peer = TlsFilter(client_context, host), Peer(server_context)
    with pytest.raises(ssl.SSLError) as caught:
        shake(client, peer)
    with pytest.raises(ssl.SSLError) as again:
        client.handshake()
    assert client.feed(b"more") == b""
    assert again.value is client.error is caught.value
    assert describe(caught.value) == f"TLS: the certificate is not for host '{host}'"
    peer.incoming.write(client.take_output())
    peer.handshake()
    assert peer.error is not None, "an alert has told the peer"
    assert "ALERT" in peer.error.reason


@pytest.mark.parametrize(
    ("kind", "attributes", "words"),
    [
        (ssl.SSLZeroReturnError, {}, "the other side ended the connection"),
        (ssl.SSLEOFError, {}, "the other side ended the connection"),
        (ssl.SSLWantReadError, {}, "the other side wants to renegotiate"),
        (ssl.SSLError, {}, "failed"),
        (ssl.SSLError, {"reason": "NO_CIPHERS_AVAILABLE"}, "no ciphers available"),
        (ssl.SSLError, {"reason": None}, "failed"),
        (
            ssl.SSLError,
            {"reason": "TLSV1_ALERT_PROTOCOL_VERSION"},
            "the server refused: protocol version",
        ),
        (
            ssl.SSLError,
            {"reason": "TLSV1_ALERT_UNKNOWN_CA"},
            "the server does not accept the client certificate: unknown ca",
        ),
        (
            ssl.SSLError,
            {"reason": "SSLV3_ALERT_BAD_CERTIFICATE"},
            "the server wants a client certificate, or a better one",
        ),
        (ssl.SSLCertVerificationError, {}, "the certificate is not valid"),
        (ssl.SSLCertVerificationError, {"verify_message": "is odd"}, "is odd"),
    ],
)
def test_words_for_other_errors(
    kind: type[ssl.SSLError], attributes: dict[str, object], words: str
) -> None:
    error = kind(1, "[SSL: SOMETHING] something (_ssl.c:1007)")
    for name, value in attributes.items():
        setattr(error, name, value)
    assert describe(error) == f"TLS: {words}"


def test_a_context_is_checked() -> None:
    check_context(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    check_context(ssl.create_default_context())
    with pytest.raises(TypeError, match=r"must be an ssl\.SSLContext, not bool"):
        check_context(True)
    with pytest.raises(ValueError, match="is for servers"):
        check_context(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


@pytest.mark.parametrize(
    "answer",
    [
        b"ZooKeeper version: 3.8.0",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        bytes.fromhex("00000025 00000000 00002710 0100000000000000 00000010") + bytes(17),
    ],
)
def test_a_peer_that_speaks_plain_text(client_context: ssl.SSLContext, answer: bytes) -> None:
    client = TlsFilter(client_context, "localhost")
    assert not client.handshake()
    assert client.feed(answer) == b""
    assert client.error is None, "the handshake has not looked at it yet"
    with pytest.raises(ssl.SSLError) as caught:
        client.handshake()
    assert describe(caught.value) == "TLS: the other side does not speak TLS"
