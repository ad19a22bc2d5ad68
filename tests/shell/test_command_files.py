"""Every command that writes a file keeps to the policy of `docs/command.md`."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import process, run
from tests.support.server_control import poll
from zkwire import Client
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import black_hole

LOOK = f"-- {sys.executable} -m zkwire -s {{}} ls"
SPY = "-q spy SERVER -f none"
# The words, the mode of a new file, and whether it is whole only at the end of the command.
WRITERS = {
    "dump": ("dump --force /a FILE", 0o600, True),
    "get": ("get -o FILE /a", 0o600, True),
    "drawing": (f"{SPY} -o FILE.svg {LOOK}", 0o600, True),
    "recording": (f"{SPY} -o FILE.jsonl {LOOK}", 0o600, False),
    "text": (f"{SPY} -o FILE.txt {LOOK}", 0o600, False),
    "lesson": ("lesson handshake --fast --svg FILE", 0o644, True),
}


@pytest.fixture
def tree() -> Iterator[Server]:
    before = os.umask(0o022)
    with Server() as server, Client(server.hosts) as client:
        client.create("/a", b"x" * 10)
        yield server
    os.umask(before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_dump_leaves_the_former_file_alone(
    number: int, tree: Server, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"former")
    with FaultProxy(tree.hosts) as proxy:
        proxy.on("get_data", action=black_hole)
        with process("-s", proxy.hosts, "dump", "--force", "/a", str(file)) as dump:
            poll("the part", lambda: len(os.listdir(tmp_path)) == 2 or None, 60)
            dump.send_signal(number)
            assert dump.wait(60) == 128 + number
    assert (file.read_bytes(), os.listdir(tmp_path)) == (b"former", ["file"])


@pytest.mark.parametrize(("words", "mode", "whole"), WRITERS.values(), ids=WRITERS)
def test_a_file_keeps_its_mode_and_its_links(
    words: str, mode: int, whole: bool, tree: Server, tmp_path: Path
) -> None:
    ending = "".join(re.findall(r"FILE(\S*)", words))
    new, former, link = (tmp_path / f"{name}{ending}" for name in ("new", "former", "link"))
    former.write_bytes(b"former")
    former.chmod(0o640)
    link.symlink_to(former.name)
    inode = former.stat().st_ino
    for file in (new, link):
        line = re.sub(r"FILE\S*", str(file), words.replace("SERVER", tree.hosts))
        ran = run(tree.hosts, *line.split())
        assert (ran.status, ran.err) == (0, "")
    assert [file.stat().st_mode & 0o777 for file in (new, former)] == [mode, 0o640]
    assert os.readlink(link) == former.name
    assert (former.stat().st_ino != inode) == whole
    assert new.read_bytes()
    assert not former.read_bytes().startswith(b"former")
    assert {*tmp_path.iterdir()} == {new, former, link}
