"""The shell: each command on a server, by one line, by many, and at a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.shell.test_demo import ROOT, zkwire
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import Client

SECONDS = 60.0


def typed(server: ZooKeeperServer, *lines: str) -> tuple[int, list[str]]:
    """The exit status of a shell that reads these lines, and what it prints."""
    done = zkwire("shell", "--server", server.hosts, typed="\n".join(lines))
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_a_life_of_nodes(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    status, said = typed(
        zookeeper,
        f"create {fresh_path} hello  # a comment",
        "",
        f"create -e -s {fresh_path}/n-",
        f"create -c {fresh_path}/container",
        f"ls {fresh_path}",
        f"get {fresh_path}",
        f"set -v 0 {fresh_path} 'two words'",
        f"get {fresh_path}",
        f"sync {fresh_path}",
        f"delete {fresh_path}/container",
        f"deleteall {fresh_path}",
        f"stat {fresh_path}",
        "quit",
        "this is not read any more",
    )
    assert said == [
        f"created {fresh_path}",
        f"created {fresh_path}/n-0000000000",
        f"created {fresh_path}/container",
        "container",
        "n-0000000000",
        "hello",
        "version 1",
        "two words",
        f"there is no {fresh_path}",
    ]
    assert status == 0


def test_a_stat(zookeeper: ZooKeeperServer, observer: Client, fresh_path: str) -> None:
    observer.create(fresh_path, b"abc")
    data, stat = observer.get_data(fresh_path)
    shown = {
        command: zkwire("shell", "--server", zookeeper.hosts, *command.split(), fresh_path)
        for command in ("stat", "get -s", "ls -s")
    }
    assert f"czxid = {stat.czxid:#x}\n" in shown["stat"].stdout
    assert "data_length = 3\n" in shown["stat"].stdout
    assert shown["get -s"].stdout == data.decode() + "\n" + shown["stat"].stdout
    assert shown["ls -s"].stdout == shown["stat"].stdout


def test_watches_are_told(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    _, said = typed(
        zookeeper,
        f"stat -w {fresh_path}",
        f"create {fresh_path}",
        f"get -w {fresh_path}",
        f"ls -w {fresh_path}",
        f"create {fresh_path}/a",
        f"set {fresh_path} x",
        f"deleteall {fresh_path}",
    )
    told = [line for line in said if line.startswith("WATCH")]
    assert told == [
        f"WATCH NODE_CREATED {fresh_path}",
        f"WATCH NODE_CHILDREN_CHANGED {fresh_path}",
        f"WATCH NODE_DATA_CHANGED {fresh_path}",
    ]


def test_one_command_waits_for_its_watch(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str
) -> None:
    command = [sys.executable, "-m", "zkwire", "shell", "--server", zookeeper.hosts]
    with subprocess.Popen(
        [*command, "stat", "-w", fresh_path], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"there is no {fresh_path}\n"
        observer.create(fresh_path)
        assert process.stdout.read() == f"WATCH NODE_CREATED {fresh_path}\n"
        assert process.wait(SECONDS) == 0


def test_what_goes_wrong_is_said_and_the_next_line_is_read(
    zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    status, said = typed(
        zookeeper,
        f"get {fresh_path}",
        "get",
        "fly /",
        'get "/a',
        "get relative",
        "delete -v old /a",
        f"create {fresh_path} here",
        f"get {fresh_path}",
    )
    text = "\n".join(said)
    for what in ("NoNodeError", "required: path", "invalid choice: 'fly'", "No closing quotation",
                 "start with '/'", "invalid int value"):  # fmt: skip
        assert what in text
    assert said[-1] == "here"
    assert status == 1


@pytest.mark.parametrize("words", [["get", "/nowhere"], ["fly", "/"], ["--", "get"]])
def test_what_is_wrong_with_the_only_command_is_no_output(
    zookeeper: ZooKeeperServer, words: list[str]
) -> None:
    done = zkwire("shell", "--server", zookeeper.hosts, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.match("NoNodeError: |ValueError: .*(invalid choice: 'fly'|: path)", done.stderr)


def test_the_only_command_may_be_quit_or_stand_behind_two_dashes(
    zookeeper: ZooKeeperServer,
) -> None:
    for words, said in ((["quit"], ""), (["--", "ls", "/zookeeper"], "config\nquota\n")):
        done = zkwire("shell", "--server", zookeeper.hosts, *words)
        assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_help(zookeeper: ZooKeeperServer) -> None:
    status, said = typed(zookeeper, "help", "create -h")
    assert status == 0
    for command in ("ls", "get", "stat", "create", "set", "delete", "deleteall", "sync", "quit"):
        assert any(re.match(rf" +{command}\b", line) for line in said)
    assert any("-e" in line and "ends" in line for line in said)


def test_what_comes_from_others_does_not_control_the_terminal(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str
) -> None:
    observer.create(fresh_path, b"\x1b[2J\xff\x07ok\n")
    shown = zkwire("shell", "--server", zookeeper.hosts, "get", fresh_path).stdout
    assert shown == "\\x1b[2J\\xff\\x07ok\n\n"


def test_a_trace_shows_the_frames(zookeeper: ZooKeeperServer) -> None:
    shown = zkwire("shell", "--server", zookeeper.hosts, "--trace", "ls", "/").stdout
    assert re.search(r"-> get_children2? xid 1 /", shown)
    assert re.search(r"<- get_children2? xid 1 / zxid 0x", shown)


def test_without_a_server() -> None:
    done = zkwire("shell", "--server", "127.0.0.1:1", "ls", "/")
    assert done.returncode == 3
    assert "Unreachable" in done.stderr


@contextmanager
def at_a_terminal(server: ZooKeeperServer) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    above, below = pty.openpty()
    command = [sys.executable, "-m", "zkwire", "shell", "--server", server.hosts]
    try:
        with subprocess.Popen(
            command, cwd=ROOT, stdin=below, stdout=below, stderr=below, start_new_session=True
        ) as process:
            os.close(below)
            try:
                yield above, process
            finally:
                process.kill()
    finally:
        os.close(above)


def test_at_a_terminal(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    """There is a prompt, Ctrl-C does no harm, and the end of the input is the end."""
    with at_a_terminal(zookeeper) as (terminal, process):
        shown = b""

        def until(text: bytes, again: Callable[[], object] | None = None) -> None:
            nonlocal shown
            while text not in shown:
                if select.select([terminal], [], [], 1.0 if again else SECONDS)[0]:
                    shown += os.read(terminal, 1000)
                else:
                    assert again is not None, shown
                    again()
            shown = shown.partition(text)[2]

        def interrupt() -> None:
            """CPython can miss one that comes between two keys."""
            process.send_signal(signal.SIGINT)

        until(b"zk> ")
        os.write(terminal, f"create {fresh_path} x\n".encode())
        until(f"created {fresh_path}".encode())
        until(b"zk> ")
        os.write(terminal, b"get ")
        until(b"get ")
        interrupt()
        until(b"zk> ", interrupt)
        os.write(terminal, f"get {fresh_path}\n".encode())
        until(b"x\r\n")
        until(b"zk> ")
        os.write(terminal, b"\x04")
        assert poll("it ends", process.poll, SECONDS) == 0
