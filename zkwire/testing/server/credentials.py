"""The identities of a connection, how it proves them, and what an access list lets it do.

Decides what ``PrepRequestProcessor.fixupACL`` and ``ZooKeeperServer.checkACL`` of 3.8 decide, for
the schemes world, auth, digest and ip, and for sasl and x509 if they are switched on.  Other
schemes are unknown, as to a real server without a provider for them.  It must not know nodes,
operations, frames or connections.

Networks in ``ip`` entries are read as ``IPAuthenticationProvider`` reads them: only 3.9 understands
IPv6 (``ipv6``).  No version understands a zone ("%eth0") or the mixed notation
("::ffff:1.2.3.4"), so no entry matches a client whose address has a zone.

SASL is the server's side of DIGEST-MD5 (RFC 2831), as the JDK and ZooKeeper together speak it.  It
shares no code with the client's side, so that a misreading of the RFC shows as a difference.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from zkwire.errors import InvalidACLError, NoAuthError
from zkwire.jute.records import ACL, ClientInfo, Id
from zkwire.testing.server.rules import Rules

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_INTEGER: Final = re.compile(r"[+-]?\d{1,99}")  # int() refuses thousands of digits
_GROUP: Final = re.compile(r"[+-]?[\da-fA-F]+")
_GROUPS, _LONGEST_GROUP = 8, 4


def network(expression: str, *, ipv6: bool) -> _Network | None:
    """The network of address[/bits]; None if the server does not understand it."""
    address, slash, bits = expression.partition("/")
    packed = _packed_6(address) if ipv6 and ":" in address else _packed_4(address)
    if packed is None:
        return None
    longest = 8 * len(packed)
    length = _number(bits, longest) if slash else longest
    return None if length < 0 else ipaddress.ip_network((packed, length), strict=False)


def as_java(address: str) -> str:
    """An address as Java writes it: IPv6 in full."""
    bare, percent, scope = address.partition("%")
    try:
        groups = ipaddress.IPv6Address(bare).exploded.split(":")
    except ValueError:
        return address
    return ":".join(f"{int(group, 16):x}" for group in groups) + percent + scope


def _packed_4(address: str) -> bytes | None:
    parts = [_number(part, 0xFF) for part in address.split(".")]
    return None if len(parts) != 4 or -1 in parts else bytes(parts)


def _packed_6(address: str) -> bytes | None:
    """At most one "::", for at least one group; a group may have a sign, as any number in Java."""
    parts = [part.split(":") if part else [] for part in address.split("::")]
    groups = [group for part in parts for group in part]
    missing = _GROUPS - len(groups)
    if len(parts) > 2 or (missing != 0 if len(parts) == 1 else missing < 1):
        return None
    if not all(len(group) <= _LONGEST_GROUP and _GROUP.fullmatch(group) for group in groups):
        return None
    filled = [*parts[0], *["0"] * missing, *(parts[1] if len(parts) == 2 else ())]
    return b"".join((int(group, 16) & 0xFFFF).to_bytes(2, "big") for group in filled)


def _number(text: str, most: int) -> int:
    """The number that Integer.parseInt returns, if it is from 0 to ``most``; otherwise -1."""
    number = int(text) if _INTEGER.fullmatch(text) else -1
    return number if 0 <= number <= most else -1


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


_ANYONE = Id("world", "anyone")
_SUPER = Id("super", "")
_UNPROVEN = ("ip", "super")  # left out where "auth" is expanded (isAuthenticated; no provider)
_SASL_SUPER = Id("sasl", "super")  # this id has the permissions of every SASL user
_SUBJECT = re.compile(r"(\s*[A-Za-z0-9.]+\s*=([^,+;\"\\]|\\.)*([,+;](?!$)|$))*")
_PRINCIPAL = re.compile(r"[^@]*|[^/@]*(/[^/@]*)?@[^/@]*")


def digest_id(secret: bytes) -> str:
    """The id for the secret ``user:password``; any bytes are accepted.

    DigestAuthenticationProvider.generateDigest: the text before the first colon, then the hash of
    the whole text.
    """
    text = secret.decode("utf-8", "replace")
    user = text.split(":", 1)[0]
    digest = base64.b64encode(hashlib.sha1(text.encode()).digest()).decode()
    return f"{user}:{digest}"


@dataclass(slots=True, eq=False)
class Credentials:
    """The ids of one connection: its address from the start, then one for each authentication.

    The ids are in the order of Java's set of them, and "auth" is replaced where it stands; a server
    of 3.4 has them in the order of their arrival, and puts them after all else.
    """

    address: str = "127.0.0.1"
    rules: Rules = field(default_factory=Rules)
    ids: list[Id] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = [Id("ip", as_java(self.address))]

    def authenticate(self, scheme: str, secret: bytes | None) -> bool:
        """Add an id; False if the server does not know the scheme or the secret is null."""
        if scheme == "digest" and secret is not None:
            password = self.rules.super_password
            if password is not None and secret == f"super:{password}".encode():
                self.add("super", "")
            self.add("digest", digest_id(secret))
            return True
        # Both would add an id that the connection has already; it always has an address.
        return scheme == "ip" or (scheme == "x509" and self.has_scheme({scheme}))

    def has_scheme(self, schemes: Collection[str]) -> bool:
        """Whether one of the ids is of one of these schemes."""
        return any(own.scheme in schemes for own in self.ids)

    def add(self, scheme: str, name: str) -> None:
        """Add an id that was proved: "sasl" and a user, "x509" and the subject of a certificate."""
        new = Id(scheme, name)
        if new not in self.ids:
            self.ids.append(new)
            if self.rules.version != "3.4":
                buckets = 16
                while len(self.ids) >= buckets * 3 // 4:
                    buckets *= 2
                self.ids.sort(key=lambda one: _hash(one) & (buckets - 1))

    def client_infos(self) -> tuple[ClientInfo, ...]:
        """The answer to who_am_i: schemes and user names, without digests."""
        return tuple(
            ClientInfo(own.scheme, own.id.split(":", 1)[0] if own.scheme == "digest" else own.id)
            for own in self.ids
        )

    def allows(self, acl: tuple[ACL, ...], perms: int) -> bool:
        """Whether one entry of ``acl`` gives one of ``perms`` to one of the ids."""
        for entry in acl:
            wanted = entry.id
            if entry.perms & perms and (
                wanted == _ANYONE or any(_matches(own, wanted, self.rules) for own in self.ids)
            ):
                return True
        return not acl or _SUPER in self.ids

    def require(self, acl: tuple[ACL, ...], perms: int) -> None:
        """Raise NoAuthError unless ``acl`` allows one of ``perms``."""
        if not self.allows(acl, perms):
            raise NoAuthError

    def expand(self, acl: tuple[ACL, ...] | None) -> tuple[ACL, ...]:
        """The ACL as it is stored: no entry twice, "auth" replaced by the connection's ids."""
        if not acl:
            raise InvalidACLError
        expanded: list[ACL] = []
        last: list[ACL] = []
        of_auth = last if self.rules.version == "3.4" else expanded
        for entry in dict.fromkeys(acl):
            if entry.id.scheme == "auth":
                own = [ACL(entry.perms, i) for i in self.ids if i.scheme not in _UNPROVEN]
                if not own:
                    raise InvalidACLError
                of_auth += own
            elif _is_valid(entry.id, self.rules):
                expanded.append(entry)
            else:
                raise InvalidACLError
        return (*expanded, *last)


