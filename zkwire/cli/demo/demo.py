"""``zkwire demo``: it shows and checks what the locks do, and needs no server.

The demo checks everything that it shows; its exit status is 0 only if all checks have passed.
After Ctrl-C it removes its nodes and says what is left.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from zkwire import Client, NotEmptyError, ZooKeeperError
from zkwire.cli.command import Command
from zkwire.cli.demo import scenes, writers
from zkwire.cli.demo.processes import Processes
from zkwire.cli.demo.screen import Screen
from zkwire.cli.exits import status_of
from zkwire.cli.interrupts import ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from zkwire.cli.context import Context


def _arguments(_: ArgumentParser) -> None:
    """None but those of all commands."""


def _demo(_: Context, asked: Namespace) -> int:
    """Run all scenes on ``--server``, or on an embedded one."""
    server: str | None = asked.server
    screen, processes = Screen(), Processes()
    root = f"/zkwire-demo-{os.getpid()}"
    gc.disable()  # Python drops the KeyboardInterrupt of a Ctrl-C that comes while it collects
    try:
        with ending():
            try:
                with _server(screen, server) as hosts:
                    return _play(screen, processes, hosts, root)
            except KeyboardInterrupt as interrupt:
                left = _put_away(processes, server, root)  # first: the output may wait for a reader
                screen.heading("Interrupted")
                screen.say(left)
                return status_of(interrupt)
            except OSError:  # of the output, as a rule: nothing can be shown any more
                _put_away(processes, server, root)
                raise
    finally:
        gc.enable()


def _play(screen: Screen, processes: Processes, hosts: str, root: str) -> int:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        with Client(hosts) as client:
            client.create(root)
        try:
            writers.scene(screen, processes, hosts, root, Path(folder))
            scenes.lost_create(screen, hosts, root)
            scenes.stopped_holder(screen, processes, hosts, root)
            scenes.wake_ups(screen, hosts, root)
        except (ZooKeeperError, RuntimeError) as error:
            screen.check(f"no error: {type(error).__name__}: {error}", False)
        finally:
            processes.end()  # before the end of the folder in which they write
        screen.heading("Summary")
        with Client(hosts) as client:
            screen.check("nothing is left on the server", _remove(client, root))
    failed = len(screen.failures)
    screen.say(
        f"{screen.checks - failed} of {screen.checks} checks passed, "
        f"{time.monotonic() - started:.1f} seconds."
    )
    for check in screen.failures:
        screen.say(screen.paint(f"failed: {check}", "red"))
    return 1 if failed else 0


def _put_away(processes: Processes, server: str | None, root: str) -> str:
    """Remove the demo's nodes; returns what is left, in words."""
    left = f"{root} and the nodes below it may be left on the server."
    try:
        processes.end()
        if server is not None:
            with Client(server) as client:
                client.sync(root)
                client.delete_tree(root)
        left = "All that the demo created is removed: nothing is left on the server."
    except ZooKeeperError as error:
        left = f"{type(error).__name__}: {error}. {left}"
    except KeyboardInterrupt:
        pass
    return left


def _server(screen: Screen, server: str | None) -> AbstractContextManager[str]:
    if server is not None:
        screen.say(f"On the ZooKeeper server at {server}.")
        return nullcontext(server)
    from zkwire.testing.server.server import Server

    screen.say("On zkwire's own in-memory server, which is for tests and demos only.")
    return _Embedded(Server())


class _Embedded:
    """A context that runs an embedded server and gives its hosts."""

    def __init__(self, server: object) -> None:
        self._server = server

    def __enter__(self) -> str:
        return self._server.__enter__().hosts  # type: ignore[attr-defined]

    def __exit__(self, *args: object) -> None:
        self._server.__exit__(*args)  # type: ignore[attr-defined]


def _remove(client: Client, path: str) -> bool:
    """Delete a path and the nodes below it, without ephemeral ones; whether it is gone."""
    client.sync(path)
    for name in client.get_children(path):
        stat = client.exists(f"{path}/{name}")
        if stat is not None and not stat.ephemeral_owner:
            _remove(client, f"{path}/{name}")
    try:
        client.delete(path)
    except NotEmptyError:
        return False
    return True


def _words(count: int) -> Callable[[ArgumentParser], None]:
    def arguments(parser: ArgumentParser) -> None:
        parser.add_argument("parts", nargs=count)

    return arguments


COMMANDS = {
    "demo": Command(
        _demo,
        _arguments,
        examples=(
            "zkwire demo                          # on an in-memory server of its own",
            "zkwire demo --server 127.0.0.1:2181  # on this one; it removes what it creates",
        ),
        details="It checks all that it shows, and removes what it creates.",
        in_shell=False,
    ),
    # processes of the demo
    "writer": Command(
        lambda _, asked: writers.writer(*asked.parts), _words(5), examples=(), in_shell=False
    ),
    "holder": Command(
        lambda _, asked: scenes.holder(*asked.parts), _words(2), examples=(), in_shell=False
    ),
}
