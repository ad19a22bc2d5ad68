"""A lesson on a server that refuses, is not there, or is lost: one clear sentence, and no hang."""

from __future__ import annotations

import asyncio
import signal
from argparse import Namespace
from typing import Any

import pytest

from zkwire import Client, ConnectionLossError, Watch
from zkwire.cli.lessons.lesson import TABLE, find
from zkwire.cli.lessons.server_stage import ServerStage
from zkwire.cli.main import main
from zkwire.testing import Server


@pytest.mark.parametrize("name", [name for name in TABLE if find(name).needs])
def test_what_needs_the_virtual_clock_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lesson", name, "--server", "127.0.0.1:1"]) == 2
    said = capsys.readouterr().err
    assert f"the lesson {name} needs the virtual clock: {find(name).needs}" in said


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["lost-reply", "--before", "--server", "127.0.0.1:1"], 2, "lost-reply --before needs"),
        (["bytes", "--server", "one:1,two:2"], 2, "takes one HOST:PORT here, not 'one:1,two:2'"),
        (["bytes", "--server", "127.0.0.1:1", "--connect-timeout", "1"], 2, "there is no flag"),
    ],
)
def test_a_wrong_word_is_an_error_of_usage(
    words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lesson", *words]) == status
    assert said in capsys.readouterr().err


def test_a_server_that_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Server() as server:
        hosts = server.hosts
    assert main(["--connect-timeout", "0.2", "lesson", "bytes", "--server", hosts]) == 3
    assert hosts in capsys.readouterr().err


def test_a_server_that_is_lost_ends_the_lesson() -> None:
    with Server() as server:
        stage: Any = ServerStage(Namespace(), server.hosts)

        async def lesson() -> None:
            client, watch = stage.client("A"), Watch()
            await client.exists("/never", watch=watch)
            await asyncio.to_thread(server.stop)
            await watch

        with pytest.raises(ConnectionLossError, match=f"{server.hosts} is lost; {stage.root} may"):
            stage.run(lesson())


def test_an_interrupt_at_the_end_leaves_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_away = ServerStage._put_away

    async def interrupted(stage: ServerStage) -> None:
        signal.raise_signal(signal.SIGINT)
        await put_away(stage)

    monkeypatch.setattr(ServerStage, "_put_away", interrupted)
    assert main(["lesson", "lost-reply", "--server", server.hosts]) == 130
    with Client(server.hosts) as client:
        assert client.get_children("/") == ["zookeeper"]
