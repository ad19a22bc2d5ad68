"""The manual page: a wheel installs it, and man shows it without a complaint."""

import os
import shutil
import subprocess
import tomllib

import pytest

from tests.support import man_page


def test_a_wheel_installs_it_where_man_looks() -> None:
    settings = tomllib.loads((man_page.ROOT / "pyproject.toml").read_text())
    data = man_page.ROOT / settings["tool"]["flit"]["external-data"]["directory"]
    assert str(man_page.PATH.relative_to(data)) == "share/man/man1/zkwire.1"


@pytest.mark.skipif(not shutil.which("man"), reason="there is no man")
def test_man_shows_it_within_80_columns_without_a_warning() -> None:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"}
    shown = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-P", "cat", "-l", str(man_page.PATH)],
        env=environment, capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert shown.stderr == ""
    assert "  zkwire lock [OPTIONS] PATH [--] [COMMAND [ARG ...]]\n" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
