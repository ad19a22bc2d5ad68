"""The playground of playground.md: its form, and what that runs: Pyodide and Python's source.

`check.py` puts Pyodide into `build/`, see `tests/check/npm.py`; without it the page says that
it cannot run, and this is a warning.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from tests.check.npm import PYODIDE

PAGE = "playground"
ROOT = Path(__file__).resolve().parents[2]
FORM = Path(__file__).with_suffix(".html")
CODE = ROOT / "docs" / "playground"


def complete(app: Sphinx, doctree: nodes.document) -> None:
    """Put the form behind the first paragraph."""
    if app.env.docname != PAGE:
        return
    app.env.note_dependency(str(FORM))
    (page,) = (node for node in doctree.children if isinstance(node, nodes.section))
    first = next(at for at, node in enumerate(page) if isinstance(node, nodes.paragraph))
    page.insert(first + 1, nodes.raw("", FORM.read_text(), format="html"))


def add_files(app: Sphinx, page: str, *_: object) -> None:
    """The script and the style are for this page alone."""
    if page == PAGE:
        app.add_js_file("playground.js", loading_method="defer")
        app.add_css_file("playground.css")


def provide(app: Sphinx, error: Exception | None) -> None:
    """Pyodide and zkwire, for the worker to load."""
    if error is not None or app.builder.name != "html":
        return
    static = Path(app.outdir) / "_static"
    if PYODIDE.folder.is_dir():
        shutil.copytree(PYODIDE.folder, static / "pyodide", dirs_exist_ok=True)
    else:
        logging.getLogger(__name__).warning("no Pyodide: python3 check.py site fetches it")
    with ZipFile(static / "zkwire.zip", "w") as archive:
        own = [*(ROOT / "zkwire").rglob("*.py"), *(ROOT / "zkwire").rglob("*.css")]
        for file in sorted([*own, *CODE.glob("*.py")]):
            member = ZipInfo(str(file.relative_to(ROOT)))  # without a date: the same each time
            archive.writestr(member, file.read_bytes(), ZIP_DEFLATED)


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("doctree-read", complete)
    app.connect("html-page-context", add_files)
    app.connect("build-finished", provide)
