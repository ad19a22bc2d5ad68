"""Clients under the patches of gevent, made or used before or with gunicorn, and of eventlet.

Each test is a program of its own, since nothing takes such a patch back.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from zkwire.testing import Server

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 60.0

USE = """
import threading

def use(number):
    for _ in range(20):
        client.exists("/")
    watch = Watch()
    client.exists(f"/{number}", watch=watch)
    client.create(f"/{number}", ephemeral=True)
    assert watch.wait(10).path == f"/{number}"
    called = threading.Event()
    client.get_data(f"/{number}", watch=lambda _: called.set())
    client.set_data(f"/{number}", b"")
    assert called.wait(10)
    with SequentialLock(client, "/lock"):
        pass
    with again:
        inside.append(number)
        green.sleep(0.01)
        assert inside.pop() == number and not inside

inside = []
with green.Timeout(30):
    for task in [green.spawn(use, number) for number in range(3)]:
        (task.wait if hasattr(task, "wait") else task.get)()
    replies = [client.pipeline.get_data("/") for _ in range(500)]
    assert {reply.result().data for reply in replies} == {b""}
client.close()
print("done")
"""
MAKE = "client = Client({hosts!r}); again = ReentrantLock(client, '/again')\n"
PATCH = "from gevent import monkey; monkey.patch_all(); import gevent as green\n"
EVENTLET = "import eventlet as green; green.monkey_patch()\n"
IMPORT = "from zkwire import Client, ReentrantLock, SequentialLock, Watch\n"
ORDERS = {
    "patched first": PATCH + IMPORT + MAKE + USE,
    "imported before": IMPORT + PATCH + MAKE + USE,
    "made before": IMPORT + MAKE + PATCH + USE,
    "patched by eventlet": EVENTLET + IMPORT + MAKE + USE,
}


def run(program: str, server: Server) -> subprocess.CompletedProcess[str]:
    code = program.replace("{hosts!r}", repr(server.hosts))
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LONGEST, check=False, cwd=ROOT
    )


@pytest.mark.parametrize("order", ORDERS)
def test_hazard_A53_a_client_is_used_after_the_patch(server: Server, order: str) -> None:
    done = run(ORDERS[order], server)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


CALLS = [
    "client.exists('/')",
    "client.pipeline.exists('/')",
    "watch.wait()",
    "SequentialLock(client, '/lock').acquire()",
    "client.connect()",
    "client.wait_for_state(State.EXPIRED)",
]


def test_a_client_that_was_used_before_the_patch_refuses_and_names_the_cure(server: Server) -> None:
    program = f"""{IMPORT}
from zkwire import State
{MAKE}
watch = Watch()
client.exists("/", watch=watch)
{PATCH}
for call in {CALLS!r}:
    try:
        eval(call)
    except RuntimeError as error:
        assert "make the client after it" in str(error), error
        print("refused")
client.close()
"""
    done = run(program, server)
    assert done.stdout == "refused\n" * len(CALLS), done.stderr
    assert done.returncode == 0


APPLICATION = """
from zkwire import Client
client = Client({hosts!r})

def application(environ, start_response):
    children = client.get_children("/")
    start_response("200 OK", [("Content-Length", str(len(str(children))))])
    return [str(children).encode()]
"""


def test_a_client_of_a_module_that_gunicorn_loads_before_its_workers(
    server: Server, tmp_path: Path
) -> None:
    text = APPLICATION.replace("{hosts!r}", repr(server.hosts))
    (tmp_path / "application.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "gunicorn", "--preload", "-k", "gevent", "-b", "127.0.0.1:0"]
    command += ["--pythonpath", f"{ROOT},{tmp_path}", "application"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as gunicorn:
        try:
            assert gunicorn.stderr is not None
            listening = re.compile(r"Listening at: http://127\.0\.0\.1:(\d+)")
            port = next(
                int(found[1]) for line in gunicorn.stderr if (found := listening.search(line))
            )
            with socket.create_connection(("127.0.0.1", port), LONGEST) as asking:
                asking.sendall(b"GET / HTTP/1.0\r\n\r\n")
                answer = b"".join(iter(lambda: asking.recv(4096), b""))
            assert b"['zookeeper']" in answer
        finally:
            gunicorn.terminate()
            gunicorn.communicate(timeout=LONGEST)
