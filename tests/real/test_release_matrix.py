"""What servers say, as docs/operations.md, compatibility.md and wire-exchanges.json have it.

The embedded server plays each release, so a row is tried as on all of them wherever this runs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import unavailable
from tests.interop.matrix import settings, table
from tests.interop.other_clients import zkcli
from tests.interop.other_clients.clients import NoClientError
from tests.interop.other_clients.compare import differences
from tests.support import wire_exchanges
from tests.support.real_servers import EmbeddedBackend, EmbeddedServer
from tests.support.secure_servers import available
from tests.support.server_control import Backend, ZooKeeperServer
from tests.support.wire_exchanges import alike, exchanges
from zkwire import testing

QUICK = [case for case in settings.CASES if case.quick]
EXCHANGES = wire_exchanges.stored()


def test_the_column_of_this_release(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    line = "{}.{}.".format(*zookeeper.release)
    columns = {name: column for name, column in table.stored().items() if name.startswith(line)}
    if not columns:
        pytest.skip(f"no column for {line}x: the stored ones are {', '.join(table.stored())}")
    ((_, column),) = columns.items()
    assert table.outcomes(zookeeper, fresh_path) == column


@pytest.mark.parametrize(("release", "column"), table.stored().items(), ids=table.stored())
def test_an_embedded_server_plays_it(release: str, column: dict[str, dict[str, str]]) -> None:
    """The column that was seen on a real server is the one of the embedded server."""
    version = release.rpartition(".")[0]
    with testing.Server(version=version, tick=0.2, timeouts=(0.1, 60.0)) as server:  # type: ignore[arg-type]
        played = table.outcomes(EmbeddedServer(server, server.close), "/matrix")
    assert played == column


@pytest.mark.apache
def test_settings_are_met_as_the_table_says(zookeeper: ZooKeeperServer) -> None:
    line = "{}.{}.".format(*zookeeper.release)
    columns = [found for name, found in settings.stored().items() if name.startswith(line)]
    if not columns:
        pytest.skip(f"the table has no {line}x: {', '.join(settings.stored())}")
    cases = [case for case in QUICK if case.title in columns[0]]
    with available(), ThreadPoolExecutor(3) as pool:
        found = dict(zip([c.title for c in cases], pool.map(settings.outcomes, cases), strict=True))
    assert found == {case.title: columns[0][case.title] for case in cases}


def differing(found: wire_exchanges.Release, release: str) -> list[str]:
    """The exchanges that were others than those in the file."""
    return [
        name for name, frames in EXCHANGES[release].items() if not alike(found[name], frames, name)
    ]


@pytest.mark.apache
@pytest.mark.real
def test_a_real_server_says_what_is_written(backend: Backend) -> None:
    """Else: python3 -m tests.support.wire_exchanges."""
    if backend.name != "installed":
        pytest.skip("the server has to be started with extended types")
    with backend.standalone(wire_exchanges.SETTINGS) as server:
        line = "{}.{}.".format(*server.release)
        release = next((name for name in EXCHANGES if name.startswith(line)), None)
        if release is None:
            pytest.skip(f"{line}x is not among {', '.join(EXCHANGES)}")
        assert differing(exchanges(server.hosts), release) == []


@pytest.mark.parametrize("release", EXCHANGES)
def test_the_embedded_server_says_the_same(release: str) -> None:
    version = release.rpartition(".")[0]
    with testing.Server(version=version) as server:  # type: ignore[arg-type]
        assert differing(exchanges(server.hosts), release) == []


@pytest.mark.apache
@pytest.mark.since("3.7")
def test_zookeepers_own_shell_sees_the_same_on_the_embedded_server(backend: Backend) -> None:
    """The part of `tests/interop/other_clients/compare.py` that takes nothing but Java."""
    try:
        zkcli.provide()
    except NoClientError as error:
        unavailable(str(error))
    with (
        backend.standalone() as real,
        EmbeddedBackend().standalone() as embedded,
        ThreadPoolExecutor(2) as pool,
    ):
        hosts = (real.hosts, embedded.hosts)
        said = list(pool.map(zkcli.transcript, hosts))
    assert said[0][-1].startswith("persistent: ")
    assert differences(*said) == []
