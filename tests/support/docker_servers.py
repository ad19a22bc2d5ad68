"""ZooKeeper servers in containers, by the command `docker`.

The image is `ZKWIRE_TEST_IMAGE`, by default the official `zookeeper`; `tests/make_image.sh` makes
one that understands the same variables where nothing can be pulled.
"""

from __future__ import annotations

import atexit
import os
import secrets
import subprocess
from contextlib import suppress
from functools import partial
from ipaddress import ip_network
from itertools import islice

from tests.support.server_control import (
    JAVA_FLAGS,
    Backend,
    Ensemble,
    NoBackendError,
    PortTakenError,
    Settings,
    ZooKeeperServer,
    free_port,
)

LOOPBACK = "127.0.0.1"
ENGINE_SECONDS = 60.0
PULL_SECONDS = 600.0


class EngineError(Exception):
    """What a command of Docker's says that has failed."""


def engine(*words: str, seconds: float = ENGINE_SECONDS) -> str:
    """What a command of Docker's says; EngineError if it fails, or does not end."""
    try:
        done = subprocess.run(
            ["docker", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(str(error)) from error
    if done.returncode:
        raise EngineError(done.stdout.strip())
    return done.stdout.strip()


def new_name() -> str:
    """Of a container or a network."""
    return f"zkwire-test-{secrets.token_hex(4)}"


class DockerServer(ZooKeeperServer):
    """One server in a container that outlives the server's death, with its data and its port."""

    def __init__(self, image: str, settings: Settings, *more: str) -> None:
        super().__init__(LOOPBACK, free_port())
        self.name = new_name()
        config = " ".join(f"{key}={value}" for key, value in settings.config().items())
        flags = " ".join((*JAVA_FLAGS, *settings.java_flags))
        variables = ("--env", f"ZOO_CFG_EXTRA={config}", "--env", f"JVMFLAGS={flags}")
        port = ("--publish", f"{LOOPBACK}:{self.port}:2181")
        self._options = ("--name", self.name, *port, *variables, *more, image)
        self._created = False
        atexit.register(self.discard)

    def _state(self, field: str) -> str:
        return engine("inspect", "--format", f"{{{{.State.{field}}}}}", self.name)

    @property
    def pid(self) -> int:
        return int(self._state("Pid"))

    @property
    def running(self) -> bool:
        return self._created and self._state("Status") == "running"

    def start(self, *, wait: bool = True) -> None:
        try:
            if not self._created:
                engine("create", *self._options)
                self._created = True
            engine("start", self.name)
        except EngineError as error:
            if "port is already allocated" in str(error) or "address already in use" in str(error):
                raise PortTakenError(str(error)) from error
            raise
        super().start(wait=wait)

    def stop(self) -> None:
        self.resume()
        engine("stop", self.name)

    def kill(self) -> None:
        self.resume()
        engine("kill", self.name)
        engine("wait", self.name)

    def pause(self) -> None:
        engine("pause", self.name)

    def resume(self) -> None:
        if self._created and self._state("Status") == "paused":
            engine("unpause", self.name)

    def discard(self) -> None:
        with suppress(EngineError):  # there is none
            engine("rm", "--force", "--volumes", self.name)
        atexit.unregister(self.discard)

    def log_tail(self) -> str:
        return engine("logs", "--tail", "40", self.name)


class DockerBackend(Backend):
    """Starts servers from an image."""

    name = "docker"

    def __init__(self, image: str) -> None:
        self._image = image

    def __str__(self) -> str:
        return f"Docker, image {self._image}"

    def make_standalone(self, settings: Settings) -> DockerServer:
        return DockerServer(self._image, settings)

    def make_ensemble(self, settings: Settings) -> Ensemble:
        """Three servers in a network of their own.

        They know each other by address, not by name: the name of a dead container is gone, and
        ZooKeeper stalls for seconds over it. The engine lets a container choose its address only in
        a network whose range was asked for, so the range is one that it has just picked itself.
        """
        network = new_name()
        engine("network", "create", network)
        subnet = engine("network", "inspect", "-f", "{{(index .IPAM.Config 0).Subnet}}", network)
        engine("network", "rm", network)
        engine("network", "create", "--subnet", subnet, network)
        addresses = list(map(str, islice(ip_network(subnet).hosts(), 1, 4)))  # behind the gateway's
        numbered = list(enumerate(addresses, start=1))
        members = " ".join(f"server.{number}={ip}:2888:3888;2181" for number, ip in numbered)
        servers = [
            DockerServer(
                self._image, settings, "--network", network, "--ip", address,
                "--env", f"ZOO_MY_ID={number}", "--env", f"ZOO_SERVERS={members}",
            )
            for number, address in numbered
        ]  # fmt: skip
        return Ensemble(servers, cleanup=partial(engine, "network", "rm", network))


def image_to_run() -> str:
    """That of `ZKWIRE_TEST_IMAGE`, or the official one."""
    return os.environ.get("ZKWIRE_TEST_IMAGE", "zookeeper")


def find_docker() -> DockerBackend:
    """The image of `ZKWIRE_TEST_IMAGE`, if an engine answers and has it or can pull it."""
    # The reaper of testcontainers is a container of another image, which need not be there.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    image = image_to_run()
    try:
        engine("version")
        if not engine("images", "--quiet", image):
            engine("pull", image, seconds=PULL_SECONDS)
    except EngineError as error:
        raise NoBackendError(f"no Docker engine with the image {image}: {error}") from error
    return DockerBackend(image)
