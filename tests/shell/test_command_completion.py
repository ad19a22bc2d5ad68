"""`zkwire completion`: files that shells can read, and that complete commands, flags and paths."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from argparse import SUPPRESS
from pathlib import Path

import pytest

from zkwire import Client
from zkwire.cli import completion
from zkwire.cli.command import TABLE, find, parser_of
from zkwire.cli.completion import SHELLS, candidates
from zkwire.cli.main import main
from zkwire.testing import Server
from zkwire.testing.proxy import faults

ROOT = Path(__file__).resolve().parents[2]
TRIES = """
complete -p zkwire
zk() { "$PYTHON" -m zkwire "$@"; }
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE}
    _zkwire zk
    echo "${COMPREPLY[*]}"
done
"""


def run(command: list[str], text: str = "") -> str:
    """The output of a shell, which has nothing to complain of."""
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, input=text, env=environment, capture_output=True, text=True, timeout=100,
        check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_a_file_can_be_read_by_its_shell(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert " complete -- " in text
    if shutil.which(shell):
        file = tmp_path / "completion"
        file.write_text(text)
        run([shell, "-n", str(file)])


@pytest.mark.parametrize("name", TABLE)
def test_each_flag_of_a_command_is_a_candidate(name: str) -> None:
    actions = [a for a in parser_of(name, find(name))._actions if a.help != SUPPRESS]
    flags = {flag for action in actions for flag in action.option_strings}
    assert {found for found, _ in candidates([name], "-") or ()} == flags


@pytest.mark.parametrize(("typed", "word", "found"), [
    ([], "wai", ["wait"]),
    ([], "--sess", ["--session-timeout"]),
    (["--json", "-s", "zk:1"], "wai", ["wait"]),
    (["lesson"], "hea", ["heartbeat"]),
    (["completion"], "f", ["fish"]),
    (["spy", "--data"], "h", ["hex"]),
    (["acl", "-s"], "s", ["set"]),
    (["server", "--certificate"], "x", None),
    (["server"], "x", None),
])  # fmt: skip
def test_candidates_fit_the_place_of_the_word(
    typed: list[str], word: str, found: list[str] | None
) -> None:
    given = candidates(typed, word)
    fitting = None if given is None else [name for name, _ in given if name.startswith(word)]
    assert fitting == found


def test_bash_completes(server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with Client(server.hosts) as client:
        client.ensure_path("/hosts/a:1")
        client.ensure_path("/hosts/a:2 $(b)")
    assert main(["completion", "bash"]) == 0
    (tmp_path / "completion").write_text(capsys.readouterr().out)
    lines = {
        "zkwire wa": "watch wait",
        "zkwire --sess": "--session-timeout",
        f"zkwire -s {server.hosts} create --p": "--parents",
        f"zkwire -s {server.hosts} get /zoo": "/zookeeper",
        f"zkwire get --server {server.hosts} /hosts/a:": "1 2\\ \\$\\(b\\)",
        "zkwire server --certificate /zoo": "",
        "zkwire lesson he": "heartbeat herd",
        "zkwire help wa": "watch wait",
        f"zkwire -s {server.hosts} acl s": "set",
        f"zkwire -s {server.hosts} acl set /zoo": "/zookeeper",
    }
    text = "".join(f"{line}\n" for line in lines)
    said = run(["bash", "-c", f"source '{tmp_path}/completion'\n{TRIES}"], text).splitlines()
    assert said == ["complete -F _zkwire zkwire", *lines.values()]


def test_paths_are_completed_soon_or_not_at_all(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("get_children", action=faults.drop)
    for seconds, hosts in ((0.1, "127.0.0.1:1"), (30.0, server.hosts)):
        monkeypatch.setattr(completion, "SECONDS", seconds)
        monkeypatch.setattr("zkwire.cli.shell.terminal.SECONDS", 0.1)
        assert main(["complete", "--", "-s", hosts, "get", "/z"]) == 0
    assert capsys.readouterr().out == ""
    assert server.unfired == []
