"""ZooKeeper servers as processes of the tests' own, from an installed ZooKeeper."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.server_control import (
    JAVA_FLAGS,
    Backend,
    Ensemble,
    NoBackendError,
    Settings,
    ZooKeeperServer,
    free_port,
)

DEBIAN_JARS = Path("/usr/share/java")
LOOPBACK = "127.0.0.1"
STOP_SECONDS = 10.0
LOG_TAIL_BYTES = 4000


class InstalledServer(ZooKeeperServer):
    """One server process, with its own directory for configuration, data and log."""

    def __init__(
        self, java: tuple[str, ...], port: int, member: int, config: Mapping[str, str]
    ) -> None:
        super().__init__(LOOPBACK, port)
        self.directory = Path(tempfile.mkdtemp(prefix="zkwire-test-"))
        atexit.register(self.discard)
        self._command = (*_leash(), *java, str(self.directory / "zoo.cfg"))
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        data = self.directory / "data"
        data.mkdir()
        (data / "myid").write_text(f"{member}\n")
        lines = {
            "dataDir": str(data),
            "clientPort": str(port),
            "clientPortAddress": LOOPBACK,
            **config,
        }
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        (self.directory / "zoo.cfg").write_text(text)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ProcessLookupError(f"{self} has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None and not self._paused

    def start(self, *, wait: bool = True) -> None:
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the tests; they stop their servers themselves.
                process_group=0,
            )
        super().start(wait=wait)

    def stop(self) -> None:
        self.resume()
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._paused = False

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        # The signal is only sent so far; some threads may still be answering.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            os.kill(self.pid, signal.SIGCONT)
            self._paused = False

    def discard(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.discard)

    def log_tail(self) -> str:
        log = self.directory / "log"
        return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace") if log.exists() else ""


class InstalledBackend(Backend):
    """Starts servers from a class path."""

    name = "installed"

    def __init__(self, java: str, classpath: str) -> None:
        self.java = java
        self.classpath = classpath

    def __str__(self) -> str:
        return f"installed ZooKeeper, {self.classpath}"

    def make_standalone(self, settings: Settings) -> InstalledServer:
        (server,) = self._make(1, settings)
        return server

    def make_ensemble(self, settings: Settings) -> Ensemble:
        return Ensemble(self._make(3, settings))

    def _make(self, count: int, settings: Settings) -> list[InstalledServer]:
        numbers = range(1, count + 1)
        members = {f"server.{n}": f"{LOOPBACK}:{free_port()}:{free_port()}" for n in numbers}
        config = {**members, **settings.config()}
        command = self.command(settings)
        return [InstalledServer(command, free_port(), n, config) for n in numbers]

    def command(self, settings: Settings) -> tuple[str, ...]:
        """What starts a server with these settings."""
        flags = (*JAVA_FLAGS, *settings.java_flags, "-cp", self.classpath)
        return (self.java, *flags, "org.apache.zookeeper.server.quorum.QuorumPeerMain")


def find_installed() -> InstalledBackend:
    """The ZooKeeper of `ZKWIRE_TEST_RELEASE`: of `ZOOKEEPER_HOME`, or Debian's.

    Without that variable it is the only one of `ZOOKEEPER_HOME`, else Debian's.
    """
    java = shutil.which("java")
    if java is None:
        raise NoBackendError("no `java` on the path")
    home, found, debian = os.environ.get("ZOOKEEPER_HOME", ""), found_releases(), _debian()
    if home and not found:
        raise NoBackendError(f"no zookeeper-*.jar in ZOOKEEPER_HOME={home}, nor in its lib")
    if wanted := os.environ.get("ZKWIRE_TEST_RELEASE"):
        found = {**debian, **found}
        if wanted not in found:
            raise NoBackendError(
                f"ZKWIRE_TEST_RELEASE={wanted}, and there is only {', '.join(found) or 'none'}: "
                f"ZOOKEEPER_HOME={home} is to name a folder in which zookeeper-{wanted}.jar stands "
                "beside the jars that it needs"
            )
        return InstalledBackend(java, found[wanted])
    if len(found) != 1:
        found = debian
    if not found:
        raise NoBackendError(
            f"no {DEBIAN_JARS}/zookeeper.jar (Debian's package `zookeeper`), and not one release "
            f"in ZOOKEEPER_HOME={home}"
        )
    return InstalledBackend(java, *found.values())


def found_releases() -> dict[str, str]:
    """The class path of each release in `ZOOKEEPER_HOME`.

    Each of its folders, separated by colons, is an unpacked release, or has nothing but the jars
    of one, or has such folders named `zookeeper-...`.
    """
    found: dict[str, str] = {}
    for home in filter(None, os.environ.get("ZOOKEEPER_HOME", "").split(os.pathsep)):
        for folder in (Path(home), *sorted(Path(home).glob("*zookeeper-*/"))):
            for jars, more in ((folder, ""), (folder / "lib", f":{folder}/conf")):
                if release := _release_in(jars):
                    found.setdefault(release, f"{jars}/*{more}")
    return found


def every_release() -> dict[str, str]:
    """The class path of each release: of `ZOOKEEPER_HOME`, and Debian's."""
    return {**_debian(), **found_releases()}


def _release_in(folder: Path) -> str | None:
    """The release of which this folder has the server's jar."""
    for jar in sorted(folder.glob("zookeeper-*.jar")):
        if match := re.fullmatch(r"zookeeper-(\d+(?:\.\d+)*)\.jar", jar.name):
            return match[1]
    return None


def _debian() -> dict[str, str]:
    """Debian's release, if it is installed."""
    # Debian's jar names the libraries it needs, but leaves the choice of a logger to its user.
    jars = [DEBIAN_JARS / "zookeeper.jar", DEBIAN_JARS / "slf4j-simple.jar"]
    release = _release_in(DEBIAN_JARS) or "Debian's"
    return {release: ":".join(map(str, jars))} if jars[0].exists() else {}


def _leash() -> tuple[str, ...]:
    """A command prefix that makes the kernel kill the server when the tests die.

    More exactly, when the thread that starts it ends: servers are to be started by the thread
    that runs the tests.
    """
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()
