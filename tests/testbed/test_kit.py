"""zkwire.testing.kit: the sweep of refusals is red on planted bugs, and names what was refused."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from zkwire import AsyncClient, AsyncCounter, Client, NoNodeError, ServerError, Watch
from zkwire.testing import kit
from zkwire.testing.kit import RAISED, Refused, Stage, sweep_refusals


class Flag:
    """A recipe for threads: an ephemeral node, with its name in a second node; and a mistake."""

    def __init__(self, client: Client, path: str, mistake: str) -> None:
        self.client, self.path, self.mistake = client, path, mistake

    def hoist(self) -> None:
        if self.mistake == "leaves its node":
            self.client.create(self.path, b"", ephemeral=True)
            self.client.get_data(self.path)
            return
        try:
            self._hoist()
        except ServerError as error:
            if self.mistake == "raises another":
                raise RuntimeError("it did not work") from error
            if self.mistake == "hangs":
                threading.Event().wait(2.0)
            elif self.mistake != "swallows":
                raise

    def _hoist(self) -> None:
        with suppress(NoNodeError):
            self.client.delete(f"{self.path}-name")
        self.client.create(f"{self.path}-name", b"flag")
        try:
            self.client.create(self.path, b"", ephemeral=True)
        except BaseException:
            self.client.delete(f"{self.path}-name")
            raise

    def strike(self) -> None:
        if self.mistake == "leaves its watch":
            with suppress(ServerError):
                self.client.delete(self.path)
                return
            self.client.exists(f"{self.path}-gone", watch=Watch())
        for node in (self.path, f"{self.path}-name"):
            with suppress(NoNodeError):
                self.client.delete(node)


def life_of(mistake: str = "") -> kit.Life:
    async def life(stage: Stage) -> None:
        flag = Flag(stage.client, stage.path, mistake)
        await stage.call(flag.hoist)
        assert stage.other.exists(stage.path) is not None, "it does not fly"
        await stage.call(flag.strike)
        assert stage.other.exists(stage.path) is None

    return life


def test_a_right_recipe_passes() -> None:
    found = sweep_refusals(life_of())
    assert Refused("create PATH", -125, RAISED) in found
    assert {refused.code for refused in found} == {-101, -102, -108, -110, -111, -125, -9999}


@pytest.mark.parametrize(
    ("mistake", "request_of", "complaint"),
    [
        ("leaves its node", "get_data PATH", "what it made is gone"),
        ("leaves its watch", "delete PATH", "left behind: ['watch of PATH-gone']"),
        ("swallows", "create PATH", "it does not fly"),
        ("raises another", "create PATH", "RuntimeError: it did not work"),
    ],
)
def test_a_planted_bug_is_found_and_named(mistake: str, request_of: str, complaint: str) -> None:
    with pytest.raises(AssertionError) as caught:
        sweep_refusals(life_of(mistake), patience=0.5)
    lines = [line for line in str(caught.value).splitlines() if f"{request_of} (" in line]
    assert lines, caught.value
    assert "refused with -102 (NoAuthError)" in lines[0]
    assert complaint in str(caught.value)


def test_a_life_that_hangs_is_named() -> None:
    first = slice(0, 1)
    with pytest.raises(AssertionError, match=r"delete PATH-name .* refused with .*: hangs"):
        sweep_refusals(life_of("hangs"), limit=0.5, chosen=lambda every: every[first])


def test_a_task_that_is_left_is_found() -> None:
    async def life(stage: Stage) -> None:
        counter = AsyncCounter(stage.client, stage.path)
        await stage.call(counter.add)
        if stage.raised is not None:
            stage.leftover = asyncio.ensure_future(asyncio.sleep(0.2))  # type: ignore[attr-defined]

    with pytest.raises(AssertionError, match="tasks are left"):
        sweep_refusals(life, AsyncClient, chosen=lambda every: every[:1])
