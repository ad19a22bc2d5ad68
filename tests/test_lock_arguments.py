"""What no lock is made of: refused when it is made, not when it is acquired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zkwire import (
    Client,
    Election,
    ReadWriteLock,
    ReentrantLock,
    Semaphore,
    SequentialLock,
)

SHOWING: dict[str, Callable[[Any, Any], object]] = {
    "SequentialLock": lambda client, text: SequentialLock(client, "/lock", text),
    "ReadWriteLock": lambda client, text: ReadWriteLock(client, "/lock", text),
    "Semaphore": lambda client, text: Semaphore(client, "/lock", 2, text),
    "ReentrantLock": lambda client, text: ReentrantLock(client, "/lock", text),
    "Election": lambda client, text: Election(client, "/lock", text),
}


@pytest.fixture
def client() -> Client:
    return Client("127.0.0.1:1")  # which nothing here asks anything


@pytest.mark.parametrize("kind", SHOWING)
def test_a_text_is_a_text(client: Client, kind: str) -> None:
    for wrong in (None, b"who", 5):
        with pytest.raises(TypeError, match="text must be a str, not "):
            SHOWING[kind](client, wrong)
    with pytest.raises(ValueError, match=r"text contains a surrogate, .*\\ud800"):
        SHOWING[kind](client, "\ud800")
