"""kazoo's client on zkwire with kazoo's handlers for gevent and eventlet, under their patches.

Each is a program of its own, since nothing takes such a patch back.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zkwire.testing import Server

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 60.0

PATCH = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "eventlet": "import eventlet; eventlet.monkey_patch()",
}
HANDLER = {
    "gevent": "from kazoo.handlers.gevent import SequentialGeventHandler as Handler",
    "eventlet": "from kazoo.handlers.eventlet import SequentialEventletHandler as Handler",
}
USE = """
import queue, sys
from kazoo.exceptions import NoNodeError
from zkwire.kazoo import KazooClient

def first_of(states, *wanted):
    while (state := states.get(timeout=10)) not in wanted:
        pass
    return state

client = KazooClient(sys.argv[1], handler=Handler(), timeout=4)
client.start(10)
client.create("/node", b"0", ephemeral=True)
events, states, linked = queue.Queue(), queue.Queue(), queue.Queue()
client.get("/node", watch=events.put)
client.set("/node", b"1")
assert events.get(timeout=10).type == "CHANGED"

def work():
    for n in range(20):
        client.set("/node", b"2")
    with client.Lock("/lock"):
        pass

for task in [client.handler.spawn(work) for _ in range(4)]:
    task.join()
assert {r.get()[0] for r in [client.get_async("/node") for _ in range(500)]} == {b"2"}
client.get_async("/nothing").rawlink(linked.put)
assert isinstance(linked.get(timeout=10).exception, NoNodeError)
client.add_listener(states.put)
client._connection._socket.close()
assert first_of(states, "CONNECTED", "LOST") == "CONNECTED"
assert client.get("/node")[0] == b"2"
client.restart()
assert first_of(states, "LOST") and first_of(states, "CONNECTED")
assert client.exists("/node") is None
client.stop()
client.close()
print("done")
"""


def run(program: str, hosts: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", program, hosts]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LONGEST, check=False, cwd=ROOT
    )


@pytest.mark.parametrize("library", PATCH)
def test_the_handler_works_under_the_patch(library: str) -> None:
    pytest.importorskip(library)
    with Server() as server:
        done = run(f"{PATCH[library]}\n{HANDLER[library]}\n{USE}", server.hosts)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("library", PATCH)
def test_without_the_patch_it_is_refused_by_name(library: str) -> None:
    pytest.importorskip(library)
    with Server() as server:
        done = run(f"{HANDLER[library]}\n{USE}", server.hosts)
    assert f"the handler is for {library}, and {library} has not patched threading" in done.stderr
