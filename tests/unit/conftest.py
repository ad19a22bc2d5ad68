"""No test of this folder needs the network, and none gets it; what many of them begin with."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import NoReturn

import pytest

from tests.support.scripted import Script, script_in
from zkwire.session.waitable import Watch
from zkwire.wire.model import State


@pytest.fixture(scope="package", autouse=True)
def no_network() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("bind", "connect", "connect_ex"):
            patch.setattr(socket.socket, name, refused)
        yield


def refused(*_: object) -> NoReturn:
    raise AssertionError("a test that needs a socket stands in another folder")


@pytest.fixture
def script() -> Script:
    """A session that is connected, driven by hand."""
    return script_in(State.CONNECTED)


@pytest.fixture
def watch() -> Watch:
    return Watch()
