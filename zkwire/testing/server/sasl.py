"""The server's side of SASL DIGEST-MD5 (RFC 2831), as the JDK and ZooKeeper together speak it.

Decides which answers prove that a client knows a password.  It must not know frames or connections.
It shares no code with the client's side, so that a misreading of the RFC shows as a difference.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

REALM: Final = "zk-sasl-md5"
_URI: Final = "zookeeper/zk-sasl-md5"  # SaslServer gets the same name on every server
_FIRST_USE: Final = "00000001"
_REQUIRED: Final = ("username", "realm", "nonce", "cnonce", "nc", "digest-uri", "response")

# A directive: its value is in quotes, where a backslash escapes the next character, or a token.
_DIRECTIVE: Final = re.compile(r'\s*([^=,\s]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*')


class SaslError(Exception):
    """The exchange has failed; the message helps to debug a test."""


class DigestServer:
    """One exchange: challenge, answer, proof.  Each exchange needs a new ``nonce``."""

    def __init__(self, users: Mapping[str, str], nonce: str) -> None:
        self._users = users
        self._nonce = nonce
        self._challenged = False
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        """The answer to a client's token; ``user`` is set once the client has proved its name."""
        if self.user is not None:
            raise SaslError("the exchange is over")
        if not self._challenged:
            self._challenged = True  # the JDK ignores the first token, too
            return (
                f'realm="{REALM}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'.encode()
            )
        answer = directives(token)
        self._check(answer)
        password = self._users.get(answer["username"])
        if password is None:
            raise SaslError(f"unknown user {answer['username']!r}")
        expected = response_value(answer, password, "AUTHENTICATE")
        if not hmac.compare_digest(expected.encode(), answer["response"].encode()):
            raise SaslError("wrong password")
        self.user = answer["username"]
        return b"rspauth=" + response_value(answer, password, "").encode()

    def _check(self, answer: dict[str, str]) -> None:
        missing = [name for name in _REQUIRED if name not in answer]
        if missing:
            raise SaslError(f"the answer has no {', '.join(missing)}")
        fixed = {"nonce": self._nonce, "nc": _FIRST_USE, "digest-uri": _URI, "realm": REALM}
        for name, value in fixed.items():
            if answer[name] != value:
                raise SaslError(f"{name} is {answer[name]!r} and must be {value!r}")
        if answer.setdefault("qop", "auth") != "auth":
            raise SaslError(f"qop is {answer['qop']!r}, which was not offered")


def directives(token: bytes) -> dict[str, str]:
    """The directives of a token; SaslError if the token is not a list of directives."""
    text, found, at = token.decode("utf-8", "replace"), dict[str, str](), 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None or match[1] in found:
            raise SaslError(f"cannot be read: {text[at:]!r}")
        quoted = match[2]
        found[match[1]] = match[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = match.end()
        if text[at : at + 1] not in {"", ","}:
            raise SaslError(f"cannot be read: {text[at:]!r}")
        at += 1
    return found


def response_value(answer: Mapping[str, str], password: str, method: str) -> str:
    """RFC 2831, 2.1.2.1, for qop=auth and md5-sess; for the server's proof the method is ""."""
    parts = (answer["username"], answer["realm"], password)
    secret = _md5(b":".join(map(_bytes, parts)))
    first = secret + f":{answer['nonce']}:{answer['cnonce']}".encode()
    if "authzid" in answer:
        first += f":{answer['authzid']}".encode()
    second = f"{method}:{answer['digest-uri']}".encode()
    middle = f"{answer['nonce']}:{answer['nc']}:{answer['cnonce']}:{answer['qop']}"
    return _md5(f"{_md5(first).hex()}:{middle}:{_md5(second).hex()}".encode()).hex()


def _bytes(text: str) -> bytes:
    """Latin-1 where that is possible: the RFC requires it for names and passwords."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
