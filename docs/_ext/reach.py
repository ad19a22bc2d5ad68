"""For readers without eyes or mouse: what the theme and Sphinx leave out.

Sphinx calls each caption of the navigation a heading and names no level, which ARIA asks for.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

AFTER_THE_THEME = 900


def give_levels(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    """Give the captions their level."""
    tree = context["furo_navigation_tree"]
    context["furo_navigation_tree"] = tree.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("html-page-context", give_levels, priority=AFTER_THE_THEME)
    app.add_css_file("reach.css")
    app.add_js_file("scroll.js", loading_method="defer")
