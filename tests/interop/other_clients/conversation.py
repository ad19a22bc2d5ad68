"""One program of another client on one server: what it says, line by line.

Each line that a program writes is ``TASK: CALL = RESULT``, but for requests to this end, which acts
and then answers with an empty line:

``! cut``           end the connections, and let the client come back
``! cut PATH``      the same; meanwhile another client writes to this node
``! expire PATH``   keep the client away until the server has expired the session of this node

The connect string leads through a proxy of this end's.  A program that is not done in time is
killed, and what it has said ends with a line that tells so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from zkwire import Client, Watch
from zkwire.testing import FaultProxy

LIMIT = 120.0
"""Seconds for one program; each is done in 20 on a machine that has nothing else to do."""
EXPIRY_SECONDS = 60.0


def transcript(command: Sequence[str], hosts: str, log: Path, limit: float = LIMIT) -> list[str]:
    """What a program says on the server at `hosts`; its standard error goes to the file `log`."""
    with log.open("wb") as errors, FaultProxy(hosts) as proxy:
        process = subprocess.Popen(
            [*command, proxy.hosts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            process_group=0,
        )
        timer = threading.Timer(limit, kill, [process])
        timer.start()
        try:
            lines = list(_converse(process, proxy, hosts))
            status = process.wait()
        finally:
            timer.cancel()
            kill(process)
            process.wait()
    if status:
        how = f"within {limit:g} s" if status < 0 else f"but with status {status}"
        lines.append(f"end: not done {how}; see {log.name}")
    return lines


def kill(process: subprocess.Popen[str]) -> None:
    """End a program and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _converse(process: subprocess.Popen[str], proxy: FaultProxy, hosts: str) -> list[str]:
    assert process.stdin is not None
    assert process.stdout is not None
    said: list[str] = []
    with process.stdin, process.stdout:
        for line in process.stdout:
            if not line.startswith("! "):
                said.append(line.rstrip("\n"))
                continue
            action, *paths = line.split()[1:]
            act(action, paths, proxy, hosts)
            with suppress(BrokenPipeError):
                process.stdin.write("\n")
                process.stdin.flush()
    return said


def act(action: str, paths: Sequence[str], proxy: FaultProxy, hosts: str) -> None:
    """Do what a program has asked for."""
    with Client(hosts) as client:
        for path in paths:
            client.exists(path)  # it is connected, and the other is away for a moment only
        proxy.refuse(True)
        proxy.cut_all()
        for path in paths:
            if action == "cut":
                client.set_data(path, b"from elsewhere")
            else:
                wait_for_deletion(client, path)
        proxy.refuse(False)


def wait_for_deletion(client: Client, path: str) -> None:
    """Return when the node is gone; TimeoutError if it stays."""
    watch = Watch()
    if client.exists(path, watch=watch) is not None:
        watch.wait(EXPIRY_SECONDS)
