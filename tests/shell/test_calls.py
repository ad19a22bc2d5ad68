"""What an operation costs (`benchmarks/counts.json`), and which files run (docs/design.md)."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from benchmarks import gate
from benchmarks.gate import VERSION, WORKS
from benchmarks.sides import SIDES
from tests.support.snippets import ROOT, run_python
from zkwire import AsyncClient, Client, OutcomeUnknownError, SequentialLock, State, Watch
from zkwire.testing import Server
from zkwire.testing.proxy import cut_before as cut

# --- zkwire's own counts --------------------------------------------------------------------------


GROWTH = 1.02
OTHER_VERSIONS = 1.2
"""Other versions of Python have other instructions."""
MOST_RUNS = 40
KEPT: dict[str, dict[str, float]] = json.loads(gate.PATH.read_text())


def grown(work: str) -> dict[str, tuple[float, float]]:
    """The counts that no run keeps to: the least that was seen, and what is allowed."""
    margin = GROWTH if f"{sys.version_info[0]}.{sys.version_info[1]}" == VERSION else OTHER_VERSIONS
    allowed = {name: count * margin for name, count in KEPT[work].items()}
    with gate.side() as (made, steps):
        found = gate.run(made, steps, work)
        for _ in range(MOST_RUNS):
            found = gate.least([found, gate.run(made, steps, work)])
            if all(found[name] <= allowed[name] for name in found):
                break
    return {name: (found[name], most) for name, most in allowed.items() if found[name] > most}


@pytest.mark.parametrize("work", WORKS)
def test_an_operation_takes_no_more_steps_than_it_did(work: str) -> None:
    """Else say why in the commit, and: python3 -m benchmarks.gate --write."""
    assert grown(work) == {}


INLINE = 30
"""So many attributes of an object CPython finds without a look-up in a dict."""


def test_what_requests_need_is_found_at_once() -> None:
    """Attributes beyond that belong into the slots of their class."""
    with Server() as server, Client(server.hosts) as client:
        client.get_data("/")
        assert len(vars(client._driver)) <= INLINE
        assert not hasattr(client._session, "__dict__")


# --- calls of the kernel -------------------------------------------------------------------------

KERNEL = (
    *("select", "poll", "epoll", "send", "recv", "write", "read", "acquire", "wait", "sleep"),
    "deque.extend",  # in which a connection sends, or receives
)
"""Of what the calls into C are called that may block or wake another thread."""

GETS, ATTEMPTS = 50, 5


@contextmanager
def profiled(profile: Callable[[Any, str, Any], None]) -> Iterator[None]:
    """Have this thread's calls profiled meanwhile."""
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)


def kernel_calls(work: Callable[[], object]) -> Counter[str]:
    """The calls of this thread that may block or wake somebody, by name."""
    calls: Counter[str] = Counter()

    def profile(_frame: object, event: str, called: Any) -> None:
        if event == "c_call" and any(each in called.__qualname__ for each in KERNEL):
            calls[called.__name__] += 1

    with profiled(profile):
        work()
    return calls


def test_a_lone_get_is_one_send_one_wait_and_one_receive(server: Server) -> None:
    """No thread is woken, no lock is slept on.

    At a moment when the background thread reads for once, a call does sleep on a lock.
    """
    with closing(SIDES["zkwire"](server.hosts)) as made:
        attempts = [kernel_calls(lambda: made.work("get")(GETS)) for _ in range(ATTEMPTS)]
    assert {"extend": 2 * GETS, "poll": GETS} in attempts, attempts


# --- the four ways of docs/design.md -------------------------------------------------------------


@contextmanager
def on_way(way: str) -> Iterator[None]:
    """This thread runs the files of a way, each for the first time in the order of the page."""
    text = (ROOT / "docs" / "design.md").read_text()
    part = text.partition(f"<!-- begin: {way} -->")[2].partition(f"<!-- end: {way} -->")[0]
    named, run = re.findall(r"`(\w+/\w+\.py)`", part), dict[str, None]()
    with profiled(lambda frame, *_: run.setdefault(frame.f_code.co_filename)):
        yield
    files = [file.rpartition("/zkwire/")[2] for file in run]
    assert named == [file for file in files if file in named] != []


async def test_the_files_of_each_way_run_in_the_order_of_the_page(server: Server) -> None:
    with Client(server.hosts) as client, SequentialLock(client, "/lock") as lock:
        lock.release()
        with on_way("request"):
            client.get_data("/")
        with on_way("lock"):
            lock.acquire()
        async with AsyncClient(server.hosts) as other:
            watch = Watch()
            await other.exists("/new", watch=watch)
            seen = asyncio.ensure_future(watch)
            await asyncio.sleep(0)  # it waits
            with on_way("event"):
                await asyncio.gather(asyncio.to_thread(client.create, "/new"), seen)
            server.on("get_data", action=cut)
            lost = asyncio.ensure_future(other.get_data("/"))
            await asyncio.sleep(0)
            with on_way("loss"):
                with pytest.raises(OutcomeUnknownError):
                    await lost
                await other.wait_for_state(State.CONNECTED)


PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
server, sys.argv[1:] = sys.argv[2], sys.argv[3:]
if server:
    sys.argv[1:1] = ["--server", server]
from zkwire.__main__ import run
status = run()
print(status, *sorted(set(sys.modules) - before))
"""
NEEDLESS = {
    *("asyncio", "bz2", "concurrent.futures", "dataclasses", "datetime"),
    *("encodings.idna", "importlib", "inspect", "json", "linecache"),
    *("logging", "lzma", "multiprocessing", "random", "shutil", "signal", "ssl"),
    *("subprocess", "tokenize"),
    *("zkwire.testing", "zkwire.aio", "zkwire.cli.nodes.writing", "zkwire.cli.shell"),
    *("zkwire.blocking.locks", "zkwire.net.tls", "zkwire.session.trace"),
}


def loaded_by(server: str, *words: str) -> set[str]:
    """The modules that a Python without site packages loads for this command."""
    done = run_python("-I", "-S", "-B", "-c", PROBE, ROOT, server, *words)
    status, *loaded = done.stdout.splitlines()[-1].split()
    assert (status, done.stderr) == ("0", "")
    return set(loaded)


def test_a_command_loads_what_it_needs_and_no_more(server: Server) -> None:
    loaded = loaded_by(server.hosts, "ls", "/")
    assert NEEDLESS.isdisjoint(loaded), NEEDLESS & loaded
    own = {name for name in loaded if name.startswith("zkwire")}
    assert "zkwire.blocking.client" in own
    assert len(own) <= 90, len(own)
    # With `import argparse, socket` alone these are 38; it may be 2.5 times as many.
    assert len(loaded - own) <= 95, sorted(loaded - own)


def test_a_help_loads_no_client() -> None:
    loaded = loaded_by("", "ls", "--help")
    assert "zkwire.cli.nodes.reading" in loaded
    assert loaded.isdisjoint({"socket", "threading", "shutil", "zkwire.blocking", "zkwire.session"})
