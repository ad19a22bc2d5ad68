"""Apache Curator in a process of its own (`BesideCurator.java`), called by lines."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from tests.support.installed_servers import DEBIAN_JARS, _leash
from tests.support.server_control import JAVA_FLAGS

FOLDER = Path(__file__).parent
ANSWER_SECONDS = 120.0


class NoCuratorError(Exception):
    """Curator cannot be run; the message says why."""


def find_classes() -> str:
    """The class path with Curator and a ZooKeeper.

    `CURATOR_HOME` names the folders with the jars of Curator and of a ZooKeeper, separated by
    colons; without it Debian's are used.
    """
    if home := os.environ.get("CURATOR_HOME"):
        folders = home.split(os.pathsep)
        if not any(jar for folder in folders for jar in Path(folder).glob("curator-recipes-*.jar")):
            raise NoCuratorError(f"no curator-recipes-*.jar in CURATOR_HOME={home}")
        classpath = [f"{folder}/*" for folder in folders]
    else:
        # Debian's jars name those that they need, but for a logger.
        classpath = [str(DEBIAN_JARS / f"{name}.jar") for name in ("curator-recipes", "slf4j-nop")]
        if not Path(classpath[0]).exists():
            package = "Debian's package `libcurator-recipes-java`"
            raise NoCuratorError(f"no CURATOR_HOME, and no {classpath[0]} ({package})")
    return os.pathsep.join(classpath)


def find_curator(program: str = "BesideCurator") -> list[str]:
    """The command that compiles and runs a program of this folder, but for its arguments."""
    java = shutil.which("java")
    if java is None or shutil.which("javac") is None:
        raise NoCuratorError("no `java` and `javac` on the path")
    classes = ["-cp", find_classes()]
    return [*_leash(), java, *JAVA_FLAGS, *classes, str(FOLDER / f"{program}.java")]


class Curator:
    """One client of Curator's, which any threads may call at once."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._calls, self._answers = process.stdin, process.stdout
        self._numbers = itertools.count()
        self._waiting: dict[str, Future[str]] = {}
        self._mutex = threading.Lock()

    def call(self, *words: object) -> str:
        """What one call returns; RuntimeError for an exception of Curator's."""
        number, answer = str(next(self._numbers)), Future[str]()
        with self._mutex:
            self._waiting[number] = answer
            self._calls.write(" ".join(map(str, (number, *words))) + "\n")
            self._calls.flush()
        result = answer.result(ANSWER_SECONDS)
        if result.startswith("error"):
            raise RuntimeError(f"{words}: {result}")
        return result

    def receive(self) -> None:
        """Hand the answers on until there are no more."""
        for line in self._answers:
            number, _, result = line.rstrip("\n").partition(" ")
            self._waiting.pop(number).set_result(result)
        for answer in self._waiting.values():
            answer.set_result("error: the program has ended")


@contextmanager
def running(hosts: str) -> Iterator[Curator]:
    """Curator, connected to a server."""
    process = subprocess.Popen(
        [*find_curator(), hosts],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process:
        curator = Curator(process)
        receiver = threading.Thread(target=curator.receive, name="curator-answers")
        receiver.start()
        try:
            yield curator
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(ANSWER_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            receiver.join()
