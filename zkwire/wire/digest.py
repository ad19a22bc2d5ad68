"""The digest scheme: one user, two forms that must not be confused.

A connection authenticates with user and password in clear (:func:`digest_auth`); an access list
names the same user by a hash (:func:`digest_id`, ``DigestAuthenticationProvider.generateDigest``).
"""

from __future__ import annotations

from zkwire.jute.records import Id

SCHEME = "digest"


def digest_auth(user: str, password: str) -> tuple[str, bytes]:
    """What ``add_auth(*...)`` and ``Client(auth=[...])`` take to authenticate as this user.

    The password travels in clear: use TLS.
    """
    return SCHEME, _joined(user, password)


def digest_id(user: str, password: str) -> Id:
    """Whom an ACL entry is for: ``ACL(Perms.ALL, digest_id("alice", "secret"))``."""
    from base64 import b64encode
    from hashlib import sha1

    digest = b64encode(sha1(_joined(user, password), usedforsecurity=False).digest())
    return Id(SCHEME, f"{user}:{digest.decode()}")


def _joined(user: str, password: str) -> bytes:
    for name, text in (("user", user), ("password", password)):
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a str, not {type(text).__name__}")
    if not user or ":" in user:
        raise ValueError("user must not be empty and must not contain ':'")
    return f"{user}:{password}".encode()
