"""What a reader meets at the prompt: help(), signatures, messages and completion."""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import pydoc
import re
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import zkwire
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


def signatures() -> Iterator[tuple[str, str]]:
    """Of each public class and function, and of the public methods of each class."""
    for name in zkwire.__all__:
        thing: Any = getattr(zkwire, name)
        members = [(name, thing)]
        if isinstance(thing, type):
            members += [
                (f"{name}.{each}", getattr(thing, each))
                for each in dir(thing)
                if not each.startswith("_")
            ]
        for called, function in members:
            try:
                yield called, str(inspect.signature(function))
            except (TypeError, ValueError):
                continue


def test_no_signature_shows_what_is_internal() -> None:
    found = dict(signatures())
    assert len(found) > 500
    assert {name: text for name, text in found.items() if INTERNAL.search(text)} == {}
    assert "session_timeout" in found["Client"]


CALLS: dict[str, Callable[[Client], object]] = {
    "Client.__init__()": lambda _: Client(),  # type: ignore[call-arg]
    "AsyncClient.__init__()": lambda _: AsyncClient(HOSTS, timeout=3),  # type: ignore[call-arg]
    "DigestMD5.__init__()": lambda _: DigestMD5("bob"),  # type: ignore[call-arg]
    "Client.get_data()": lambda client: client.get_data(),  # type: ignore[call-arg]
    "Client.add_state_listener()": lambda client: client.add_state_listener(),  # type: ignore[call-arg]
    "Client.pipeline.get_data()": lambda client: client.pipeline.get_data(),  # type: ignore[call-arg]
    "Transaction.create()": lambda client: client.transaction().create(),  # type: ignore[call-arg]
    "SequentialLock.acquire()": lambda client: zkwire.SequentialLock(client, "/l").acquire(
        1, None, 2
    ),  # type: ignore[call-arg]
    "Queue.put()": lambda client: zkwire.Queue(client, "/queue").put(),  # type: ignore[call-arg]
    "Cache.get()": lambda client: zkwire.Cache(client, "/").get(),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_names_the_public_class_and_method(name: str) -> None:
    with Unconnected(HOSTS) as client, pytest.raises(TypeError) as raised:
        CALLS[name](client)
    assert str(raised.value).startswith(name)


def test_an_option_without_a_name_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="the port belongs into hosts"):
        Client("127.0.0.1", 2181)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Supervisor|Client"):
        Supervisor(HOSTS, port=3)  # type: ignore[call-arg]


def test_a_reply_that_was_not_awaited_says_so() -> None:
    async def main() -> None:
        client = AsyncClient(HOSTS, session_timeout=60.0)
        reply: Any = client.get_data("/node")
        with pytest.raises(AttributeError, match="reply to come of get_data; await it first"):
            _ = reply.data
        assert not hasattr(reply, "stat")
        await client.close()

    asyncio.run(main())


def test_a_pipelined_reply_says_that_its_result_is_to_be_asked_for() -> None:
    with Unconnected(HOSTS) as client:
        reply: Any = client.pipeline.get_data("/node")
        with pytest.raises(AttributeError, match=r"get_data; call its result\(\) first"):
            _ = reply.data


class Unconnected:
    """A client that is closed without having been connected."""

    def __init__(self, hosts: str) -> None:
        self.client = Client(hosts, session_timeout=60.0)

    def __enter__(self) -> Client:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()
        assert not [t for t in threading.enumerate() if t.name.startswith(self.client._driver.name)]


def completed(code: str) -> set[str]:
    """What jedi offers at the end, without what every object has."""
    head = "from zkwire import AsyncClient, Client, SequentialLock\nclient = Client('')\n"
    here = jedi.InterpreterEnvironment()  # no process of its own
    code = f"{head}client_aio = AsyncClient('')\n{code}"
    script = jedi.Script(code, project=PROJECT, environment=here)
    return {each.name for each in script.complete() if not each.name.startswith("__")}


@pytest.mark.parametrize(
    ("code", "offered"),
    [
        ("client.", {"get_data", "create", "multi", "pipeline", "close", "watch_data"}),
        ("client.get_data('/').", {"data", "stat", "is_null"}),
        ("client.get_data('/').stat.", {"czxid", "version", "ephemeral_owner"}),
        ("client.get_children_with_stat('/').", {"children", "stat"}),
        ("client.pipeline.get_data('/').", {"result", "ready", "add_done_callback"}),
        ("client.pipeline.get_data('/').result().", {"data", "stat", "is_null"}),
        ("client_aio.get_data('/').", {"result", "ready", "add_done_callback"}),
        ("async def f():\n    (await client_aio.get_data('/')).", {"data", "stat", "is_null"}),
        ("with SequentialLock(client, '/l') as lock:\n    lock.", {"fence", "held", "release"}),
        ("import zkwire\nzkwire.", {"Client", "SequentialLock", "NotSentError"}),
    ],
)
def test_an_editor_offers(code: str, offered: set[str]) -> None:
    assert offered <= completed(code)


@pytest.mark.parametrize("code", ["client.pipeline.get_data('/').", "client_aio.get_data('/')."])
def test_an_editor_offers_nothing_internal_of_a_reply(code: str) -> None:
    assert completed(code) <= {
        *("add_done_callback", "ready", "result"),
        *("close", "send", "throw"),  # of a coroutine
    }


# --- examples in docstrings -----------------------------------------------------------------------

GIVEN = {
    *("client", "supervisor", "lock", "queue", "semaphore", "barrier", "election"),
    *("data", "path", "paths"),
}
"""What an example may take for granted: what it is about, and values of a reader's own."""


def examples() -> Iterator[tuple[str, str]]:
    """Each indented paragraph of code in the docstring of a public class or method."""
    seen = set[str]()
    for name in zkwire.__all__:
        thing: Any = getattr(zkwire, name)
        members = [thing]
        if isinstance(thing, type):
            members += [getattr(thing, each, None) for each in dir(thing) if each[0] != "_"]
        for member in members:
            text = (
                inspect.getdoc(member) if callable(member) or isinstance(member, property) else ""
            )
            before = ""
            for paragraph in (text or "").split("\n\n"):
                indented = paragraph.startswith("    ") and not before.lstrip().startswith("*")
                if indented and paragraph not in seen:
                    seen.add(paragraph)
                    yield name, textwrap.dedent(paragraph)
                before = before if indented else paragraph


def missing_names(code: str) -> set[str]:
    """The names that the code uses, and neither defines nor says to be a reader's to write."""
    tree = ast.parse(code)
    marked = {n for n, line in enumerate(code.splitlines(), 1) if "yours to write" in line}
    used = {
        (node.id, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    bound = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    bound |= {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    bound |= {
        argument.arg
        for node in ast.walk(tree)
        if isinstance(node, ast.arguments)
        for argument in node.args
    }
    known = bound | GIVEN | set(zkwire.__all__) | set(dir(builtins)) | {"timedelta", "gssapi"}
    return {name for name, line in used if name not in known and line not in marked}


def test_examples_in_docstrings_say_what_is_a_readers_to_write() -> None:
    found = list(examples())
    assert len(found) > 30
    assert {name: names for name, code in found if (names := missing_names(code))} == {}
    assert missing_names("with lock:\n    serve()") == {"serve"}
