"""Words of the data commands: access lists and paths."""

from __future__ import annotations

from argparse import ArgumentTypeError
from threading import TIMEOUT_MAX

import pytest

from zkwire import ACL, Id
from zkwire.cli.command import duration
from zkwire.cli.nodes.writing import access_list
from zkwire.cli.output import entry_text


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5), ("1.5s", 1.5), ("500ms", 0.5), ("2m", 120), ("1h", 3600)]
)
def test_a_duration(text: str, seconds: float) -> None:
    assert duration(text) == seconds


def test_no_duration_is_longer_than_a_machine_can_wait() -> None:
    assert duration("800000h") <= TIMEOUT_MAX
    with pytest.raises(ArgumentTypeError, match="no duration"):
        duration("1e10")


def test_an_access_list_is_read_as_it_is_written() -> None:
    text = "x509:CN=a,OU=b:r,digest:alice:zzz=:cdrwa,auth::cdrwa,ip:fe80::1:d"
    acl = access_list(text)
    assert acl == [
        ACL(1, Id("x509", "CN=a,OU=b")),
        ACL(31, Id("digest", "alice:zzz=")),
        ACL(31, Id("auth", "")),
        ACL(8, Id("ip", "fe80::1")),
    ]
    assert ",".join(map(entry_text, acl)) == text


@pytest.mark.parametrize("text", ["", "world", "world:anyone", "world:anyone:", ":x:r", "a:b:cdx"])
def test_what_is_no_access_list(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="no entry of an access list"):
        access_list(text)
