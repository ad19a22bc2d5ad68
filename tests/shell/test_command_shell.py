"""`zkwire shell`: scripts stop at the first failure; a terminal goes on, and tells what happens."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.support.command_lines import interpreter_of, recording
from tests.support.lock_helpers import PATIENCE
from tests.support.terminal import ROOT, ZKWIRE, Terminal
from zkwire import CREATOR_ALL_ACL, Client, digest_auth
from zkwire.cli.main import main
from zkwire.cli.shell import terminal as completing
from zkwire.cli.shell.terminal import Readline, completions
from zkwire.testing import Server
from zkwire.testing.proxy import faults

PROMPT = re.compile(r"127\.0\.0\.1:2181 CONNECTED (\S+)> (.*)")
SECRET = "me:hidden"


@pytest.mark.parametrize(
    ("words", "status"), [([], 1), (["-k"], 1), (["-c", "fly; ls /"], 2), (["-c", "get 'a"], 2)]
)
def test_a_script_stops_at_the_first_failure(
    server: Server,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    status: int,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("get /missing\nls /\nfly\n"))
    assert main(["-s", server.hosts, "shell", *words]) == status
    out, err = capsys.readouterr()
    goes_on = words == ["-k"]
    assert out == ("zookeeper\n" if goes_on else "")
    assert err.count("\n") == (2 if goes_on else 1)


def test_a_script_that_fails_tells_the_line(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "# data of two lines\ncreate /a 'b\nc'\nset /a 'd\ne'; delete /a 0; get /missing\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(script))
    assert main(["-s", server.hosts, "shell", "-k"]) == 1
    assert main(["-s", server.hosts, "shell", "-c", "get /a; delete /a 1\nget --json /a\n'"]) == 1
    out, err = capsys.readouterr()
    assert out == "/a\n1\nd\ne\n"
    version, missing, json_error = err.splitlines()
    assert version.startswith("zkwire: line 4: BadVersion: delete /a: ")
    assert missing.startswith("zkwire: line 4: NoNode: get_data /missing: ")
    assert json.loads(json_error)["line"] == 2


@pytest.mark.parametrize("words", [["txn"], ["shell"]])
def test_any_bytes_may_come_by_standard_input(server: Server, words: list[str]) -> None:
    with Client(server.hosts) as client:
        client.create("/a")
        subprocess.run(
            [sys.executable, "-m", "zkwire", "-s", server.hosts, *words],
            env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},  # as most locales have it
            cwd=ROOT, input=b"set /a \xff\n", check=True,
        )  # fmt: skip
        assert client.get_data("/a").data == b"\xff"


def test_a_terminal_without_an_output_is_a_script(server: Server) -> None:
    above, below = pty.openpty()
    os.write(above, b"get /missing\n")
    shell = [sys.executable, "-m", "zkwire", "-s", server.hosts, "shell"]
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *shell],
        cwd=ROOT, stdin=below, stderr=subprocess.PIPE, check=False, timeout=PATIENCE,
    )  # fmt: skip
    os.close(above)
    os.close(below)
    assert (ran.returncode, ran.stderr[:24]) == (1, b"zkwire: line 1: NoNode: ")


def test_redo_of_a_line_with_redo_is_refused(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = interpreter_of(server)
    shell.history += ["pwd", "pwd; redo"]
    lines = ("redo", "redo 2", "redo 9", "redo x", "redo 1")
    assert [shell.run_line(line) for line in lines] == [2, 2, 2, 2, 0]
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1]) == ("/\n", "pwd")


def test_the_help_of_a_command_of_zkcli(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-s", server.hosts, "shell", "-c", "help deleteall"]) == 0
    first, _, *rest = capsys.readouterr().out.splitlines()
    assert first == "deleteall is zkCli's name for: rm -r"
    assert any(line.startswith("  --dry-run ") for line in rest)


def test_the_tab_key_completes_the_line_up_to_the_cursor(server: Server) -> None:
    line = Mock(__doc__="", get_line_buffer=lambda: "removew /x", get_endidx=lambda: 5)
    aids = Readline(line, interpreter_of(server))
    assert [aids._complete("remov", number) for number in range(2)] == ["removewatches ", None]


def test_a_user_without_a_home_has_no_history(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    aids = Readline(Mock(__doc__=""), interpreter_of(server))
    with aids:
        pass


def test_a_place_that_is_not_there_is_not_gone_to(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-s", server.hosts, "shell", "-k", "-c", "cd /zookeeper; cd none; pwd"]) == 1
    out, err = capsys.readouterr()
    assert out == "/zookeeper\n"
    assert err.startswith("zkwire: NoNode: cd /zookeeper/none: ")


def test_the_recording_of_a_script(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    command, *lines = recording("script")
    script = re.fullmatch(r"\$ zkwire shell -c '(.*)'", command)
    assert script is not None
    assert main(["-s", server.hosts, "shell", "-c", script[1]]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_a_command_may_have_options_of_its_own(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    script = "ls --json /zookeeper; ls --count /zookeeper; -x; quit; get /missing"
    assert main(["-s", server.hosts, "shell", "-k", "-c", script]) == 2
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        '{"v": 1, "path": "/zookeeper", "children": ["config", "quota"]}',
        "2",
    ]
    assert err.count("\n") == 1


def test_credentials_from_a_file_hold_in_the_next_session(
    server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Client(server.hosts, auth=[digest_auth(*SECRET.split(":"))]) as client:
        client.create("/mine", b"x", acl=CREATOR_ALL_ACL)
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    script = f"addauth digest -f {file}; get /mine; reconnect; get /mine; close; get /mine"
    assert main(["-s", server.hosts, "shell", "-c", script]) == 1
    out, err = capsys.readouterr()
    assert out == "x\nx\n"
    assert err.startswith("zkwire: ClientClosed: ")


def test_watches_are_told_until_they_are_not(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    script = """addWatch -m PERSISTENT /a; create /a; create /a/b
        removewatches /a; set /a x
        addWatch /a; set /a x; set /a/b x; get -w /none"""
    assert main(["-s", server.hosts, "shell", "-c", script]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("watch: ")] == [
        "watch: created /a",
        "watch: children /a",
        "watch: removed: persistent watch /a",
        "watch: changed /a",
        "watch: changed /a/b",
    ]
    assert len([line for line in said if line.startswith("zkwire: line 3: NoNode: ")]) == 1
    once = "create /o; stat -w /o; ls -w /o; set /o x; create /o/p; set /o y"
    assert main(["-s", server.hosts, "shell", "-c", once]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == ["watch: changed /o", "watch: children /o"]
    silent = "printwatches off; printwatches; addWatch /a; set /a x"
    assert main(["-s", server.hosts, "shell", "-c", silent]) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[0], err) == ("off", "")


def test_what_comes_from_others_does_not_control_the_terminal(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(server.hosts) as client:
        client.create("/a", b"\x1b[2J\xff\x07ok")
    assert main(["-s", server.hosts, "shell", "-c", "get /a; cd '/\x1b[2J'"]) == 2
    out, err = capsys.readouterr()
    assert out == "\\x1b[2J\\xff\\x07ok\n"
    assert "\x1b" not in err


def test_completion_of_paths_ends_soon_and_never_raises(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completing, "SECONDS", 0.1)
    monkeypatch.setattr(completing, "MOST", 3)
    shell = interpreter_of(server)
    shell.connect()
    try:
        for name in ("b c", "b;d", "e", "f", "g"):
            shell.context.client.ensure_path(f"/a/{name}")
        shell.context.client.set_data("/a", b"")  # behind all of it, a slow machine has answered
        shell.run_line("cd /a")
        assert completions(shell, "get ../zoo") == ["../zookeeper"]
        assert completions(shell, "get b") == ["b\\ c", "b\\;d"]
        assert completions(shell, "get '/a/b ") == ["/a/b\\ c"]
        assert len(completions(shell, "get ")) == 3
        assert completions(shell, "get none/") == []
        server.on("get_children", action=faults.drop)
        assert completions(shell, "get ") == []
        assert server.unfired == []
    finally:
        shell.close()
    assert completions(shell, "get ") == []


def shell_at_a_terminal(server: Server, home: Path, columns: int = 80) -> Terminal:
    words = [*ZKWIRE, "--server", server.hosts, "shell"]
    return Terminal(*words, columns=columns, XDG_STATE_HOME=str(home))


def test_the_recording_of_a_terminal(tmp_path: Path) -> None:
    """What the page shows is what there is to see, and nothing of it wraps."""
    with Server() as server, shell_at_a_terminal(server, tmp_path) as terminal:
        for line in recording("shell")[1:]:
            asked = PROMPT.fullmatch(line)
            if line.startswith("watch: "):  # in the order in which it comes
                terminal.sees(line)
            elif asked is None:
                terminal.until(f"{line}\r\n")
            else:
                terminal.until(f"{server.hosts} CONNECTED {asked[1]}> ")
                terminal.type(asked[2] + "\r" if asked[2] else "\x04")
                terminal.until(asked[2] or "\r\n")
        assert terminal.status() == 0
        assert max(map(len, terminal.lines)) <= 80


def test_a_terminal_that_does_not_know_its_width(server: Server, tmp_path: Path) -> None:
    with Client(server.hosts) as client, shell_at_a_terminal(server, tmp_path, 0) as terminal:
        terminal.type("addWatch /\r")
        terminal.until("/> ")
        terminal.until("/> ")
        client.create("/whole")
        terminal.sees("\x1b[Lwatch: created /whole\x1b8")


def test_what_is_typed_ahead_waits_unseen_for_the_prompt(server: Server, tmp_path: Path) -> None:
    """It does not stand in the middle of a list, and the Ctrl-C that ends a watch keeps it."""
    prompt = f"{server.hosts} CONNECTED /> "
    with Client(server.hosts) as client, shell_at_a_terminal(server, tmp_path) as terminal:
        client.create("/x", b"data")
        gate = faults.Gate()
        server.on("get_children2", action=faults.hold(gate))
        terminal.until(prompt)
        terminal.type("ls /\r")
        gate.wait_reached()
        terminal.type_ahead("set x 'a\r")
        gate.release()
        assert terminal.until(prompt) == "ls /\r\nx\r\nzookeeper\r\n"
        terminal.until("> ")  # a quote goes on in the next line
        terminal.type("b'; get x\r")
        terminal.until("1\r\na\r\nb\r\n")
        terminal.until(prompt)
        terminal.type("watch --initial /x\r")
        terminal.until("exists /x: version 1, a\\nb\r\n")
        terminal.type("set /x new\rget /")
        client.set_data("/x", b"other")
        assert terminal.until("changed /x: version 2, other\r\n") == ""
        terminal.type("\x03")
        assert terminal.until("3\r\n").endswith(prompt + "set /x new\r\n")
        terminal.type("x\r")
        assert terminal.until("new\r\n").endswith("get /x\r\n")


def test_at_a_terminal(server: Server, tmp_path: Path) -> None:
    """Ctrl-C ends a command, an expired session is told, and no secret is kept or shown."""
    prompt = f"{server.hosts} CONNECTED /> "
    with Client(server.hosts) as client, shell_at_a_terminal(server, tmp_path) as terminal:
        terminal.until(prompt)
        terminal.type("create /x; addWatch /x\r")
        terminal.until(prompt)
        terminal.type("get ")
        terminal.until("get ")
        terminal.interrupt()
        terminal.until(prompt, terminal.interrupt)
        terminal.type("watch --initial /x\r")
        terminal.until("exists /x")
        terminal.interrupt()
        terminal.until(prompt)
        terminal.type("addauth digest\r")
        terminal.until("secret (as in user:password): ")
        terminal.type(SECRET + "\r")
        terminal.until(prompt)
        terminal.type("get /")
        terminal.until("get /")
        client.set_data("/x", b"new")
        terminal.sees("\x1b[Lwatch: changed /x\x1b8")  # above the line, which is typed to its end
        terminal.type("x\r")
        terminal.until("new\r\n")
        terminal.until(prompt)
        for session in server.sessions:
            if session.session_id != client.session_id:
                server.expire(session.session_id)
        terminal.sees("\x1b[Lsession: expired")
        terminal.type("\r")
        terminal.until("EXPIRED /> ")
        terminal.type("ls /\r")
        error = terminal.until("EXPIRED /> ")
        command, said, _ = error.lstrip("\r\n").split("\r\n")
        assert command == "ls /"
        assert said.startswith("zkwire: SessionExpired: ")
        assert said.endswith("; `reconnect` starts a new session")
        terminal.type("reconnect\r")
        terminal.until(prompt)
        terminal.type("ls /\r")
        terminal.until("x\r\nzookeeper\r\n")
        terminal.until(prompt)
        terminal.type("\x04")
        assert terminal.status() == 0
    assert "Traceback" not in terminal.seen
    assert SECRET not in terminal.seen
    history = tmp_path / "zkwire" / "history"
    assert history.stat().st_mode & 0o777 == 0o600
    assert history.read_text().splitlines() == [
        "create /x; addWatch /x", "watch --initial /x", "get /x", "ls /", "reconnect", "ls /"
    ]  # fmt: skip
