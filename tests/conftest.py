"""Fixtures and rules for all tests.

A test marked `real` needs a real ZooKeeper: without one it is skipped with the reason, and under
`CI=true` it fails, so that nobody mistakes silence for success. Every test must leave nothing
behind: no thread of the library, no open descriptor.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import secrets
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hypothesis
import pytest

from tests.support.aio_helpers import run
from tests.support.lock_helpers import ALICE, LONG, Stage, calm
from tests.support.real_servers import find_backend
from tests.support.secure_servers import (  # noqa: F401 - fixtures
    authority,
    sasl_zookeeper,
    sasl_zookeeper_lenient,
    tls_zookeeper,
    tls_zookeeper_for_certified,
)
from tests.support.server_control import (
    Backend,
    Ensemble,
    NoBackendError,
    UncontrollableError,
    ZooKeeperServer,
    poll,
    skip_older,
)
from zkwire import Client

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

GRACE_SECONDS = 20.0
SERVER_FIXTURES = frozenset({"backend", "zookeeper", "ensemble"})
SEED = int(os.environ.setdefault("ZKWIRE_SEED", str(secrets.randbelow(2**32))))
TESTS = Path(__file__).parent
WITH_SERVERS = {"shell", "real", "interop"}
"""The folders of which a test may ask for a server."""

# Examples run on shared machines too, where a pause says nothing about the code.
hypothesis.settings.register_profile(
    "zkwire",
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("zkwire")


# A shell that starts this in the background has these ignored, here and in all children.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup: so here, not in children
    signal.signal(signal.SIGHUP, lambda *_: None)


def unavailable(reason: str) -> NoReturn:
    """End the test: there is no server for it. A skip here, a failure in CI."""
    # The embedded server is never the only way: a CI run has had the real one before.
    if os.environ.get("CI") == "true" and os.environ.get("ZKWIRE_TEST_BACKEND") != "embedded":
        pytest.fail(f"CI=true and {reason}", pytrace=False)
    pytest.skip(reason)


@functools.cache
def found_backend() -> Backend | NoBackendError:
    """The backend, or why there is none; looked for once."""
    try:
        return find_backend()
    except NoBackendError as error:
        return error


def pytest_report_header() -> str:
    return f"seed: ZKWIRE_SEED={SEED}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if found_backend.cache_info().currsize:
        terminalreporter.write_line(f"real servers: {found_backend()}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for a server is `real`; in some folders none does."""
    for item in items:
        if not SERVER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real)
        if item.get_closest_marker("real") and folder_of(item) not in WITH_SERVERS:
            raise pytest.UsageError(f"{item.nodeid} asks for a server; see tests/real")


