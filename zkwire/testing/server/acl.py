"""The identities of a connection, and what an access list lets it do.

Decides what ``PrepRequestProcessor.fixupACL`` and ``ZooKeeperServer.checkACL`` of 3.8 decide, for
the schemes world, auth, digest and ip, and for sasl and x509 if they are switched on.  Other
schemes are unknown, as to a real server without a provider for them.  It must not know nodes or
operations.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection

from zkwire.errors import InvalidACLError, NoAuthError
from zkwire.jute.records import ACL, ClientInfo, Id
from zkwire.testing.server import addresses

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


class Credentials:
    """The ids of one connection: its address from the start, then one for each authentication.

    ``super_password`` is the password of the user "super", which may do everything.  ``schemes``
    says which of "sasl" and "x509" the server knows; ``ipv6`` says whether it understands IPv6
    addresses in an ``ip`` entry.  ``hashed``: the ids are in the order of Java's set of them, and
    "auth" is replaced where it stands; a server of 3.4 has them in the order of their arrival, and
    puts them behind all else.
    """

    __slots__ = ("_hashed", "_ipv6", "_schemes", "_super", "address", "ids")

    def __init__(
        self,
        address: str = "127.0.0.1",
        *,
        schemes: Collection[str] = (),
        ipv6: bool = False,
        hashed: bool = True,
        super_password: str | None = None,
    ) -> None:
        self.address: str = address
        self.ids: list[Id] = [Id("ip", addresses.as_java(address))]
        self._schemes = schemes
        self._ipv6 = ipv6
        self._hashed = hashed
        self._super = None if super_password is None else f"super:{super_password}".encode()

    def authenticate(self, scheme: str, secret: bytes | None) -> bool:
        """Add an id; False if the server does not know the scheme or the secret is null."""
        if scheme == "digest" and secret is not None:
            if secret == self._super:
                self._add(_SUPER)
            self._add(Id("digest", digest_id(secret)))
            return True
        # Both would add an id that the connection has already; it always has an address.
        return scheme == "ip" or (scheme == "x509" and self.has_scheme({scheme}))

    def add_sasl_user(self, user: str) -> None:
        """Add the id of a user that SASL has proved."""
        self._add(Id("sasl", user))

    def add_certificate(self, subject: str | None) -> None:
        """Add the subject of the peer's certificate; None if it has shown none."""
        if subject is not None:
            self._add(Id("x509", subject))

    def has_scheme(self, schemes: Collection[str]) -> bool:
        """Whether one of the ids is of one of these schemes."""
        return any(own.scheme in schemes for own in self.ids)

    def _add(self, new: Id) -> None:
        if new not in self.ids:
            self.ids.append(new)
            if self._hashed:
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
                wanted == _ANYONE or any(_matches(own, wanted, ipv6=self._ipv6) for own in self.ids)
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
        for entry in dict.fromkeys(acl):
            if entry.id.scheme == "auth":
                own = [ACL(entry.perms, i) for i in self.ids if i.scheme not in _UNPROVEN]
                if not own:
                    raise InvalidACLError
                (expanded if self._hashed else last).extend(own)
            elif _is_valid(entry.id, self._schemes, ipv6=self._ipv6):
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


def _is_valid(wanted: Id, schemes: Collection[str], *, ipv6: bool) -> bool:
    match wanted.scheme:
        case "world":
            return wanted == _ANYONE
        case "digest":
            # Two parts; Java's split drops empty parts at the end.
            return wanted.id.rstrip(":").count(":") == 1
        case "ip":
            return addresses.network(wanted.id, ipv6=ipv6) is not None
        case "sasl":
            return "sasl" in schemes and _PRINCIPAL.fullmatch(wanted.id) is not None
        case "x509":
            return "x509" in schemes and _SUBJECT.fullmatch(wanted.id) is not None
        case _:
            return False


def _matches(own: Id, wanted: Id, *, ipv6: bool) -> bool:
    if own.scheme != wanted.scheme:
        return False
    if own.scheme != "ip":
        return own in (wanted, _SASL_SUPER)
    return addresses.contains(wanted.id, own.id, ipv6=ipv6)
