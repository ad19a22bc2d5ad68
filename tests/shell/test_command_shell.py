"""`zkwire shell`: scripts stop at the first failure; a terminal goes on, and tells what happens.

And completion: of the Tab key there, and of the shells that run the command.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from subprocess import TimeoutExpired
from unittest.mock import Mock

import pytest

from tests.support.command import ROOT, ZKWIRE, Ran, ended, interpreter_of, recording, run
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll
from tests.support.terminal import Terminal
from zkwire import CREATOR_ALL_ACL, Client, digest_auth
from zkwire import __version__ as zkwire_version
from zkwire.cli import completion
from zkwire.cli.completion import candidates
from zkwire.cli.shell import terminal as completing
from zkwire.cli.shell.terminal import Readline, completions
from zkwire.testing import Server
from zkwire.testing.proxy import faults

PROMPT = re.compile(r"127\.0\.0\.1:2181 CONNECTED (\S+)> (.*)")
SECRET = "me:hidden"


def shell(server: Server, *words: str, stdin: str = "") -> Ran:
    return run(server.hosts, "shell", *words, stdin=stdin.encode())


@pytest.mark.parametrize(
    ("words", "status"), [([], 1), (["-k"], 1), (["-c", "fly; ls /"], 2), (["-c", "get 'a"], 2)]
)
def test_a_script_stops_at_the_first_failure(server: Server, words: list[str], status: int) -> None:
    ran = shell(server, *words, stdin="get /missing\nls /\nfly\n")
    goes_on = words == ["-k"]
    assert (ran.status, ran.lines) == (status, ["zookeeper"] if goes_on else [])
    assert ran.err.count("\n") == (2 if goes_on else 1)


@pytest.mark.parametrize(("script", "status", "out", "err"), [
    (
        "ls --json /zookeeper; ls --count /zookeeper; -x; quit; get /missing", 2,
        '{"v": 1, "path": "/zookeeper", "children": ["config", "quota"]}\n2\n', "zkwire: ",
    ),
    ("cd /zookeeper; cd none; pwd", 1, "/zookeeper\n", "zkwire: NoNode: cd /zookeeper/none: "),
    ("create /a x; get /a; cd '/\x1b[2J'", 2, "/a\nx\n", "zkwire: "),  # controls no terminal
    ("create /o; stat -w /o; ls -w /o; set /o x; create /o/p; set /o y", 0, None,
     "watch: changed /o\nwatch: children /o\n"),
    ("create /a; printwatches off; printwatches; addWatch /a; set /a x", 0, "/a\noff\n1\n", ""),
])  # fmt: skip
def test_a_script_shows_what_its_commands_do(
    server: Server, script: str, status: int, out: str | None, err: str
) -> None:
    ran = shell(server, "-k", "-c", script)
    assert (ran.status, out or ran.text) == (status, ran.text)
    assert ran.err.startswith(err)
    assert ran.err.count("\n") == max(err.count("\n"), err.startswith("zkwire"))
    assert "\x1b" not in ran.err


def test_what_comes_from_others_does_not_control_the_terminal(server: Server) -> None:
    with Client(server.hosts) as client:
        client.create("/a", b"\x1b[2J\xff\x07ok")
    assert shell(server, "-c", "get /a").lines == ["\\x1b[2J\\xff\\x07ok"]


def test_the_help_of_a_command_of_zkcli(server: Server) -> None:
    first, _, *rest = shell(server, "-c", "help deleteall").lines
    assert first == "deleteall is zkCli's name for: rm -r"
    assert any(line.startswith("  --dry-run ") for line in rest)


def test_credentials_from_a_file_hold_in_the_next_session(server: Server, tmp_path: Path) -> None:
    with Client(server.hosts, auth=[digest_auth(*SECRET.split(":"))]) as client:
        client.create("/mine", b"x", acl=CREATOR_ALL_ACL)
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    script = f"addauth digest -f {file}; get /mine; reconnect; get /mine; close; get /mine"
    ran = shell(server, "-c", script)
    assert (ran.status, ran.lines) == (1, ["x", "x"])
    assert ran.err.startswith("zkwire: ClientClosed: ")


def test_watches_are_told_until_they_are_not(server: Server) -> None:
    script = """addWatch -m PERSISTENT /a; create /a; create /a/b
        removewatches /a; set /a x
        addWatch /a; set /a x; set /a/b x; get -w /none"""
    ran = shell(server, "-c", script)
    said = ran.err.splitlines()
    assert ran.status == 1
    assert [line.removeprefix("watch: ") for line in said if line.startswith("watch: ")] == [
        "created /a", "children /a", "removed: persistent watch /a", "changed /a", "changed /a/b"
    ]  # fmt: skip
    assert len([line for line in said if line.startswith("zkwire: line 3: NoNode: ")]) == 1


# --- at a terminal --------------------------------------------------------------------------------


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


def test_at_a_terminal(server: Server, tmp_path: Path) -> None:
    """Ctrl-C ends a command, an expired session is told, and no secret is kept or shown."""
    prompt = f"{server.hosts} CONNECTED /> "
    with Client(server.hosts) as client, shell_at_a_terminal(server, tmp_path) as terminal:

        def do(keys: str, *shown: str) -> str:
            terminal.type(keys)
            return [terminal.until(text) for text in shown][-1]

        terminal.until(prompt)
        do("create /x; addWatch /x\r", prompt)
        do("get ", "get ")
        terminal.interrupt()
        terminal.until(prompt, terminal.interrupt)
        do("watch --initial /x\r", "exists /x")
        terminal.interrupt()
        terminal.until(prompt)
        do("addauth digest\r", "secret (as in user:password): ")
        do(SECRET + "\r", prompt)
        do("get /", "get /")
        client.set_data("/x", b"new")
        terminal.sees("\x1b[Lwatch: changed /x\x1b8")  # above the line, which is typed to its end
        do("x\r", "new\r\n", prompt)
        for session in server.sessions:
            if session.session_id != client.session_id:
                server.expire(session.session_id)
        terminal.sees("\x1b[Lsession: expired")
        do("\r", "EXPIRED /> ")
        command, said, _ = do("ls /\r", "EXPIRED /> ").lstrip("\r\n").split("\r\n")
        assert command == "ls /"
        assert said.startswith("zkwire: SessionExpired: ")
        assert said.endswith("; `reconnect` starts a new session")
        do("reconnect\r", prompt)
        do("ls /\r", "x\r\nzookeeper\r\n", prompt)
        terminal.type("\x04")
        assert terminal.status() == 0
    assert "Traceback" not in terminal.seen
    assert SECRET not in terminal.seen
    history = tmp_path / "zkwire" / "history"
    assert history.stat().st_mode & 0o777 == 0o600
    assert history.read_text().splitlines() == [
        "create /x; addWatch /x", "watch --initial /x", "get /x", "ls /", "reconnect", "ls /"
    ]  # fmt: skip


def test_a_user_without_a_home_has_no_history(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with Readline(Mock(__doc__=""), interpreter_of(server)):
        pass


# --- completion -----------------------------------------------------------------------------------


def test_the_tab_key_completes_the_line_up_to_the_cursor(server: Server) -> None:
    line = Mock(__doc__="", get_line_buffer=lambda: "removew /x", get_endidx=lambda: 5)
    aids = Readline(line, interpreter_of(server))
    assert [aids._complete("remov", number) for number in range(2)] == ["removewatches ", None]


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


@pytest.mark.parametrize(("typed", "word", "found"), [
    ("", "wai", ["wait"]),
    ("", "--sess", ["--session-timeout"]),
    ("--json -s zk:1", "wai", ["wait"]),
    ("lesson", "hea", ["heartbeat"]),
    ("completion", "f", ["fish"]),
    ("spy --data", "h", ["hex"]),
    ("acl -s", "s", ["set"]),
    ("server --certificate", "x", None),
    ("server", "x", None),
])  # fmt: skip
def test_candidates_fit_the_place_of_the_word(
    typed: str, word: str, found: list[str] | None
) -> None:
    given = candidates(typed.split(), word)
    fitting = None if given is None else [name for name, _ in given if name.startswith(word)]
    assert fitting == found


TRIES = """
complete -p zkwire
zk() { "$PYTHON" -m zkwire "$@"; }
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE}
    _zkwire zk
    echo "${COMPREPLY[*]}"
