"""What the tests of the clients share: servers, and a client on one of them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest

from tests.support.certificates import Authority, Certificate
from tests.support.fake_server import FakeServer
from tests.support.secure_servers import BOTH_NAMES
from zkwire import Client
from zkwire.testing import Server

REAL = pytest.param("real", marks=pytest.mark.real)


@pytest.fixture(params=["fake", REAL])
def hosts(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that serves: the fake one, then a real one, with the same answers."""
    if request.param == "real":
        yield request.getfixturevalue("zookeeper").hosts
    else:
        with FakeServer() as server:
            yield server.hosts


@pytest.fixture
def client(hosts: str) -> Iterator[Client]:
    with Client(hosts) as client:
        yield client


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    """A scripted server of the test's own, which serves."""
    with FakeServer() as fake:
        yield fake


@pytest.fixture
def server() -> Iterator[Server]:
    """An embedded server of the test's own."""
    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def shown(authority: Authority) -> Certificate:
    """What a server of this process shows."""
    return authority.sign("front", hosts=BOTH_NAMES)


@pytest.fixture(scope="session")
def trusting(authority: Authority) -> ssl.SSLContext:
    """A client's context."""
    return authority.client_context()


@pytest.fixture(params=["embedded", REAL])
def whole(request: pytest.FixtureRequest) -> str:
    """A server that knows every operation."""
    name = "zookeeper" if request.param == "real" else "server"
    hosts: str = request.getfixturevalue(name).hosts
    return hosts
