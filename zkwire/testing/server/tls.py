"""The server's side of TLS connections: a filter of bytes, and the name that a certificate gives.

Decides what a peer learns about a failure, and how a subject is written.  It must not know sockets
or frames.  Import it late: ``ssl`` is expensive to load.

The context decides whether clients show certificates, as ``ssl.clientAuth`` does on a real server:
``ssl.CERT_NONE`` is its "none", ``CERT_OPTIONAL`` its "want", ``CERT_REQUIRED`` its "need".
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Final

from zkwire.net.tls import NOT_TLS, TlsFilter

# The attributes that X500Principal.getName() writes by name.  It writes the others by number and in
# hexadecimal; of these, only the e-mail address is known here.
_KEYWORDS: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def check_context(context: object) -> None:
    """Raise TypeError or ValueError unless this is an SSLContext that can accept connections."""
    if not isinstance(context, ssl.SSLContext):
        raise TypeError(f"tls must be an ssl.SSLContext, not {type(context).__name__}")
    if context.protocol == ssl.PROTOCOL_TLS_CLIENT:
        raise ValueError("this TLS context is for clients; make one with ssl.PROTOCOL_TLS_SERVER")


def make_context(
    certificate: str, key: str | None, authority: str | None, *, optional: bool
) -> ssl.SSLContext:
    """A server's context from PEM files; raises OSError (ssl.SSLError is one).

    ``key`` is the file of the private key, if it is not in the certificate's file.  ``authority``
    has the CA certificates that sign clients' certificates; clients must show one, or may, if it is
    ``optional``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if authority is not None:
        context.load_verify_locations(authority)
        context.verify_mode = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED
    return context


class ServerTls(TlsFilter):
    """See the module's docstring.  :meth:`receive` also does the handshake.

    After each call the caller sends what :meth:`encrypt` returns, also for no data.
    ``subject`` is the subject of the peer's certificate in the form of RFC 2253; None without one.
    """

    __slots__ = ("subject",)

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context, None)
        self.subject: str | None = None

    def receive(self, ciphertext: bytes) -> bytes:
        """The plaintext that is now complete; the stream's end sets ``eof`` or ``error``."""
        plaintext = self.feed(ciphertext)
        if not self._ready and self.error is None:
            with suppress(ssl.SSLError):  # ``error`` has it
                if self.handshake():
                    self.subject = self._subject()  # after an error ssl does not return it
                    plaintext = self.feed(b"")
        return plaintext

    def take_output(self) -> bytes:
        """The bytes to send; none, as in Java, if the peer does not speak TLS."""
        output = super().take_output()
        return b"" if self.error is not None and self.error.reason in NOT_TLS else output

    def close_notify(self) -> bytes:
        """The bytes that announce the end of the stream to the peer."""
        with suppress(ssl.SSLError):  # the peer has not announced its end
            self._tls.unwrap()
        return self.take_output()

    def _subject(self) -> str | None:
        certificate = self._tls.getpeercert()
        if not certificate:
            return None
        names = certificate.get("subject", ())
        return ",".join("+".join(_attribute(*pair) for pair in part) for part in reversed(names))


def _attribute(name: str, value: str) -> str:
    if name == "emailAddress":
        return f"1.2.840.113549.1.9.1=#16{len(value):02x}{value.encode().hex()}"
    text = "".join("\\" + c if c in _ESCAPED else c for c in value)
    if text.startswith(" "):
        text = "\\" + text
    if text.endswith(" ") and len(value) > 1:
        text = text[:-1] + "\\ "
    return f"{_KEYWORDS.get(name, name)}={text}"
