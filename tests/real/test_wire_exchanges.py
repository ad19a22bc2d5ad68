"""docs/wire-exchanges.json has what servers say: the installed one, and zkwire's own as each."""

from __future__ import annotations

import pytest

from tests.support import wire_exchanges
from tests.support.server_control import Backend
from tests.support.wire_exchanges import alike, exchanges, stored
from zkwire import testing

STORED = stored()


def differing(found: wire_exchanges.Release, release: str) -> list[str]:
    """The exchanges that were others than those in the file."""
    return [
        name for name, frames in STORED[release].items() if not alike(found[name], frames, name)
    ]


@pytest.mark.apache
@pytest.mark.real
def test_a_real_server_says_what_is_written(backend: Backend) -> None:
    """Else: python3 -m tests.support.wire_exchanges."""
    if backend.name != "installed":
        pytest.skip("the server has to be started with extended types")
    with backend.standalone(wire_exchanges.SETTINGS) as server:
        line = "{}.{}.".format(*server.release)
        release = next((name for name in STORED if name.startswith(line)), None)
        if release is None:
            pytest.skip(f"{line}x is not among {', '.join(STORED)}")
        assert differing(exchanges(server.hosts), release) == []


@pytest.mark.parametrize("release", STORED)
def test_the_embedded_server_says_the_same(release: str) -> None:
    version = release.rpartition(".")[0]
    with testing.Server(version=version) as server:  # type: ignore[arg-type]
        assert differing(exchanges(server.hosts), release) == []
