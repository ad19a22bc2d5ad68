"""What Python says of arguments that do not exist names the class that a user sees."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from tests.support.both_clients import Side, both
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


@both
async def test_an_unknown_argument_names_the_public_method(side: Side, server: Server) -> None:
    async with side.opened(server.hosts) as client:
        for public, thing in every(client).items():
            for name in dir(type(thing)):
                if name.startswith("_") or not inspect.isfunction(getattr(type(thing), name)):
                    continue
                message = re.escape(f"{public}.{name}() got an unexpected keyword")
                with pytest.raises(TypeError, match=message):
                    getattr(thing, name)(no_such_argument=1)
