"""SASL mechanisms: how the client proves its identity, and the server that it knows the secret.

A mechanism is any object with ``exchange(host)``, a generator.  Each ``yield token`` sends a token
and gets the server's answer (empty where the server sent null).  To return means that the exchange
is done, and the mechanism satisfied.  To raise :class:`~zkwire.errors.AuthFailedError` means that
the server's proof is wrong or that its challenge cannot be used.  One exchange belongs to one
connection; a mechanism serves any number of connections.

This module must not know frames, sockets, time, or what an error code in a reply means.

Invariants: a password gets into no message, repr or traceback, not even into a traceback that shows
local variables; no exchange ends satisfied without the server's proof.
"""

from __future__ import annotations

from zkwire.errors import AuthFailedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Protocol

    class Mechanism(Protocol):
        """What the client asks of a mechanism."""

        def exchange(self, host: str) -> Generator[bytes, bytes, None]:
            """One exchange with the server that the connect string calls ``host``."""
            ...


# The same for every server: ZooKeeper's own client does not know by which name a server knows
# itself, so both sides agree on this one.
DIGEST_URI = b"zookeeper/zk-sasl-md5"

_ONE_USE = b"00000001"  # each nonce answers one exchange
_MAX_BUFFER = b"65536"  # nothing is wrapped later, so it limits nothing; Java sends it too


class DigestMD5:
    """User and password, by DIGEST-MD5 (RFC 2831) as ZooKeeper speaks it.

    The password is not sent, but MD5 is weak: a listener can guess it offline.  Use TLS, too.

    Other mechanisms plug in the same way.  An example is GSSAPI (Kerberos), with the package
    ``gssapi``; this is an untested sketch, and it leaves errors of that package to you::

        class Kerberos:
            def exchange(self, host):
                service = gssapi.Name(
                    f"zookeeper@{host}", gssapi.NameType.hostbased_service
                )
                context = gssapi.SecurityContext(name=service, usage="initiate")
                answer = None
                while not context.complete:
                    answer = yield context.step(answer) or b""
                context.unwrap(answer)  # which layers the server offers (RFC 4752, 3.1)
                no_layer = b"\\x01\\x00\\x00\\x00"
                yield context.wrap(no_layer, False).message

    The server speaks after each token, the last one included, so the generator ends after it.
    """

    __slots__ = ("_cnonce", "_password", "_user")

    def __init__(self, user: str, password: str) -> None:
        self._password = _Hidden(password)
        del password  # a traceback may show what is local here
        self._user = user
        self._cnonce: bytes | None = None  # for tests
        _check_text("the user name", _Hidden(user))
        _check_text("the password", self._password)
        if not user:
            raise ValueError("the user name is empty")

    def __repr__(self) -> str:
        return f"DigestMD5({self._user!r}, <hidden>)"

    def exchange(self, host: str) -> Generator[bytes, bytes, None]:
        """Answer the server's challenge, then have it prove that it knows the password too.

        ``host`` plays no part: ZooKeeper's DIGEST-MD5 names the same pseudo host everywhere.
        """
        _check_md5()
        challenge = _Challenge((yield b""))
        cnonce = self._cnonce or _fresh_nonce()
        texts = (_Hidden(self._user), _Hidden(challenge.realm or ""), self._password)
        key = _key(_join(texts, challenge.utf8), challenge.nonce, cnonce)
        proof = yield self._response(challenge, cnonce, key)
        _verify(proof, _proof(key, challenge.nonce, cnonce, b":" + DIGEST_URI))

    def _response(self, challenge: _Challenge, cnonce: bytes, key: bytes) -> bytes:
        """The second token."""
        proof = _proof(key, challenge.nonce, cnonce, b"AUTHENTICATE:" + DIGEST_URI)
        encoding = "utf-8" if challenge.utf8 else "latin-1"
        directives = [b"charset=utf-8"] if challenge.utf8 else []
        directives.append(b"username=" + _quoted(self._user.encode(encoding)))
        if challenge.realm is not None:
            directives.append(b"realm=" + _quoted(challenge.realm.encode(encoding)))
        directives += [
            b"nonce=" + _quoted(challenge.nonce),
            b"nc=" + _ONE_USE,
            b"cnonce=" + _quoted(cnonce),
            b"digest-uri=" + _quoted(DIGEST_URI),
            b"maxbuf=" + _MAX_BUFFER,
            b"response=" + proof,
            b"qop=auth",
        ]
        return b",".join(directives)


