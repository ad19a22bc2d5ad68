"""docs/testing.md is true: its code runs, and prints what it says."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from tests.support.snippets import ROOT, blocks

TEXT = (ROOT / "docs" / "testing.md").read_text()


def test_code_runs_and_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    printed = []
    for block in blocks("testing"):
        exec(block, names)
        printed.append(capsys.readouterr().out)
    server, broken, proxy, refused, found, right = printed
    assert broken == "State.DISCONNECTED\nexpired: only a new client goes on\n"
    assert server.startswith("NoNodeError\n['/', '/zookeeper'")
    assert proxy.startswith("True\n['connect', 'create', ")
    assert proxy.endswith("['request 2 of delete']\n")
    assert "'/mine'" not in server
    assert "states" in right
    assert re.search(r"\['cut [ab]'\]\n$", right)
    shown = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    for text, output in zip(shown, (refused, found), strict=True):
        for line in text.splitlines():
            assert line.removesuffix("...") in output


def test_the_modules_that_it_names_are_there() -> None:
    names = set(re.findall(r"zkwire\.testing\.(\w+)", TEXT))
    assert {"proxy", "simulation"} <= names
    for name in names:
        import_module(f"zkwire.testing.{name}")
