"""The page about forked workers: its program, under gunicorn and in a pool as Celery has one."""

from __future__ import annotations

import multiprocessing
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.shell.test_client_threads import forks
from tests.support.snippets import ROOT, blocks
from zkwire import Client
from zkwire.testing import Server

SECONDS = 30.0

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def program(hosts: str) -> str:
    (block,) = blocks("how-to/forks", hosts)
    return block


def ask(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), SECONDS) as asking:
        asking.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: asking.recv(4096), b"")).decode()


@forks
def test_each_worker_of_gunicorn_has_a_session(server: Server, tmp_path: Path) -> None:
    """The parent has used its client before the fork."""
    pytest.importorskip("gunicorn")
    used = "\nclient.connect()\n"
    (tmp_path / "application.py").write_text(program(server.hosts) + used, encoding="utf-8")
    command = [sys.executable, "-m", "gunicorn", "--preload", "-w", "2", "-b", "127.0.0.1:0"]
    command += ["--pythonpath", f"{ROOT},{tmp_path}", "application"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as gunicorn:
        try:
            assert gunicorn.stderr is not None
            port = next(
                int(found[1])
                for line in gunicorn.stderr
                if (found := re.search(r"Listening at: http://127\.0\.0\.1:(\d+)", line))
            )
            parent = {f"session {each.session_id} has" for each in server.sessions}
            answers = [ask(port) for _ in range(4)]
        finally:
            gunicorn.terminate()
            gunicorn.communicate(timeout=SECONDS)
    assert len(parent) == 1
    for answer in answers:
        assert "has ['zookeeper']" in answer
        assert not any(session in answer for session in parent)


_names: dict[str, Any] = {}


def session_of_worker(_: int) -> int:
    client: Client = _names["client"]
    client.get_data("/")
    return client.session_id


@forks
def test_each_worker_of_a_pool_has_a_session(server: Server) -> None:
    registered: list[Any] = []
    _names.update(__name__="application", registered=registered)
    registers = "os.register_at_fork(after_in_child=connect)"
    exec(program(server.hosts).replace(registers, "registered.append(connect)"), _names)
    # Once registered it is so for the life of this process, so it does nothing after this test.
    os.register_at_fork(after_in_child=lambda: [connect() for connect in registered])
    parent: Client = _names["client"]
    try:
        parent.get_data("/")
        with multiprocessing.get_context("fork").Pool(2) as pool:
            sessions = set(pool.map(session_of_worker, range(8), chunksize=1))
            pool.close()
            pool.join()
        assert sessions
        assert parent.session_id not in sessions
        assert parent.get_data("/").data == b""
    finally:
        registered.clear()
        parent.close()
        _names.clear()
