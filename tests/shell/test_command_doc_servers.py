"""What the pages about the command show of doctor, who, dump, load and copy is what they write."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support.command_lines import TEXT
from tests.support.server_control import ZooKeeperServer
from zkwire import Client
from zkwire.cli.main import main
from zkwire.testing import Ensemble, Server

ANY = {
    r"127\.0\.0\.1:\d+": "HOST",
    r"0x[0-9a-f]+": "SESSION",
    r"\d+\.\d ms": "MILLISECONDS",
    r" {2,}": "  ",  # columns are as wide as what differs
}


def compare(name: str, hosts: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the commands of a recording; they must write what it shows, ports and such aside."""
    text = TEXT.split(f"<!-- recording: {name} -->\n```\n")[1].split("```\n")[0]
    shown = ""
    for line in text.splitlines():
        if line.startswith("$ cat "):
            shown += f"{line}\n{Path(line.removeprefix('$ cat ')).read_text()}"
        elif line.startswith("$ zkwire "):
            main(["--server", hosts, *shlex.split(line)[2:]])
            shown += "".join([f"{line}\n", *capsys.readouterr()])
    for pattern, word in ANY.items():
        text, shown = (re.sub(pattern, word, each) for each in (text, shown))
    assert shown == text


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    with Ensemble() as ensemble:
        ensemble.servers[2].stop()
        compare("doctor", ensemble.hosts, capsys)


@pytest.mark.real
@pytest.mark.apache
def test_who(
    zookeeper: ZooKeeperServer, fresh_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(zookeeper.hosts) as observer:
        observer.ensure_path(f"{fresh_path}/services")
        observer.ensure_path(f"{fresh_path}/workers")
        with Client(zookeeper.hosts + fresh_path) as client:
            client.create("/services/web-1", ephemeral=True)
            client.create("/workers/7", ephemeral=True)
            compare("owner", zookeeper.hosts + fresh_path, capsys)
        observer.delete_tree(fresh_path)


def test_copying(
    server: Server,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with Client(server.hosts) as client:
        client.create("/services")
        client.create("/services/web", b"limit=10")
        client.create("/services/web/key", b"\xff\0")
        client.create("/services/web/7", ephemeral=True)
        compare("copying", server.hosts, capsys)
