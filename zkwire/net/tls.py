"""TLS as a filter of bytes: ciphertext in, plaintext out, and the other way round.

Decides how TLS errors are worded; must not know sockets, threads or frames.  It works on memory and
never blocks, so one thread can read a connection while another one writes.

The user of a :class:`TlsFilter` serialises every call with one lock, since a TLS connection is one
state machine.  Ciphertext must reach the peer in the order in which it was made: what ``encrypt``
or ``take_output`` returned is sent before what a later call returned.  So a thread gets the right
to send (the write role) before it encrypts.  Reading makes output, too (answers to key updates).

Import it late: ``ssl`` is expensive to load.
"""

from __future__ import annotations

import ssl

# The most plaintext that one TLS record holds: what one read of the TLS library can bring.
_RECORD_BYTES = 16 * 1024

# X509_V_ERR_...: the certificate is good, but for another name or address.
_OTHER_NAME = (62, 64)
# X509_V_ERR_...: nothing leads from the certificate to an authority that the context trusts.
_NOT_TRUSTED = (18, 19, 20, 21, 27)

# What the TLS library says of bytes that are not TLS; it depends on its version and on the bytes.
_NO_RECORD = "RECORD_LAYER_FAILURE"  # OpenSSL 3.6 says so of a changed record as well
NOT_TLS = {
    *("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST"),
    *("WRONG_SSL_VERSION", "PACKET_LENGTH_TOO_LONG", _NO_RECORD),
}
# Alerts for a client that shows no certificate.  The first is the standard's; before TLS 1.3 it can
# also mean that both sides have no cipher in common.  The other is sent by Java 17 up to 17.0.15,
# in every version of TLS; it can also mean that there is a certificate and it is garbage.
_WANTS_CERTIFICATE = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server wants a client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the server wants a client certificate, or a better one",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        "the server refused: handshake failure; perhaps it wants a client certificate"
    ),
}
# The others that can only be about the client's certificate.
_DISLIKES_CERTIFICATE = {
    *("certificate unknown", "certificate expired", "certificate revoked"),
    *("unsupported certificate", "unknown ca"),
}


def check_context(context: object) -> None:
    """Raise TypeError or ValueError if it is not an SSLContext that can make client connections."""
    if not isinstance(context, ssl.SSLContext):
        raise TypeError(
            f"the TLS context must be an ssl.SSLContext, not {type(context).__name__}: "
            "ssl.create_default_context() makes one"
        )
    if context.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise ValueError("the TLS context is for servers; make it with PROTOCOL_TLS_CLIENT")


class TlsFilter:
    """The client's side of one TLS connection; see the module's docstring for what to serialise.

    First call ``handshake`` until it is True; ``feed`` in between, and send ``take_output`` after
    each call.  Send it after a call that raised, too: it is the alert that tells the peer why.
    Then ``feed`` what comes, the first time with nothing (the peer may have sent more than the
    handshake), and ``encrypt`` what goes.

    ``eof``: the peer has said that it sends no more.  ``error``: what the peer sent is not TLS, or
    is the alert with which it ended the connection; TLS 1.3 servers refuse a client's certificate
    in this way, after the handshake.  Plaintext from before that has been returned.  If the stream
    just stops, neither is set.  Real servers do that, too: close_notify proves nothing that the
    protocol inside does not say better.
    """

    __slots__ = ("_incoming", "_outgoing", "_ready", "_tls", "eof", "error")

    def __init__(self, context: ssl.SSLContext, server_hostname: str | None) -> None:
        """``server_hostname``: the name that the certificate must have; None for a server."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        # A certificate has no zone of this machine, and no dot at the end of a name.
        name = server_hostname and server_hostname.partition("%")[0].rstrip(".")
        self._tls = context.wrap_bio(self._incoming, self._outgoing, name is None, name)
        self._ready = False
        self.eof: bool = False
        self.error: ssl.SSLError | None = None

    def handshake(self) -> bool:
        """Go on with the handshake; True when it is done.  Raises ssl.SSLError when it failed."""
        if self.error is not None:
            raise self.error
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            self.error = error
            raise
        self._ready = True
        return True

    def feed(self, ciphertext: bytes) -> bytes:
        """Take what came from the peer; returns the plaintext that is complete with it.

        Nothing during the handshake, after the end, or while a record is incomplete.  Never
        raises: see ``error``.
        """
        if self.eof or self.error is not None:
            return b""
        self._incoming.write(ciphertext)
        pieces: list[bytes] = []
        try:
            # As much as there is: the rest would have to wait until more bytes come.
            while self._ready and (self._incoming.pending or self._tls.pending()):
                piece = self._tls.read(_RECORD_BYTES)
                if not piece:
                    self.eof = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass  # a record is incomplete
        except ssl.SSLError as error:
            self.error = error.with_traceback(None)  # which would keep what was received
        return b"".join(pieces)  # the one itself, if there is one

    def encrypt(self, plaintext: bytes | bytearray | memoryview) -> bytes:
        """The ciphertext for ``plaintext``, with whatever else is due; the handshake is done.

        Raises ssl.SSLError when the connection is beyond use; no later call works then.
        """
        rest = memoryview(plaintext)
        while rest:
            rest = rest[self._tls.write(rest) :]
        return self.take_output()

    def take_output(self) -> bytes:
        """What is to be sent to the peer now; empty if nothing is."""
        return self._outgoing.read()


def describe(error: ssl.SSLError) -> str:
    """A short text for users; it contains nothing secret, and no place in a C file."""
    return f"TLS: {_reason(error)}"


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification(error)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "the other side ended the connection"
    if isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError):
        return "the other side wants to renegotiate"
    # Errors that Python makes itself have none, or None.
    reason: str = getattr(error, "reason", None) or ""
    if reason == _NO_RECORD:
        return "what came is no TLS record, or was changed on its way"
    if reason in NOT_TLS:
        return "the other side does not speak TLS"
    if reason in _WANTS_CERTIFICATE:
        return _WANTS_CERTIFICATE[reason]
    _, is_alert, alert = reason.partition("_ALERT_")
    text = (alert if is_alert else reason).replace("_", " ").lower()
    if text in _DISLIKES_CERTIFICATE:
        return f"the server does not accept the client certificate: {text}"
    return f"the server refused: {text}" if is_alert else text or "failed"


def _verification(error: ssl.SSLCertVerificationError) -> str:
    """What is wrong with the server's certificate."""
    # Python sets them on what the TLS library found, not on errors that it makes itself.
    code: int = getattr(error, "verify_code", 0)
    message: str = getattr(error, "verify_message", "")
    if code in _OTHER_NAME:
        # "..., certificate is not valid for 'x'.": the only place where the name is known.
        _, _, name = message.partition(" valid for ")
        return f"the certificate is not for host {name.rstrip('.')}"
    if code in _NOT_TRUSTED:
        return f"the certificate is not trusted: {message}"
    return message or "the certificate is not valid"