def folder_of(item: pytest.Item) -> str:
    """The folder of `tests` in which this stands."""
    inside = item.path.is_relative_to(TESTS)
    return item.path.relative_to(TESTS).parts[0] if inside else ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("real"):
        backend = found_backend()
        if isinstance(backend, NoBackendError):
            unavailable(str(backend))
        if item.get_closest_marker("apache") and backend.name == "embedded":
            pytest.skip("is about Apache ZooKeeper")
        if item.get_closest_marker("docker") and backend.name != "docker":
            pytest.skip(f"is about the Docker way; the servers are {backend}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    try:
        yield
    except UncontrollableError as error:
        unavailable(str(error))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A coroutine function is run in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    run(lambda: pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of everything random in this run, printed at its start."""
    return SEED


@pytest.fixture
def fresh_path(request: pytest.FixtureRequest) -> str:
    """A path that no other test and no other run uses; nothing is there yet."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", request.node.name)[:60]
    return f"/t-{name}-{secrets.token_hex(4)}"


@pytest.fixture
def observer(zookeeper: ZooKeeperServer) -> Iterator[Client]:
    """One client for everything that the faults of a test are not to hit."""
    with Client(zookeeper.hosts, session_timeout=LONG) as client:
        yield calm(client, zookeeper)


@pytest.fixture(scope="session")
def kazoo() -> Any:
    """The package, which some tests need and the library does not."""
    try:
        import kazoo.client
        import kazoo.exceptions
        import kazoo.security
    except ImportError:
        unavailable("kazoo is not installed")
    return kazoo


@pytest.fixture
def stage(zookeeper: ZooKeeperServer) -> Iterator[Stage]:
    """A server behind a proxy."""
    with Stage(zookeeper) as stage:
        yield stage


@pytest.fixture
def tidy(zookeeper: ZooKeeperServer, fresh_path: str) -> Iterator[Stage]:
    """A server behind a proxy; what is left below ``fresh_path`` is removed."""
    with Stage(zookeeper) as stage:
        yield stage
        stage.heal()
        stage.observer.add_auth(*ALICE)
        stage.observer.delete_tree(fresh_path)


@pytest.fixture(scope="session")
def backend() -> Backend:
    """Where the servers come from; for tests that want servers of their own."""
    backend = found_backend()
    if isinstance(backend, NoBackendError):
        unavailable(str(backend))
    return backend


@pytest.fixture(scope="session")
def zookeeper(backend: Backend) -> Iterator[ZooKeeperServer]:
    """One server for all tests; whatever a test does to it, the next one finds it serving."""
    with backend.standalone() as server:
        yield server


@pytest.fixture(scope="session")
def ensemble(backend: Backend) -> Iterator[Ensemble]:
    """Three servers for all tests, restored like the one alone."""
    try:
        made = backend.ensemble()
    except NoBackendError as error:
        unavailable(str(error))
    with made:
        yield made


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread of the library and no descriptor stays open longer than the test."""
    threads_before = set(threading.enumerate())
    descriptors_before = open_descriptors()
    yield
    deadline = time.monotonic() + GRACE_SECONDS
    for thread in set(threading.enumerate()) - threads_before:
        if thread.name.startswith("zkwire") and not is_shared_server(thread):
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), f"the test left a thread: {thread.name}"

    def closed() -> bool | None:
        return open_descriptors() <= descriptors_before or None

    try:
        poll("descriptors closed", closed, max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        left = sorted(open_descriptors() - descriptors_before)
        pytest.fail(f"the test left open descriptors: {left}", pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def embedded_server(request: pytest.FixtureRequest) -> None:
    """The embedded server, which lives in this process, is there before any test looks around."""
    if os.environ.get("ZKWIRE_TEST_BACKEND") == "embedded":
        request.getfixturevalue("zookeeper")


@pytest.fixture(autouse=True)
def new_enough(request: pytest.FixtureRequest, nothing_left: None) -> None:
    """A test marked `since` says which release has what it is about; an older one skips it."""
    marker = request.node.get_closest_marker("since")
    # The same test may have a variant for zkwire's own server, of which the release is known.
    if marker and request.node.get_closest_marker("real"):
        (needed,) = marker.args
        skip_older(request.getfixturevalue("zookeeper"), needed)


@pytest.fixture(autouse=True)
def restored_servers(request: pytest.FixtureRequest, nothing_left: None) -> Iterator[None]:
    """Give the shared servers to the next test as this one has found them."""
    shared: list[ZooKeeperServer | Ensemble] = [
        request.getfixturevalue(name)
        for name in ("zookeeper", "ensemble")
        if name in request.fixturenames
    ]
    yield
    for servers in shared:
        servers.restore()


def is_shared_server(thread: threading.Thread) -> bool:
    """Whether this is the embedded server that stands in for a real one in this run."""
    embedded = os.environ.get("ZKWIRE_TEST_BACKEND") == "embedded"
    return embedded and thread.name.startswith("zkwire-server")


def open_descriptors() -> set[tuple[int, str]]:
    """This process's open descriptors and what they lead to; empty where there is no /proc."""
    found = set()
    for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        try:
            found.add((int(number), os.readlink(f"/proc/self/fd/{number}")))
        except FileNotFoundError:
            continue  # the one that listed the directory
    return found
