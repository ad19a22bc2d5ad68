"""The site for the tests of its pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.chromium import missing
from tests.check.environment import ROOT
from tests.conftest import unavailable


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, newly built."""
    if lacking := missing():
        unavailable(f"there is no {', no '.join(lacking)}")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-Eqb", "html", "docs", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, timeout=600)
    return folder
