"""A program that knows nothing of zkwire, with 2,000 changes in flight when its socket is cut.

    python3 -m tests.interop.kazoo_programs.in_flight

Each change must be answered, or end in NotSent or OutcomeUnknown, and the server must agree: what
was answered is done, what was not sent is not, and of what is open the first ones are done and the
later ones are not, as they were sent in order.  The program's DataWatch must go on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.check.environment import ROOT
from tests.support.installed_servers import find_installed
from zkwire import Client
from zkwire.testing import FaultProxy
from zkwire.testing.proxy import rst_after

COUNT = 2000
SECONDS = 120
CUT_AT = 150
PROGRAM = f"""
import json, sys, threading
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

client = KazooClient(sys.argv[1])
client.start()
for number in range({COUNT}):
    client.create(f"/n{{number}}", b"old")
seen, changed = [], threading.Event()

@client.DataWatch("/watched")
def watch(data, stat):
    seen.append(data)
    if data == b"after":
        changed.set()

results = [client.set_async(f"/n{{number}}", b"new" * 700) for number in range({COUNT})]
outcomes = []
for result in results:
    try:
        result.get(timeout={SECONDS})
        outcomes.append(["answered", False])
    except ConnectionLoss as error:
        outcomes.append([type(error).__name__, error.maybe_applied])
client.retry(client.create, "/watched", b"after")
watching = changed.wait({SECONDS})
client.stop()
json.dump([outcomes, watching], sys.stdout)
"""
EXPECTED = {"answered": False, "NotSent": False, "OutcomeUnknown": True}
"""What each outcome has as ``maybe_applied``."""


def run(hosts: str) -> tuple[list[tuple[str, bool]], bool]:
    """What the program says of each change, and whether its watch has gone on."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(PROGRAM)
        command = [sys.executable, "-m", "zkwire.kazoo", str(program), hosts]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=2 * SECONDS, check=True
        )
    outcomes, watching = json.loads(done.stdout)
    return [(how, maybe) for how, maybe in outcomes], watching


def disagreements(outcomes: list[tuple[str, bool]], values: list[bytes]) -> list[str]:
    """Where the server does not agree, or the outcome is none of the three."""
    found: list[str] = []
    later_is_open = False
    for number, ((how, maybe), value) in enumerate(zip(outcomes, values, strict=True)):
        if EXPECTED.get(how) is not maybe:
            found.append(f"{number}: {how}, maybe_applied {maybe}")
        applied = value != b"old"
        if how == "OutcomeUnknown":
            if applied and later_is_open:
                found.append(f"{number}: applied, and one before it is not")
            later_is_open = later_is_open or not applied
        elif applied is not (how == "answered"):
            found.append(f"{number}: {how}, and the server has {value!r}")
    return found


def main() -> int:
    with find_installed().standalone() as server, FaultProxy(server.hosts) as proxy:
        proxy.on("set_data", nth=CUT_AT, action=rst_after)
        outcomes, watching = run(proxy.hosts)
        with Client(server.hosts) as client:
            values = [client.get_data(f"/n{number}").data for number in range(COUNT)]
    wrong = disagreements(outcomes, values)
    counts = Counter(how for how, _ in outcomes)
    applied = COUNT - values.count(b"old")
    print(f"{dict(counts)}, {applied} applied; the watch goes on: {watching}; wrong: {wrong}")
    proves = counts["OutcomeUnknown"] > 0 and len(outcomes) == COUNT
    return 0 if proves and watching and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