done
"""


def test_bash_completes(server: Server, tmp_path: Path) -> None:
    with Client(server.hosts) as client:
        client.ensure_path("/hosts/a:1")
        client.ensure_path("/hosts/a:2 $(b)")
    (tmp_path / "completion").write_text(run(server.hosts, "completion", "bash").text)
    lines = {
        "zkwire wa": "watch wait",
        f"zkwire -s {server.hosts} create --p": "--parents",
        f"zkwire -s {server.hosts} get /zoo": "/zookeeper",
        f"zkwire get --server {server.hosts} /hosts/a:": "1 2\\ \\$\\(b\\)",
        "zkwire server --certificate /zoo": "",
        f"zkwire -s {server.hosts} acl s": "set",
        f"zkwire -s {server.hosts} acl set /zoo": "/zookeeper",
    }
    done = subprocess.run(
        ["bash", "-c", f"source '{tmp_path}/completion'\n{TRIES}"],
        input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}, timeout=100,
    )  # fmt: skip
    said = ["complete -F _zkwire zkwire", *lines.values()]
    assert (done.stderr, done.stdout.splitlines()) == ("", said)


def test_paths_are_completed_soon_or_not_at_all(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("get_children", action=faults.drop)
    for seconds, hosts in ((0.1, "127.0.0.1:1"), (30.0, server.hosts)):
        monkeypatch.setattr(completion, "SECONDS", seconds)
        monkeypatch.setattr("zkwire.cli.shell.terminal.SECONDS", 0.1)
        ran = run("127.0.0.1:1", "complete", "--", "-s", hosts, "get", "/z")
        assert (ran.status, ran.out) == (0, b"")
    assert server.unfired == []


# --- 80 columns -----------------------------------------------------------------------------------


LOOKS = (
    "ls -l /; tree -l /; stat /a; get --hex /a; acl get /; quota set /a -n 9; quota get /a; "
    "count /; config; whoami; ephemerals; doctor; who /e; watch /a --initial --timeout 10ms; help; "
    "create /jobs; create -s /jobs/job- x; set /a y"
)


def shown_by(*words: str) -> str:
    """What a command shows, of which no line is too long."""
    with Terminal(*ZKWIRE, *words) as terminal:
        assert terminal.status() == 0
        assert [line for line in terminal.lines if len(line) > 80] == []
        return "\n".join(terminal.lines)


@pytest.fixture
def filled(server: Server) -> Server:
    with Client(server.hosts) as client:
        client.create("/a", bytes(range(256)))
        client.create("/departement-of-names", b"x" * 300)
        for number in range(40):
            client.create(f"/departement-of-names/{number:020}", b"y" * number)
    return server


def test_what_is_shown_fits(filled: Server) -> None:
    with Client(filled.hosts) as client:
        client.create("/e", ephemeral=True)
        text = shown_by("-s", filled.hosts, "shell", "-c", LOOKS)
    assert "belongs to session" in text
    assert "1 of 1 servers can be used" in text
    assert "/jobs/job-0000000000" in text


def test_what_the_spy_shows_fits(filled: Server) -> None:
    path = "/departement-of-names"
    words = ["spy", filled.hosts, "--hex", "--data", "text", "--"]
    assert "close by the" in shown_by(*words, *ZKWIRE, "-s", "{}", "-q", "copy", path, "/copied")


def test_a_demo_needs_nothing_and_checks_everything() -> None:
    """For a terminal of 80 columns, without colour."""
    done = ended("demo")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    assert "11 of 11 checks passed" in done.stdout


def test_what_is_not_run_is_said() -> None:
    assert ended("demo", "--nonsense").returncode == 2
    assert ended("--version").stdout == f"zkwire {zkwire_version}\n"


# --- a lesson at a terminal -----------------------------------------------------------------------

QUESTION = "q: leave] "


def lesson(*words: str) -> Terminal:
    return Terminal(*ZKWIRE, "lesson", *words, "--color", "never")


def test_each_question_waits_for_its_answer() -> None:
    with lesson("handshake") as terminal:
        for question in ("Who decides what it gets?", "Does anything travel?", "or more?"):
            shown = terminal.until(QUESTION)
            assert f"{question}\r\n" in shown
            assert "✓" not in shown.rpartition(question)[2]
            terminal.type("my guess\r")
        assert terminal.status() == 0
    assert "Next: zkwire lesson heartbeat" in terminal.seen
    assert max(map(len, terminal.lines)) <= 80


@pytest.mark.parametrize(("keys", "status"), [("q\r", 0), ("\x04", 0), ("", 130)])
def test_a_reader_who_leaves_is_no_failure(keys: str, status: int) -> None:
    """At the question; an interrupt ends it as it ends other commands."""
    with lesson("handshake") as terminal:
        terminal.until(QUESTION)
        terminal.type(keys)
        while not keys and terminal.process.poll() is None:
            terminal.interrupt()
            with suppress(TimeoutExpired):
                terminal.process.wait(1.0)
        assert terminal.status() == status
    assert "Remember" not in terminal.seen
    assert "Traceback" not in terminal.seen


@pytest.mark.parametrize("option", ["--fast", "--play"])
def test_a_film_waits_nowhere(option: str) -> None:
    with lesson("connected-is-not-ready", option) as terminal:
        assert terminal.status() == 0
    assert "Remember:" in terminal.seen
    assert QUESTION not in terminal.seen


def test_hazard_A54_a_shell_begins_anew_after_a_restart_without_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with closing(interpreter_of()) as shell:
        shell.at_terminal = True
        with Server() as server:
            port = server.port
            shell.context.options.session_timeout = 1.0
            shell.connect(server.hosts)
            assert shell.run_line("create /former") == 0
            capsys.readouterr()
        client = shell.context.client
        poll("the loss was noticed", lambda: not client.state.usable or None, PATIENCE)
        with Server(port=port) as server:
            assert shell.run_line("ls /") == 3
            said = capsys.readouterr().err.splitlines()[-1]  # behind those about the connection
            assert "older than zxid" in said
            assert said.endswith("`reconnect` starts a new session")
            assert shell.run_line("reconnect; ls /") == 0
            assert capsys.readouterr().out == "zookeeper\n"
