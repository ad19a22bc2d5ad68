"""How these pages become a site: `python3 check.py site` builds it in `build/site/`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent / "_ext"))

import zkwire

project = "zkwire"
author = "the zkwire authors"
version = release = zkwire.__version__

extensions = [
    *("myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"),
    *("lost", "playground", "reach"),
]
html_theme = "furo"
html_title = "zkwire"
html_show_copyright = html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_extra_path = ["atlas.json", "connection-loss.json", "wire-exchanges.json"]
exclude_patterns = ["conf.py"]
myst_heading_anchors = 4  # a link of one page to a heading of another is checked
autodoc_member_order = "bysource"


class Api(SphinxDirective):
    """``{api} MODULE ...``: the public names of these modules, in the order of zkwire's table."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Let autodoc describe each name."""
        lines: list[str] = []
        for module in self.arguments[0].split():
            names = [name for name in zkwire.__all__ if zkwire._HOMES[name] == f"zkwire.{module}"]
            if not names:
                raise self.error(f"no public name comes from zkwire.{module}")
            for name in names:
                lines += [*_described(name), ""]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


def _described(name: str) -> list[str]:
    thing = getattr(zkwire, name)
    if not isinstance(thing, type):
        return [f".. auto{'function' if callable(thing) else 'data'}:: zkwire.{name}"]
    if issubclass(thing, BaseException):
        return [f".. autoexception:: zkwire.{name}"]
    inherited = "   :inherited-members: tuple, int, object"
    return [f".. autoclass:: zkwire.{name}", "   :members:", inherited]


def _mark_code(
    _app: Sphinx, _what: str, _name: str, _thing: object, _options: object, lines: list[str]
) -> None:
    """An indented paragraph of a docstring is code, unless it belongs to a list."""
    text = ""
    for index in range(len(lines) - 1):
        if lines[index].strip():
            text = lines[index]
        elif lines[index + 1].startswith("    ") and not text.startswith((" ", "*", "-")):
            lines[index] = "" if text.endswith("::") else "\n::\n"
    lines[:] = "\n".join(lines).split("\n")


def _hide_private(
    _app: Sphinx,
    _what: str,
    _name: str,
    _thing: object,
    _options: object,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Parameters for tests alone are shown to no reader."""
    return re.sub(r", _\w+: [^=]* = None", "", signature or "") or None, returned


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.add_directive("api", Api)
    app.add_lexer("mermaid", TextLexer)  # a picture elsewhere, its text here
    app.connect("autodoc-process-docstring", _mark_code)
    app.connect("autodoc-process-signature", _hide_private)
