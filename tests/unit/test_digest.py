"""The digest scheme: what a connection shows, and what an access list names."""

from __future__ import annotations

from typing import Any

import pytest

from zkwire.jute.records import Id
from zkwire.wire.model import digest_auth, digest_id


def test_the_known_vector() -> None:
    """The one of ZooKeeper's own documentation and tests."""
    assert digest_id("super", "admin") == Id("digest", "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=")


def test_what_a_connection_shows() -> None:
    assert digest_auth("user", "pass:word") == ("digest", b"user:pass:word")
    assert digest_auth("\u00fc", "\u20ac") == ("digest", "\u00fc:\u20ac".encode())


def test_the_password_is_not_in_what_an_access_list_names() -> None:
    assert "admin" not in digest_id("super", "admin").id
    assert digest_id("super", "admin") != digest_id("super", "other")
    assert digest_id("super", "") != digest_id("super", "admin")


@pytest.mark.parametrize("function", [digest_auth, digest_id])
@pytest.mark.parametrize("user", ["", "a:b", ":"])
def test_a_user_that_would_be_another(function: Any, user: str) -> None:
    """The first colon ends the user's name."""
    with pytest.raises(ValueError, match="user"):
        function(user, "password")


@pytest.mark.parametrize("function", [digest_auth, digest_id])
@pytest.mark.parametrize(("user", "password"), [(b"u", "p"), ("u", b"p"), (None, "p"), ("u", 1)])
def test_only_text(function: Any, user: Any, password: Any) -> None:
    with pytest.raises(TypeError, match="must be a str"):
        function(user, password)
