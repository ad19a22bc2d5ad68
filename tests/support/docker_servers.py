"""ZooKeeper servers in containers, through testcontainers.

The image is `ZKWIRE_TEST_IMAGE`, by default the official `zookeeper`; `tests/make_image.sh` makes
one that understands the same variables where nothing can be pulled.
"""

from __future__ import annotations

import atexit
import gc
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_network
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from docker.errors import APIError, DockerException, ImageNotFound
from docker.types import IPAMConfig, IPAMPool
from testcontainers.core.docker_client import DockerClient
from testcontainers.core.network import Network

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
from zkwire.testing.container import CLIENT_PORT, IMAGE, ZooKeeperContainer

if TYPE_CHECKING:
    from docker.models.containers import Container

LOOPBACK = "127.0.0.1"
ENGINE_SECONDS = 15
"""How long the engine may be silent, also while it pulls the image."""


class SettableContainer(ZooKeeperContainer):
    """One with these settings, its client port published on a fixed loopback port.

    `DockerServer` waits until it serves: a member of an ensemble starts before the others do.
    """

    def __init__(self, image: str, port: int, settings: Settings) -> None:
        super().__init__(image, docker_client_kw={"timeout": ENGINE_SECONDS})
        self._wait_strategy = None
        # with_bind_ports would publish the port to the whole network.
        self.ports.clear()
        cast(dict[str, Any], self.ports)[f"{CLIENT_PORT}/tcp"] = (LOOPBACK, port)
        config = settings.config().items()
        self.with_env("ZOO_CFG_EXTRA", " ".join(f"{key}={value}" for key, value in config))
        self.with_env("JVMFLAGS", " ".join((*JAVA_FLAGS, *settings.java_flags)))

    def join_ensemble(self, member: int, members: str, network: Network, address: str) -> None:
        """Make this, before its first start, the `member`-th server of `members`."""
        self.with_env("ZOO_MY_ID", str(member)).with_env("ZOO_SERVERS", members)
        endpoint = self.get_docker_client().client.api.create_endpoint_config(ipv4_address=address)
        self.with_network(network).with_kwargs(networking_config={network.name: endpoint})


class DockerServer(ZooKeeperServer):
    """One server in a container that outlives the server's death, with its data and its port."""

    def __init__(self, container: SettableContainer, port: int) -> None:
        super().__init__(LOOPBACK, port)
        self._container = container
        self._created = False
        self._running = False
        self._paused = False
        atexit.register(self.discard)

    @contextmanager
    def _engine(self) -> Iterator[Container]:
        """The container, for one conversation with the engine.

        Kept connections would look like leaks of whichever test caused them.
        """
        try:
            yield self._container.get_wrapped_container()
        finally:
            self._container.get_docker_client().client.close()

    @property
    def pid(self) -> int:
        with self._engine() as container:
            container.reload()
            return int(container.attrs["State"]["Pid"])

    @property
    def running(self) -> bool:
        if not self._running or self._paused:
            return False
        with self._engine() as container:
            container.reload()
            return container.status == "running"

    def start(self, *, wait: bool = True) -> None:
        try:
            if self._created:
                with self._engine() as container:
                    container.start()
            else:
                self._create()
        except (APIError, RuntimeError) as error:
            if "port is already allocated" in str(error) or "address already in use" in str(error):
                raise PortTakenError(str(error)) from error
            raise
        self._running = True
        if wait:
            self.wait_serving()

    def _create(self) -> None:
        try:
            self._container.start()
            self._created = True
        finally:
            self._container.get_docker_client().client.close()

    def stop(self) -> None:
        self.resume()
        self._running = False
        with self._engine() as container:
            container.stop()

    def kill(self) -> None:
        self.resume()
        self._running = False
        with self._engine() as container:
            container.kill()
            container.wait()

    def pause(self) -> None:
        with self._engine() as container:
            container.pause()
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            with self._engine() as container:
                container.unpause()
            self._paused = False

    def discard(self) -> None:
        self._container.stop()
        atexit.unregister(self.discard)

    def log_tail(self) -> str:
        with self._engine() as container:
            return container.logs(tail=40).decode(errors="replace")


class DockerBackend(Backend):
    """Starts servers from an image."""

    name = "docker"

    def __init__(self, image: str) -> None:
        self._image = image

    def __str__(self) -> str:
        return f"Docker, image {self._image}"

    def make_standalone(self, settings: Settings) -> DockerServer:
        port = free_port()
        return DockerServer(SettableContainer(self._image, port, settings), port)

    def make_ensemble(self, settings: Settings) -> Ensemble:
        network, addresses = _network(members=3)
        numbered = list(enumerate(addresses, start=1))
        members = " ".join(f"server.{number}={ip}:2888:3888;2181" for number, ip in numbered)
        servers = []
        for number, address in numbered:
            port = free_port()
            container = SettableContainer(self._image, port, settings)
            container.join_ensemble(number, members, network, address)
            servers.append(DockerServer(container, port))
        return Ensemble(servers, cleanup=network.remove)


def _network(members: int) -> tuple[Network, list[str]]:
    """A network of the tests' own, and the addresses that its members are to have.

    Members know each other by address, not by name: the name of a dead container is gone, and
    ZooKeeper stalls for seconds over it. The engine lets a container choose its address only in a
    network whose range was asked for, so the range is one that the engine has just picked itself.
    """
    with Network(docker_client_kw={"timeout": ENGINE_SECONDS}) as picked:
        client = DockerClient(timeout=ENGINE_SECONDS).client
        (found,) = client.networks.list(names=[picked.name])
        client.close()
    subnet = found.attrs["IPAM"]["Config"][0]["Subnet"]
    ipam = IPAMConfig(pool_configs=[IPAMPool(subnet=subnet)])
    network = Network(
        docker_client_kw={"timeout": ENGINE_SECONDS}, docker_network_kw={"ipam": ipam}
    ).create()
    gateway_and_members = islice(ip_network(subnet).hosts(), members + 1)
    return network, [str(address) for address in gateway_and_members][1:]


def image_to_run() -> str:
    """That of `ZKWIRE_TEST_IMAGE`, or the official one."""
    return os.environ.get("ZKWIRE_TEST_IMAGE", IMAGE)


def find_docker() -> DockerBackend:
    """The image of `ZKWIRE_TEST_IMAGE`, if an engine answers and has it or can pull it."""
    # The reaper is a container of another image, which need not be there, and it outlives the
    # tests; the servers here are stopped by those who started them.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    image = image_to_run()
    with warnings.catch_warnings():
        # Where no engine answers, the library leaves the socket it has tried to the collector.
        warnings.simplefilter("ignore", ResourceWarning)
        reason = _why_not(image)
        gc.collect()
    if reason:
        raise NoBackendError(reason)
    return DockerBackend(image)


def _why_not(image: str) -> str | None:
    """What keeps the image from being run; None if nothing does."""
    try:
        client = DockerClient(timeout=ENGINE_SECONDS).client
        client.ping()
    except (DockerException, OSError) as error:
        return f"no Docker engine answers: {error}"
    try:
        with suppress(ImageNotFound):
            client.images.get(image)
            return None
        client.images.pull(image)
    except (DockerException, OSError) as error:
        return f"no image {image}: {error}"
    finally:
        client.close()
    return None
