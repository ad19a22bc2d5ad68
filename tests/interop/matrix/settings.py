"""What a server's settings do to a client: servers with each, and a few things tried on them.

    python3 -m tests.interop.matrix.settings           compares the table of docs/compatibility.md
    python3 -m tests.interop.matrix.settings --write   writes it

Each case has servers of its own, on which a new client for each column does one thing.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import zkwire
from tests.interop import pages
from tests.interop.matrix.rows import PATIENCE
from tests.interop.matrix.table import numbers
from tests.support.secure_servers import USERS, installed_backend, sasl_settings
from tests.support.server_control import Settings

LOGIN = {"sasl": zkwire.DigestMD5(*next(iter(USERS.items())))}
ASKED = 2.0
"""The session timeout, in seconds, where a case does not say."""
SESSION_TIMEOUTS = 1.25
"""For how long a lock is held, without any other request than pings."""


class Case(NamedTuple):
    """Servers with these ``options`` (zoo.cfg) and ``flags`` (Java), and the client's options.

    ``size`` is that of the data.  ``quick``: tried in CI.  ``since``: the first release that knows
    the settings.
    """

    title: str
    where: Callable[[Case], AbstractContextManager[str]]
    options: Mapping[str, str] = {}
    flags: tuple[str, ...] = ()
    client: Mapping[str, Any] = {}
    size: int = 1_000_000
    quick: bool = False
    since: str = ""

    def settings(self) -> Settings:
        """What the servers are started with."""
        flags = tuple(f"-D{flag}" for flag in self.flags)
        return Settings(options=self.options, java_flags=flags)


# --- the servers; each yields the connect string --------------------------------------------------


def prepare(hosts: str, **options: Any) -> None:
    """Make the nodes that the columns use."""
    with zkwire.Client(hosts, **options) as client:
        for path in ("/lock", "/lease", "/data", "/watch"):
            client.create(path)


@contextmanager
def alone(case: Case) -> Iterator[str]:
    """One server."""
    with installed_backend().standalone(case.settings()) as server:
        prepare(server.hosts)
        yield server.hosts


@contextmanager
def with_login(case: Case) -> Iterator[str]:
    """One server that knows users."""
    with (
        tempfile.TemporaryDirectory(prefix="zkwire-matrix-") as made,
        installed_backend().standalone(sasl_settings(Path(made), **case.options)) as server,
    ):
        prepare(server.hosts, **LOGIN)
        yield server.hosts


@contextmanager
def member(mode: str, case: Case) -> Iterator[str]:
    """The leader of three servers, or a follower."""
    with installed_backend().ensemble(case.settings()) as ensemble:
        prepare(ensemble.hosts)
        yield next(server.hosts for server in ensemble.servers if server.mode() == mode)


@contextmanager
def read_only(case: Case) -> Iterator[str]:
    """One of three, when the others have gone."""
    with installed_backend().ensemble(case.settings()) as ensemble:
        prepare(ensemble.hosts)
        yield ensemble.leave_read_only().hosts


LOCAL = {"localSessionsEnabled": "true"}
UPGRADING = {**LOCAL, "localSessionsUpgradingEnabled": "true"}
MARGIN = {"session_timeout": 8.0, "lease_margin": 1.6}

CASES = [
    Case("none of these, 2 s are asked for", alone),
    Case("`minSessionTimeout=4000`, and 2 s are asked for", alone, {"minSessionTimeout": "4000"},
         client={"lease_margin": 0.4}, quick=True),
    Case("`maxSessionTimeout=2000`, and 8 s are asked for, with `lease_margin=1.6`", alone,
         {"maxSessionTimeout": "2000"}, client=MARGIN, quick=True),
    Case("`jute.maxbuffer=100000`", alone, flags=("jute.maxbuffer=100000",), quick=True),
    Case("the same, `send_limit=100000`", alone, flags=("jute.maxbuffer=100000",),
         client={"send_limit": 100_000}, size=99_000, quick=True),
    Case("`jute.maxbuffer=4194304`", alone, flags=("jute.maxbuffer=4194304",), size=4_000_000),
    Case("the same, `send_limit=4194304`", alone, flags=("jute.maxbuffer=4194304",),
         client={"send_limit": 4_194_304}, size=4_000_000, quick=True),
    Case("`localSessionsEnabled`, at the leader", partial(member, "leader"), LOCAL,
         since="3.5"),
    Case("`localSessionsEnabled`, at a follower", partial(member, "follower"), LOCAL,
         quick=True, since="3.5"),
    Case("`localSessionsUpgradingEnabled` too, at a follower", partial(member, "follower"),
         UPGRADING, since="3.5"),
    Case("`sessionRequireClientSASLAuth`", with_login, {"sessionRequireClientSASLAuth": "true"},
         since="3.6"),
    Case("the same, `sasl=DigestMD5(...)`", with_login, {"sessionRequireClientSASLAuth": "true"},
         client=LOGIN, since="3.6"),
    Case("`readonlymode.enabled` and `localSessionsEnabled`, no quorum, `read_only=True`",
         read_only, LOCAL, flags=("readonlymode.enabled=true",), client={"read_only": True},
         since="3.5"),
]  # fmt: skip


# --- the columns; each returns its result ---------------------------------------------------------


def _connect(client: zkwire.Client, _: Case) -> str:
    client.exists("/")
    granted = f"{client.session_timeout:g} s"
    return f"{granted}, read-only" if client.state is zkwire.State.CONNECTED_READ_ONLY else granted


def _fair_lock(client: zkwire.Client, _: Case) -> str:
    return "yes" if zkwire.SequentialLock(client, "/lock").acquire(PATIENCE) else "no"


def _single_node_lock(client: zkwire.Client, _: Case) -> str:
    return "yes" if zkwire.NonBlockingLock(client, "/single").acquire(PATIENCE) else "no"


def _lease(client: zkwire.Client, case: Case) -> str:
    with zkwire.SequentialLock(client, "/lease") as lock:
        lost = lock.lost.wait(SESSION_TIMEOUTS * client.session_timeout)
        margin = f", margin {client.lease_margin:g} s" if "lease_margin" in case.client else ""
        return ("lost" if lost or not lock.held else "held") + margin


def _big_data(client: zkwire.Client, case: Case) -> str:
    data = bytes(case.size)
    client.set_data("/data", data)
    assert client.get_data("/data").data == data
    return f"{case.size:,} bytes"


def _watch(client: zkwire.Client, _: Case) -> str:
    watch = zkwire.Watch()
    client.get_data("/watch", watch=watch)
    client.set_data("/watch", b"1")
    return "yes" if watch.wait(PATIENCE) is not None else "no"


COLUMNS: dict[str, Callable[[zkwire.Client, Case], str]] = {
    "connect": _connect,
    "`SequentialLock`": _fair_lock,
    "`NonBlockingLock`": _single_node_lock,
    "lease": _lease,
    "big data": _big_data,
    "watch": _watch,
}


def outcomes(case: Case) -> dict[str, str]:
    """The result of each column, all at the same time; an error by its name."""
    with case.where(case) as hosts, ThreadPoolExecutor(len(COLUMNS)) as pool:
        cells = {title: pool.submit(_outcome, hosts, case, do) for title, do in COLUMNS.items()}
        return {title: cell.result() for title, cell in cells.items()}


def _outcome(hosts: str, case: Case, do: Callable[[zkwire.Client, Case], str]) -> str:
    options: dict[str, Any] = {"session_timeout": ASKED, **case.client}
    with zkwire.Client(hosts, **options, operation_timeout=PATIENCE) as client:
        try:
            return do(client, case)
        except zkwire.ConnectionLossError:  # which one depends on how much the kernel has taken
            return f"`{zkwire.ConnectionLossError.__name__}`"
        except (zkwire.ZooKeeperError, ValueError) as error:
            return f"`{type(error).__name__}`"


# --- the table ------------------------------------------------------------------------------------

DATA = Path(__file__).with_name("settings.json")
DOCUMENT = pages.DOCUMENTS / "compatibility.md"
Found = dict[str, dict[str, str]]
"""By the title of the case and that of the column."""


def stored() -> dict[str, Found]:
    """The outcomes of the last run, by the release."""
    loaded: dict[str, Found] = json.loads(DATA.read_text())
    return loaded


def replaced(text: str, by_release: dict[str, Found]) -> str:
    """The document with the table; a cell in which releases differ names them."""
    rows = []
    for case in CASES:
        title = f"{case.title} (since {case.since})" if case.since else case.title
        rows.append([title, *(_cell(by_release, case.title, column) for column in COLUMNS)])
    return pages.with_parts(text, {"settings": pages.table(["settings", *COLUMNS], rows)})


def _cell(by_release: dict[str, Found], title: str, column: str) -> str:
    releases: dict[str, list[str]] = {}
    for release, found in by_release.items():
        if title in found:
            releases.setdefault(found[title][column], []).append(release)
    if len(releases) == 1:
        return next(iter(releases))
    return "; ".join(f"{', '.join(which)}: {cell}" for cell, which in releases.items())


def found(release: str) -> Found:
    """What comes of the cases whose settings this release knows."""
    known = [case for case in CASES if numbers(release) >= numbers(case.since or "0")]
    return {case.title: outcomes(case) for case in known}


if __name__ == "__main__":
    program = "tests.interop.matrix.settings"
    sys.exit(pages.on_each_release(program, found, DATA, DOCUMENT, replaced))
