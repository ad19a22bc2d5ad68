"""No test of this folder needs the network, and none gets it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import NoReturn

import pytest


@pytest.fixture(scope="package", autouse=True)
def no_network() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("bind", "connect", "connect_ex"):
            patch.setattr(socket.socket, name, refused)
        yield


def refused(*_: object) -> NoReturn:
    raise AssertionError("a test that needs a socket stands in another folder")
