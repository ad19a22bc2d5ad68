"""Who a connection is to the server, and what an access list lets it do.

Decides what ``PrepRequestProcessor.fixupACL`` and ``ZooKeeperServer.checkACL`` of 3.8 decide, for
the schemes world, auth, digest, ip, and sasl where it is switched on.  Other schemes are unknown
here, as they are to a server without a provider for them.  It must not know nodes or operations.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Collection

from zkwire.errors import InvalidACLError, NoAuthError
from zkwire.jute.records import ACL, ClientInfo, Id

_ANYONE = Id("world", "anyone")
_SUPER = Id("super", "")
_UNPROVEN = ("ip", "super")  # what "auth" does not stand for (isAuthenticated; no provider)
_IP_BITS = 32


def digest_id(secret: bytes) -> str:
    """The id of somebody who authenticates with ``user:password``; anything is accepted.

    DigestAuthenticationProvider.generateDigest: what stands before the first colon, then the hash
    of all of it.
    """
    text = secret.decode("utf-8", "replace")
    user = text.split(":", 1)[0]
    digest = base64.b64encode(hashlib.sha1(text.encode()).digest()).decode()
    return f"{user}:{digest}"


class Credentials:
    """The ids of one connection: its address from the start, and each one it authenticates as.

    ``super_password`` is that of the user "super", who may do everything; ``sasl`` says whether
    the server knows that scheme.
    """

    __slots__ = ("_sasl", "_super", "address", "ids")

    def __init__(
        self,
        address: str = "127.0.0.1",
        *,
        sasl: bool = False,
        super_password: str | None = None,
    ) -> None:
        self.address = address
        self.ids: list[Id] = [Id("ip", address)]
        self._sasl = sasl
        self._super = None if super_password is None else f"super:{super_password}".encode()

    def authenticate(self, scheme: str, secret: bytes | None) -> bool:
        """Add an id; False if the server does not know the scheme or the secret is null."""
        if scheme == "digest" and secret is not None:
            if secret == self._super:
                self._add(_SUPER)
            self._add(Id("digest", digest_id(secret)))
            return True
        # IPAuthenticationProvider accepts anybody, as what the connection is anyway.
        return scheme == "ip"

    def authenticated(self, user: str) -> None:
        """SASL has proved that this is ``user``."""
        self._add(Id("sasl", user))

    def has_scheme(self, schemes: Collection[str]) -> bool:
        """Whether one of the ids is of one of these schemes."""
        return any(own.scheme in schemes for own in self.ids)

    def _add(self, new: Id) -> None:
        if new not in self.ids:
            self.ids.append(new)

    def client_infos(self) -> tuple[ClientInfo, ...]:
        """What who_am_i answers: schemes and user names, no digests."""
        return tuple(ClientInfo(own.scheme, own.id.split(":", 1)[0]) for own in self.ids)

    def allows(self, acl: tuple[ACL, ...], perms: int) -> bool:
        """Whether one entry of ``acl`` gives one of ``perms`` to one of the ids."""
        for entry in acl:
            wanted = entry.id
            if entry.perms & perms and (
                wanted == _ANYONE or any(_matches(own, wanted) for own in self.ids)
            ):
                return True
        return not acl or _SUPER in self.ids

    def require(self, acl: tuple[ACL, ...], perms: int) -> None:
        """Raise NoAuthError unless ``acl`` allows one of ``perms``."""
        if not self.allows(acl, perms):
            raise NoAuthError

    def expand(self, acl: tuple[ACL, ...] | None) -> tuple[ACL, ...]:
        """The ACL as it is stored: no entry twice, "auth" replaced by whoever this is."""
        if not acl:
            raise InvalidACLError
        expanded: list[ACL] = []
        for entry in dict.fromkeys(acl):
            if entry.id.scheme == "auth":
                own = [ACL(entry.perms, i) for i in self.ids if i.scheme not in _UNPROVEN]
                if not own:
                    raise InvalidACLError
                expanded += own
            elif _is_valid(entry.id, sasl=self._sasl):
                expanded.append(entry)
            else:
                raise InvalidACLError
        return tuple(expanded)


def without_digests(acl: tuple[ACL, ...]) -> tuple[ACL, ...]:
    """The ACL as get_acl shows it to those who may not change it: hashes are left out."""
    return tuple(
        ACL(entry.perms, Id("digest", entry.id.id.split(":", 1)[0] + ":x"))
        if entry.id.scheme == "digest" and ":" in entry.id.id
        else entry
        for entry in acl
    )


def _is_valid(wanted: Id, *, sasl: bool) -> bool:
    match wanted.scheme:
        case "world":
            return wanted == _ANYONE
        case "digest":
            # Two parts; Java's split drops empty ones at the end.
            return wanted.id.rstrip(":").count(":") == 1
        case "ip":
            return _network(wanted.id) is not None
        case "sasl":
            return sasl and wanted.id != ""
        case _:
            return False


def _matches(own: Id, wanted: Id) -> bool:
    if own.scheme != wanted.scheme or own.scheme != "ip":
        return own == wanted
    network = _network(wanted.id)
    try:
        return network is not None and ipaddress.IPv4Address(own.id) in network
    except ValueError:
        return False


def _network(expression: str) -> ipaddress.IPv4Network | None:
    """An address or address/bits; version 6 is unknown to 3.8's provider, too."""
    address, _, bits = expression.partition("/")
    try:
        length = int(bits) if bits else _IP_BITS
        return ipaddress.IPv4Network((address, length), strict=False)
    except ValueError:
        return None
