"""The other clients, each made ready to run: in `.check/clients`, as long as its version is wanted.

What a client needs and this machine lacks ends in a `NoClientError` that names it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.check.environment import ROOT
from tests.support.installed_servers import find_installed
from tests.support.server_control import NoBackendError

HERE = Path(__file__).parent
FOLDER = ROOT / ".check" / "clients"


class NoClientError(Exception):
    """A client cannot be run here; the message says why."""


class OtherClient(NamedTuple):
    """One of them: its name in the table, and what makes it ready.

    `provide` returns the command of its program, to which the connect string is added.
    """

    name: str
    what: str
    provide: Callable[[], list[str]]


def provide_zkcli() -> list[str]:
    try:
        backend = find_installed()
    except NoBackendError as error:
        raise NoClientError(str(error)) from error
    return [sys.executable, str(HERE / "tasks_zkcli.py"), backend.java, backend.classpath]


CLIENTS = (OtherClient("zkCli", "ZooKeeper's own shell (Java)", provide_zkcli),)
