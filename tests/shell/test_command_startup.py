"""What a single command loads: its start is most of its time, and each module is paid for."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.shell.test_demo import ROOT
from zkwire.testing import Server

PROBE = """
import json, sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
from zkwire.cli.main import main
status = main(["--server", sys.argv[2], *sys.argv[3:]] if sys.argv[2] else sys.argv[3:])
print(json.dumps([status, sorted(set(sys.modules) - before)]))
"""
NEEDLESS = {
    *("asyncio", "bz2", "concurrent.futures", "dataclasses", "encodings.idna", "inspect", "json"),
    *("logging", "lzma", "multiprocessing", "shutil", "signal", "ssl", "subprocess", "typing"),
    *("zkwire.testing", "zkwire.aio", "zkwire.cli.nodes.writing", "zkwire.cli.shell"),
    *("zkwire.blocking.locks", "zkwire.net.tls"),
}


def loaded_by(server: str, *words: str) -> set[str]:
    """The modules that a Python without site packages loads for this command."""
    command = [sys.executable, "-I", "-S", "-B", "-c", PROBE, str(ROOT), server, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    status, loaded = json.loads(done.stdout.splitlines()[-1])
    assert (status, done.stderr) == (0, "")
    return set(loaded)


def test_a_command_loads_what_it_needs_and_no_more(server: Server) -> None:
    loaded = loaded_by(server.hosts, "ls", "/")
    assert NEEDLESS.isdisjoint(loaded), NEEDLESS & loaded
    own = {name for name in loaded if name.startswith("zkwire")}
    assert "zkwire.blocking.client" in own
    assert len(own) <= 82, len(own)
    assert len(loaded - own) <= 70, sorted(loaded - own)


def test_a_help_loads_no_client() -> None:
    loaded = loaded_by("", "ls", "--help")
    assert "zkwire.cli.nodes.listing" in loaded
    assert loaded.isdisjoint({"socket", "threading", "shutil", "zkwire.blocking", "zkwire.session"})
