"""``import zkwire`` is cheap and does nothing: no thread, no socket, no descriptor, little loaded.

Each import happens in a Python of its own, without site packages and environment, so that nothing
but zkwire can be the cause of what is seen.  At the end: how what was made is wound up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from zkwire.net import lifetime
from zkwire.net.lifetime import clean_up_at_exit

ROOT = Path(__file__).resolve().parents[2]

# None of them is needed before a client is made, and some of them never.
# No record is compiled before its first use: thus no linecache.
NOT_LOADED = {
    *("asyncio", "concurrent.futures", "contextlib", "dataclasses", "hashlib", "inspect"),
    *("linecache", "logging", "multiprocessing", "random", "selectors", "socket", "ssl"),
    *("subprocess", "threading", "typing", "zkwire.cli", "zkwire.blocking.locks"),
    *("zkwire.net.sasl", "zkwire.testing", "zkwire.session.trace"),
}

PROBE = """
import json, sys

def descriptors():
    import os
    if not os.path.isdir("/proc/self/fd"):
        return []
    return [os.readlink(f"/proc/self/fd/{n}") for n in sorted(os.listdir("/proc/self/fd"), key=int)
            if os.path.exists(f"/proc/self/fd/{n}")]

sys.path.insert(0, sys.argv[1])
import _thread
done = []

def noted(name, start):
    return lambda *args, **named: done.append(name) or start(*args, **named)

for name in ("start_new_thread", "start_joinable_thread"):  # no audit event before Python 3.12
    if hasattr(_thread, name):
        setattr(_thread, name, noted(name, getattr(_thread, name)))
quiet = ("import", "compile", "exec", "marshal.", "object.", "_thread.", "open", "os.listdir",
         "function.__new__", "sys._getframe")
sys.addaudithook(lambda event, args: event.startswith(quiet) or done.append(event))
loaded, before = set(sys.modules), descriptors()
done.clear()
exec(sys.argv[2])
done, deeds = [], done
print(json.dumps({
    "loaded": sorted(set(sys.modules) - loaded),
    "descriptors": sorted(set(descriptors()) - set(before)),
    "deeds": deeds,
}))
"""


def python(*arguments: str) -> str:
    """What a Python of its own prints; it complains of nothing."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout


def run(statement: str) -> dict[str, list[str]]:
    """What executing the statement has done: ``loaded``, ``descriptors``, ``deeds``."""
    probe = ["-I", "-S", "-B", "-W", "error", "-c", PROBE, str(ROOT), statement]
    seen: dict[str, list[str]] = json.loads(python(*probe))
    return seen


def test_an_import_does_nothing_and_loads_little() -> None:
    imported = run("from zkwire import Client")
    assert "zkwire.session.session" in imported["loaded"]
    assert imported["deeds"] == imported["descriptors"] == []
    assert NOT_LOADED.isdisjoint(imported["loaded"])
    # Of Python's own, what a plain `import enum, functools, struct, contextlib` loads, about.
    foreign = [name for name in imported["loaded"] if not name.startswith("zkwire")]
    assert len(foreign) < 40, foreign


def test_each_name_is_loaded_when_it_is_first_asked_for() -> None:
    loaded = run("import zkwire")["loaded"]
    assert [name for name in loaded if name.startswith("zkwire")] == ["zkwire"]
    loaded = run("import zkwire; zkwire.Lock")["loaded"]
    assert "zkwire.recipes.sequential" in loaded
    late = {"asyncio", "hashlib", "zkwire.net.sasl", "zkwire.session.trace"}
    assert late.isdisjoint(loaded)


def test_threads_may_ask_for_late_names_at_the_same_time() -> None:
    """Each in another order: whoever comes first loads a module, the others wait for all of it."""
    program = """
import threading, zkwire
names = sorted(zkwire.__all__)
start = threading.Barrier(8)
seen = []

def ask(turn):
    start.wait()
    seen.append({name: getattr(zkwire, name) for name in names[turn:] + names[:turn]})

threads = [threading.Thread(target=ask, args=(3 * turn,)) for turn in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert all(each == {name: vars(zkwire)[name] for name in names} for each in seen)
print(len(seen))
"""
    assert python("-c", program) == "8\n"


def test_making_a_client_starts_nothing() -> None:
    seen = run("import zkwire; client = zkwire.Client('127.0.0.1:1')")
    started = {"socket.__new__", "socket.connect", "start_new_thread", "start_joinable_thread"}
    assert started.isdisjoint(seen["deeds"])
    assert seen["descriptors"] == []
    assert {"asyncio", "ssl", "logging", "zkwire.testing"}.isdisjoint(seen["loaded"])


# --- the end of the interpreter, while daemon threads still make clients --------------------------


class Remembered:
    """Something to clean up: it counts how often it was wound up."""

    def __init__(self) -> None:
        self.times = 0
        clean_up_at_exit(self)

    def wind_up(self, seconds: float) -> None:
        self.times += 1


def test_a_thread_that_makes_clients_does_not_keep_the_others_from_being_wound_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifetime, "_unfinished", type(lifetime._unfinished)())
    kept = [Remembered() for _ in range(500)]
    first = kept[:]
    done = threading.Event()

    def make() -> None:
        while not done.is_set() and len(kept) < 50_000:
            kept.append(Remembered())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=make)
    thread.start()
    try:
        for _ in range(20):
            lifetime._wind_up()
    finally:
        done.set()
        sys.setswitchinterval(interval)
        thread.join()
    assert {each.times for each in first} == {20}
