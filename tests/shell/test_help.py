"""What a reader meets at the prompt: help(), signatures, messages, completion, examples."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
import re
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import zkwire
from tests.support.snippets import Snippet, undefined
from zkwire import AsyncClient, Client, DigestMD5, Supervisor

jedi = pytest.importorskip("jedi")

INTERNAL = re.compile(r"[(,] ?\*?_\w|\bNever\b|options_have_names")
PROJECT = jedi.Project(str(Path(__file__).resolve().parents[2]))
HOSTS = "127.0.0.1:1"  # nothing is started


def test_help_begins_with_a_client_and_an_example() -> None:
    renderer: Any = pydoc
    text = pydoc.render_doc(zkwire, renderer=renderer.plaintext)
    first = "\n".join(text.splitlines()[:24])
    assert 'with Client("127.0.0.1:2181") as client:' in first
    assert "help(zkwire.Client)" in first
    assert first.index("Client") < text.index("CLASSES")
    example = re.search(r"DESCRIPTION\n((?:     .*\n|\n)+)", text)
    assert example
    compile(inspect.cleandoc(example[1]), "help", "exec")


def members() -> Iterator[tuple[str, Any]]:
    """Each public class and function, and what is public of each class."""
    for name in zkwire.__all__:
        thing = getattr(zkwire, name)
        yield name, thing
        if isinstance(thing, type):
            names = [each for each in dir(thing) if each[0] != "_"]
            yield from ((f"{name}.{each}", getattr(thing, each, None)) for each in names)


def test_no_signature_shows_what_is_internal() -> None:
    found = {}
    for name, member in members():
        try:
            found[name] = str(inspect.signature(member))
        except (TypeError, ValueError):
            continue
    assert len(found) > 500
    assert {name: text for name, text in found.items() if INTERNAL.search(text)} == {}
    assert "session_timeout" in found["Client"]


@contextmanager
def unconnected() -> Iterator[Any]:
    """A client that is closed without having been connected."""
    client = Client(HOSTS, session_timeout=60.0)
    yield client
    client.close()
    assert not [t for t in threading.enumerate() if t.name.startswith(client._driver.name)]


CALLS: dict[str, Callable[[Any], object]] = {
    "Client.__init__()": lambda _: Client(),  # type: ignore[call-arg]
    "AsyncClient.__init__()": lambda _: AsyncClient(HOSTS, timeout=3),  # type: ignore[call-arg]
    "DigestMD5.__init__()": lambda _: DigestMD5("bob"),  # type: ignore[call-arg]
    "Client.get_data()": lambda client: client.get_data(),
    "Client.add_state_listener()": lambda client: client.add_state_listener(),
    "Client.pipeline.get_data()": lambda client: client.pipeline.get_data(),
    "Transaction.create()": lambda client: client.transaction().create(),
    "SequentialLock.acquire()": lambda client: zkwire.SequentialLock(client, "/l").acquire(
        1, None, 2
    ),  # type: ignore[call-arg]
    "Queue.put()": lambda client: zkwire.Queue(client, "/q").put(),  # type: ignore[call-arg]
    "Cache.get()": lambda client: zkwire.Cache(client, "/").get(),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_names_the_public_class_and_method(name: str) -> None:
    with unconnected() as client, pytest.raises(TypeError) as raised:
        CALLS[name](client)
    assert str(raised.value).startswith(name)


def test_an_option_without_a_name_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="the port belongs into hosts"):
        Client("127.0.0.1", 2181)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Supervisor|Client"):
        Supervisor(HOSTS, port=3)  # type: ignore[call-arg]


def test_a_reply_to_come_says_how_to_have_its_result() -> None:
    async def main() -> None:
        client = AsyncClient(HOSTS, session_timeout=60.0)
        reply: Any = client.get_data("/node")
        with pytest.raises(AttributeError, match="reply to come of get_data; await it first"):
            _ = reply.data
        assert not hasattr(reply, "stat")
        await client.close()

    asyncio.run(main())
    with (
        unconnected() as client,
        pytest.raises(AttributeError, match=r"get_data; call its result\(\) first"),
    ):
        _ = client.pipeline.get_data("/node").data


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


GIVEN = "client supervisor lock queue semaphore barrier election data path paths timedelta gssapi"
"""What an example may take for granted: what it is about, and values of a reader's own."""


def examples() -> Iterator[Snippet]:
    """Each indented paragraph of code in the docstring of a public class or method."""
    seen = set[str]()
    for name, member in members():
        code = callable(member) or isinstance(member, property)
        before = ""
        for paragraph in ((inspect.getdoc(member) if code else "") or "").split("\n\n"):
            indented = paragraph.startswith("    ") and not before.lstrip().startswith("*")
            if indented and paragraph not in seen:
                seen.add(paragraph)
                yield Snippet(name, 0, textwrap.dedent(paragraph), alone=True)
            before = before if indented else paragraph


def test_examples_in_docstrings_say_what_is_a_readers_to_write(tmp_path: Path) -> None:
    found = [*examples(), Snippet("planted", 0, "with lock:\n    serve()", alone=True)]
    assert len(found) > 30
    head = f"from zkwire import {', '.join(zkwire.__all__)}\n"
    head += f"{' = '.join(GIVEN.split())} = None\n"
    whole = []
    for example in found:
        code = re.sub(r"#.*yours to write.*", "# noqa: F821", example.code)
        body = textwrap.indent(code, "    ")
        whole.append(example._replace(code=f"{head}async def example():\n{body}"))
    assert undefined(whole, tmp_path) == ["planted:0, line 5: F821 Undefined name `serve`"]