class _Hidden:
    """A text that no repr shows."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "<hidden>"


def _check_text(what: str, text: _Hidden) -> None:
    """Refuse what is no text or has no encoding; tells nothing of the text itself."""
    if not isinstance(text.value, str):
        raise TypeError(f"{what} must be a str, not {type(text.value).__name__}")
    # Encoding it to find out would leave it in the error.
    if any("\ud800" <= character <= "\udfff" for character in text.value):
        raise ValueError(f"{what} contains a surrogate, which is no character")


# --- what the server says -------------------------------------------------------------------------


class _Challenge:
    """The server's first answer, checked (RFC 2831, 2.1.1).

    What must be there once, by the RFC, is there once; what a client may ignore is ignored.
    """

    __slots__ = ("nonce", "realm", "utf8")

    def __init__(self, token: bytes) -> None:
        if not token:
            raise AuthFailedError(
                "the server sent no SASL challenge; perhaps SASL is not enabled there"
            )
        found = _directives(token)
        self.nonce = _once(found, "nonce")
        if _once(found, "algorithm").lower() != b"md5-sess":
            raise AuthFailedError("the server's SASL challenge is not for DIGEST-MD5")
        qop = _at_most_once(found, "qop")
        if qop is not None and b"auth" not in qop.lower().replace(b" ", b"").split(b","):
            raise AuthFailedError("the server's SASL challenge does not offer qop=auth")
        charset = _at_most_once(found, "charset")
        if charset is not None and charset.lower() != b"utf-8":
            raise AuthFailedError("the server's SASL challenge has a charset other than utf-8")
        self.utf8 = charset is not None
        realms = found.get("realm")  # a server with several lets the client choose
        try:
            self.realm = realms[0].decode("utf-8" if self.utf8 else "latin-1") if realms else None
        except UnicodeDecodeError:
            raise AuthFailedError("the realm in the server's SASL challenge is garbage") from None


def _directives(token: bytes) -> dict[str, list[bytes]]:
    """The values of each directive, unquoted, in their order."""
    import re

    found: dict[str, list[bytes]] = {}
    directive = re.compile(
        rb'[\s,]*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"\\=]+))\s*(?:,[\s,]*|\Z)', re.DOTALL
    )
    at = 0
    while at < len(token):
        match = directive.match(token, at)
        if match is None:
            raise AuthFailedError("the server's SASL answer is garbage")
        name, quoted, plain = match.groups()
        value = plain if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted, flags=re.DOTALL)
        found.setdefault(name.decode("ascii").lower(), []).append(value)
        at = match.end()
    return found


def _at_most_once(found: dict[str, list[bytes]], name: str) -> bytes | None:
    values = found.get(name, [])
    if len(values) > 1:
        raise AuthFailedError(f"the server's SASL answer has more than one {name}")
    return values[0] if values else None


def _once(found: dict[str, list[bytes]], name: str) -> bytes:
    value = _at_most_once(found, name)
    if not value:
        raise AuthFailedError(f"the server's SASL challenge lacks {name}")
    return value


def _verify(token: bytes, expected: bytes) -> None:
    """Raise unless the server's last answer proves that it knows the password."""
    import hmac

    if not token:
        # The answer of a server that goes on serving a client whose login has failed
        # (allowSaslFailedClients).
        raise AuthFailedError(
            "the server gave no proof of a login; perhaps it refused the user name or the password"
        )
    given = _at_most_once(_directives(token), "rspauth")
    if given is None:
        raise AuthFailedError("the server gave no proof that it knows the password")
    if not hmac.compare_digest(given, expected):
        raise AuthFailedError("the server's proof that it knows the password is wrong")


# --- the formulas (RFC 2831, 2.1.2.1) -------------------------------------------------------------


def _md5(data: bytes) -> bytes:
    import hashlib

    return hashlib.md5(data).digest()


def _check_md5() -> None:
    """Raise early where MD5 is forbidden: later the traceback would lead through the secrets."""
    try:
        _md5(b"")
    except ValueError as error:
        raise AuthFailedError(
            "this system does not allow MD5 (FIPS mode), which DIGEST-MD5 needs"
        ) from error


def _key(user_realm_password: bytes, nonce: bytes, cnonce: bytes) -> bytes:
    """H(A1), in hexadecimal: it can be made only with the password, and is for one exchange."""
    inner = _md5(user_realm_password)
    return _md5(b":".join((inner, nonce, cnonce))).hex().encode()


def _proof(key: bytes, nonce: bytes, cnonce: bytes, who_and_where: bytes) -> bytes:
    """The response-value or the response-auth: they differ in ``who_and_where`` (A2) only."""
    a2 = _md5(who_and_where).hex().encode()
    return _md5(b":".join((key, nonce, _ONE_USE, cnonce, b"auth", a2))).hex().encode()


def _join(texts: tuple[_Hidden, ...], utf8: bool) -> bytes:
    """The texts as they are hashed: each in Latin-1 if that has all its characters, else in UTF-8.

    The RFC has this rule even if the charset is UTF-8, and Java's servers follow it.
    """
    parts: list[bytes] = []
    for text in texts:
        # Trying to encode would leave the text in the error.
        latin = max(text.value, default="") <= "\xff"
        if not (latin or utf8):
            raise AuthFailedError(
                "the user name or the password needs UTF-8, which the server does not offer"
            )
        parts.append(text.value.encode("latin-1" if latin else "utf-8"))
    return b":".join(parts)


def _quoted(value: bytes) -> bytes:
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _fresh_nonce() -> bytes:
    import secrets

    return secrets.token_hex(16).encode()
