"""The site for the tests of its pages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.browser.chromium import missing
from tests.check.environment import ROOT
from tests.check.npm import PYODIDE
from tests.conftest import unavailable


class Files(SimpleHTTPRequestHandler):
    """Files, without a word about it."""

    timeout = 1.0  # seconds; a browser opens connections before it needs them

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, newly built, or as ``ZKWIRE_TEST_SITE`` names it."""
    if lacking := missing():
        unavailable(f"there is no {', no '.join(lacking)}")
    if built := os.environ.get("ZKWIRE_TEST_SITE"):
        return Path(built).resolve()
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-Eqb", "html", "docs", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, timeout=600)
    return folder


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where the playground is served."""
    if not PYODIDE.folder.is_dir():
        unavailable("there is no Pyodide: python3 check.py site fetches it")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(site))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/playground.html"
        server.shutdown()
        thread.join()
