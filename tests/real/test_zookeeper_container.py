"""`zkwire.testing.ZooKeeperContainer`: the example of docs/testing.md, and its errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.docker_servers import image_to_run
from tests.support.server_control import ZooKeeperServer
from zkwire import testing

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text()
OFFICIAL = "ZooKeeperContainer()"


@pytest.mark.docker
@pytest.mark.smoke
def test_the_example_runs(zookeeper: ZooKeeperServer, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```py\n(.*?)```", TEXT, re.DOTALL)
    assert OFFICIAL in example
    exec(example.replace(OFFICIAL, f"ZooKeeperContainer({image_to_run()!r})"), {})
    assert capsys.readouterr().out == "/real\n"


@pytest.mark.docker
@pytest.mark.smoke
def test_an_image_that_is_not_there_is_named(zookeeper: ZooKeeperServer) -> None:
    container = testing.ZooKeeperContainer("localhost:1/no/image")
    try:
        with pytest.raises(RuntimeError, match="image localhost:1/no/image does not start"):
            container.start()
    finally:
        container.stop()


def test_without_an_engine_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(RuntimeError, match="no Docker engine answers"):
        testing.ZooKeeperContainer()


def test_without_testcontainers_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "testcontainers.core.container", None)
    monkeypatch.delitem(sys.modules, "zkwire.testing.container", raising=False)
    with pytest.raises(ImportError, match="pip install testcontainers"):
        _ = testing.ZooKeeperContainer
    exec("from zkwire.testing import *", {})  # needs nothing but Python
