"""`zkwire completion`: files that shells can read, and that complete commands, flags and paths."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zkwire import Client
from zkwire.cli.command import TABLE
from zkwire.cli.lessons.lesson import TABLE as LESSONS
from zkwire.cli.main import main
from zkwire.cli.shell import completion
from zkwire.cli.shell.completion import SHELLS, Facts
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


def shown(shell: str, flag: str) -> str:
    """A flag, as the file for this shell has it."""
    if shell != "fish":
        return flag
    return f"-l {flag[2:]} " if flag.startswith("--") else f"-s {flag[1:]} "


@pytest.mark.parametrize("shell", SHELLS)
def test_a_file_has_each_command_and_flag(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    facts = Facts()
    assert facts.commands.keys() == TABLE.keys()
    for flag in [*facts.common, *(flag for flags in facts.flags.values() for flag in flags)]:
        for name in flag.names:
            assert shown(shell, name) in text
    if shell == "fish":
        assert "-s s -l server -r -d" in text  # a value follows
        assert "-l json -d" in text
    assert {"ls", "get", "watch", "wait"} <= {*facts.with_paths}
    assert not {"server", "completion"} & {*facts.with_paths}
    assert facts.words["lesson"] == [*LESSONS]
    assert " ".join(LESSONS) in text
    assert re.search("@[A-Z]+@", text) is None
    if shutil.which(shell):
        file = tmp_path / "completion"
        file.write_text(text)
        run([shell, "-n", str(file)])


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
    monkeypatch.setattr(completion, "SECONDS", 0.1)
    monkeypatch.setattr("zkwire.cli.shell.completing.SECONDS", 0.1)
    assert main(["-s", "127.0.0.1:1", "complete-path", "/z"]) == 3
    monkeypatch.setattr(completion, "SECONDS", 30.0)
    server.on("get_children", action=faults.drop)
    assert main(["-s", server.hosts, "complete-path", "/z"]) == 124
    assert capsys.readouterr().out == ""
    assert server.unfired == []
