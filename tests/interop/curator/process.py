"""Apache Curator in a process of its own (`BesideCurator.java`), called by lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.atlas.clients import compiled
from tests.interop.atlas.driver import Driver
from tests.interop.other_clients.clients import FOLDER, NoClientError, one_at_a_time
from tests.support.installed_servers import DEBIAN_JARS

HERE = Path(__file__).parent
ANSWER_SECONDS = 120.0


def find_classes() -> str:
    """The class path with Curator and a ZooKeeper; NoClientError if there is none.

    `CURATOR_HOME` names the folders with the jars of Curator and of a ZooKeeper, separated by
    colons; without it Debian's are used.
    """
    if home := os.environ.get("CURATOR_HOME"):
        folders = home.split(os.pathsep)
        for name in ("curator-recipes-[0-9]*.jar", "zookeeper-[0-9]*.jar"):
            if not any(jar for folder in folders for jar in Path(folder).glob(name)):
                raise NoClientError(f"no {name} in CURATOR_HOME={home}")
        classpath = [f"{folder}/*" for folder in folders]
    else:
        # Debian's jars name those that they need, but for a logger.
        classpath = [str(DEBIAN_JARS / f"{name}.jar") for name in ("curator-recipes", "slf4j-nop")]
        if not Path(classpath[0]).exists():
            package = "Debian's package `libcurator-recipes-java`"
            raise NoClientError(f"no CURATOR_HOME, and no {classpath[0]} ({package})")
    return os.pathsep.join(classpath)


def find_curator(program: str) -> list[str]:
    """The command that runs a program of this folder, but for its arguments."""
    with one_at_a_time():
        return compiled(str(HERE / f"{program}.java"), find_classes())


class Curator:
    """One client of Curator's, which any threads may call at once."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def call(self, *words: object) -> str:
        """What one call returns; RuntimeError for an exception of Curator's."""
        answer = self._driver.ask("curator", *words, limit=ANSWER_SECONDS)
        if not (answer.words or "").startswith("ok"):
            raise RuntimeError(f"{words}: {answer.words}")
        return answer.text


@contextmanager
def running(hosts: str) -> Iterator[Curator]:
    """Curator, connected to a server."""
    with Driver(find_curator("BesideCurator"), FOLDER / "curator.log", {}) as driver:
        curator = Curator(driver)
        curator.call("connect", hosts)
        try:
            yield curator
        finally:
            curator.call("close", "-")
