"""What a single command loads: its start is most of its time, and each module is paid for."""

from __future__ import annotations

import subprocess
import sys

from tests.support.command import ROOT
from zkwire.testing import Server

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
    command = [sys.executable, "-I", "-S", "-B", "-c", PROBE, str(ROOT), server, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
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