def _hash(one: Id) -> int:
    """What a ConcurrentHashMap finds the bucket of an id by."""
    value = 17
    for text in (one.scheme, one.id):
        code, units = 0, text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            code = 31 * code + int.from_bytes(units[at : at + 2], "big")
        value = 37 * value + code
    value &= 0xFFFFFFFF
    return value ^ value >> 16


def without_digests(acl: tuple[ACL, ...]) -> tuple[ACL, ...]:
    """The ACL as get_acl shows it without the permission to change it: hashes are left out."""
    return tuple(
        ACL(entry.perms, Id("digest", entry.id.id.split(":", 1)[0] + ":x"))
        if entry.id.scheme == "digest" and ":" in entry.id.id
        else entry
        for entry in acl
    )


def _is_valid(wanted: Id, rules: Rules) -> bool:
    match wanted.scheme:
        case "world":
            return wanted == _ANYONE
        case "digest":
            # Two parts; Java's split drops empty parts at the end.
            return wanted.id.rstrip(":").count(":") == 1
        case "ip":
            return network(wanted.id, ipv6=not rules.before_39) is not None
        case "sasl":
            return "sasl" in rules.schemes and _PRINCIPAL.fullmatch(wanted.id) is not None
        case "x509":
            return "x509" in rules.schemes and _SUBJECT.fullmatch(wanted.id) is not None
        case _:
            return False


def _matches(own: Id, wanted: Id, rules: Rules) -> bool:
    if own.scheme != wanted.scheme:
        return False
    if own.scheme != "ip":
        return own in (wanted, _SASL_SUPER)
    entry, client = (network(one.id, ipv6=not rules.before_39) for one in (wanted, own))
    return entry is not None and client is not None and client.network_address in entry
