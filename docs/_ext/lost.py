"""The chooser of connection-loss-reference.md: its data in the page, a name for each line.

Both come from connection-loss.json; a line of the data without its line in the page is a warning.
Without JavaScript the chooser is hidden, and the page is what it is elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from tests.connection_loss.document import LESSON, flags_of, row_name

PAGE = "connection-loss-reference"
FOLDER = Path(__file__).resolve().parents[1]
PARTS = {"asked of": "members", "moment": "sessions", "watch": "watches", "point of failure": ""}
"""The tables that are data, by their first heads."""

SHOWN = ("id", "part", "call", "options", "failure", "point", "server", "client", "errors",
         "sent_after", "advice", "end")  # fmt: skip

FORM = """
<form class="lost" id="lost" hidden>
<fieldset>
<legend>Find your line</legend>
<div class="lost-choice"><label for="lost-call">What was called</label>
<select id="lost-call" name="call"></select></div>
<div class="lost-choice"><label for="lost-options">How it was used</label>
<select id="lost-options" name="options"></select></div>
<div class="lost-choice"><label for="lost-errors">What the caller got</label>
<select id="lost-errors" name="errors"></select></div>
<div class="lost-choice"><label for="lost-failure">What had happened, if that is known</label>
<select id="lost-failure" name="failure"></select></div>
<div class="lost-choice lost-words"><label for="lost-words">Words in the line</label>
<input type="search" id="lost-words" name="words" autocomplete="off"></div>
<button type="reset">Clear</button>
</fieldset>
<p class="lost-status" role="status"></p>
<div class="lost-lines"></div>
</form>
"""


def complete(app: Sphinx, doctree: nodes.document) -> None:
    """Name the lines of the tables, and put the chooser at the top."""
    if app.env.docname != PAGE:
        return
    found = json.loads((FOLDER / "connection-loss.json").read_text())
    lines = {name: entry for table in doctree.findall(nodes.table) for name, entry in named(table)}
    for row in found["rows"]:
        if (entry := lines.get(row["id"])) is None:
            logging.getLogger(__name__).warning("%s has no line %s", PAGE, row["id"])
        else:
            entry["ids"].append(row["id"])
    (page,) = (node for node in doctree.children if isinstance(node, nodes.section))
    paragraphs = [at for at, node in enumerate(page) if isinstance(node, nodes.paragraph)]
    # What the page is about and its sections come first.
    page.insert(paragraphs[1] + 1, nodes.raw("", f"{FORM}{embedded(found)}", format="html"))


def named(table: nodes.table) -> Iterator[tuple[str, nodes.entry]]:
    """The first cell of each line, by the names that the data have for the line."""
    heads, *lines = ([cell.astext() for cell in row] for row in table.findall(nodes.row))
    if (part := PARTS.get(heads[0])) is None:
        return
    section = table.parent
    while not isinstance(section, nodes.section):
        section = section.parent
    for row, cells in zip(list(table.findall(nodes.row))[1:], lines, strict=True):
        entry = row[0]
        assert isinstance(entry, nodes.entry)
        if part == "watches":
            yield row_name(part, cells[0], cells[1]), entry
        elif part:
            title = "reconfig" if part == "members" else "session"
            yield row_name(part, title, cells[0]), entry
        else:
            for title in section[0].astext().split("; "):
                yield row_name(part, title, cells[0]), entry


def embedded(found: dict[str, Any]) -> str:
    """The data in the page, so that it works from a disk, too."""
    rows = [{name: row[name] for name in SHOWN if row[name]} for row in found["rows"]]
    for shown, row in zip(rows, found["rows"], strict=True):
        if (flags := flags_of(row)) is not None:
            shown["flags"] = flags
    data = {"failures": found["failures"], "lesson": LESSON, "rows": rows}
    text = json.dumps(data, separators=(",", ":"))
    safe = text.replace("<", "\\u003c")
    return f'<script type="application/json" id="lost-data">{safe}</script>\n'


def add_files(app: Sphinx, page: str, *_: object) -> None:
    """The script and the style are for this page alone."""
    if page == PAGE:
        app.add_js_file("lost.js", loading_method="defer")
        app.add_css_file("lost.css")


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("doctree-read", complete)
    app.connect("html-page-context", add_files)
