"""Words of the data commands: access lists and paths."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from zkwire import ACL, Id
from zkwire.cli.access import entry_text
from zkwire.cli.nodes.words import access_list


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
