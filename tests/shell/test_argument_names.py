"""What Python says of arguments that do not exist names the class that a user sees."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.support.recipe_samples import RECIPES, made
from zkwire import AsyncClient, Client
from zkwire.testing import Server


def every(client: Client | AsyncClient) -> dict[str, Any]:
    """One of each public class that has methods."""
    prefix = "Async" if isinstance(client, AsyncClient) else ""
    found = {prefix + name: made(name, client, "/path") for name in RECIPES}
    lock = found[prefix + "ReadWriteLock"]
    return {
        **found,
        type(client).__name__: client,
        f"{prefix}Lease": found[prefix + "Semaphore"].lease(),
        f"{prefix}ReadLock": lock.read,
        f"{prefix}WriteLock": lock.write,
    }


def assert_named(found: dict[str, Any]) -> None:
    for kind, thing in found.items():
        for name in dir(type(thing)):
            if name.startswith("_") or not inspect.isfunction(getattr(type(thing), name)):
                continue
            with pytest.raises(TypeError) as e:
                getattr(thing, name)(no_such_argument=1)
            assert f"{kind}.{name}() got an unexpected keyword" in str(e.value)


def test_an_unknown_argument_names_the_public_method(server: Server) -> None:
    with Client(server.hosts) as client:
        assert_named(every(client))


async def test_an_unknown_argument_names_the_public_asyncio_method(server: Server) -> None:
    async with AsyncClient(server.hosts) as client:
        assert_named(every(client))
