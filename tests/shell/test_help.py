"""What a reader meets at the prompt: help(), signatures, messages, completion, examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkwire import Client, Supervisor

jedi = pytest.importorskip("jedi")

PROJECT = jedi.Project(str(Path(__file__).resolve().parents[2]))
HOSTS = "127.0.0.1:1"  # nothing is started


def test_an_option_without_a_name_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="the port belongs into hosts"):
        Client("127.0.0.1", 2181)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Supervisor|Client"):
        Supervisor(HOSTS, port=3)  # type: ignore[call-arg]


HEAD = """
from zkwire import AsyncClient, Client, SequentialLock
client, client_aio = Client(''), AsyncClient('')
"""
OFFERED = {
    "client.": "get_data create multi pipeline close watch_data",
    "client.get_data('/').": "data stat is_null",
    "client.get_data('/').stat.": "czxid version ephemeral_owner",
    "client.get_children_with_stat('/').": "children stat",
    "client.pipeline.get_data('/').": "result ready add_done_callback",
    "client.pipeline.get_data('/').result().": "data stat is_null",
    "client_aio.get_data('/').": "result ready add_done_callback",
    "async def f():\n    (await client_aio.get_data('/')).": "data stat is_null",
    "with SequentialLock(client, '/l') as lock:\n    lock.": "fence held release",
    "import zkwire\nzkwire.": "Client SequentialLock NotSentError",
}


@pytest.mark.parametrize("code", OFFERED)
def test_an_editor_offers_what_is_public(code: str) -> None:
    here = jedi.InterpreterEnvironment()  # no process of its own
    script = jedi.Script(HEAD + code, project=PROJECT, environment=here)
    found = {each.name for each in script.complete() if not each.name.startswith("__")}
    assert found >= {*OFFERED[code].split()}
    if "add_done_callback" in OFFERED[code]:  # a reply, and what a coroutine has
        assert found <= {"add_done_callback", "ready", "result", "close", "send", "throw"}
