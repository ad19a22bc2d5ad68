"""All that programs write into the documents: by itself, or compared with what stands there.

    python3 -m tests.support.pages

writes the pages and pictures that follow from zkwire and from what is kept of earlier runs.  Pages
about other releases and clients have programs of their own, which run these.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.check.environment import ROOT
from tests.hazards import table as hazards
from tests.interop.atlas import document as atlas
from tests.interop.matrix import settings
from tests.interop.matrix import table as matrix
from tests.interop.neighbours import table as neighbours
from tests.interop.pages import DOCUMENTS, table, with_parts
from tests.support import man_page, speed_pictures, wire_pages
from tests.support.pictures import PICTURES, lesson_says
from tests.unit.test_layers import LAYERS
from zkwire.cli.lessons.lesson import TABLE, find


def first_sentence(file: Path) -> str:
    """What a module says first of itself, up to the first full stop or colon that ends a line."""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`")


def packages() -> dict[str, str]:
    """A line for each layer: its name, its files, what its docstring says first."""
    rows = []
    for layer in LAYERS:
        folder = ROOT / "zkwire" / layer
        file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        if layer == "zkwire":
            file = ROOT / "zkwire" / "__init__.py"
        name = f"{layer}/" if folder.is_dir() else file.name
        rows.append((f"`{name}`", first_sentence(file)))
    return {"layers": table(("package", "what it is"), rows)}


def lessons() -> dict[str, str]:
    """Their table, their links (in HTML: the playground is a page of the site), one of them whole,
    and what each of them says in the end.
    """
    rows = [
        (
            f"`{name}`",
            minutes,
            about,
            "<br>".join(f"`{flag.name}`: {flag.does}" for flag in find(name).flags),
        )
        for name, (minutes, about) in TABLE.items()
    ]
    links = [f'<a href="playground.html#lesson={name}">{name}</a>' for name in TABLE]
    return {
        "list": table(("lesson", "minutes", "", "its own flags"), rows),
        "open": f"On the site, each opens there: {', '.join(links)}.\n",
        "take": f"```text\n$ zkwire lesson lost-reply\n{lesson_says('lost-reply')}```\n",
        "said": "".join(f"1. `{name}`: *{find(name).remember}*\n" for name in TABLE),
    }


def parts_of(path: Path, parts: Callable[[], dict[str, str]]) -> Callable[[], dict[Path, str]]:
    """The page with these parts as they are now."""
    return lambda: {path: with_parts(path.read_text(), parts())}


def picture(name: str) -> dict[Path, str]:
    return {DOCUMENTS / f"{name}.svg": PICTURES[name]()}


OURS: dict[str, Callable[[], dict[Path, str]]] = {
    "the packages": parts_of(DOCUMENTS / "design.md", packages),
    "the lessons": parts_of(DOCUMENTS / "lessons.md", lessons),
    "the manual page": lambda: {man_page.PATH: man_page.page()},
    "the frames": parts_of(wire_pages.PATH, wire_pages.tables),
    "the exchanges": lambda: {wire_pages.REFERENCE: wire_pages.reference()},
    "the speed": parts_of(speed_pictures.PAGE, speed_pictures.parts),
    **{name: partial(picture, name) for name in PICTURES},
}
OTHERS: dict[str, Callable[[], dict[Path, str]]] = {
    "tests.hazards.table": lambda: {hazards.DOCUMENT: hazards.document()},
    "tests.interop.atlas.document": lambda: {
        atlas.PATH: atlas.replaced(atlas.PATH.read_text(), atlas.stored())
    },
    "tests.interop.neighbours.contend": lambda: neighbours.pages(neighbours.stored()),
    "tests.interop.matrix --write": lambda: {
        matrix.DOCUMENT: matrix.replaced(matrix.DOCUMENT.read_text(), matrix.stored())
    },
    "tests.interop.matrix.settings --write": lambda: {
        settings.DOCUMENT: settings.replaced(settings.DOCUMENT.read_text(), settings.stored())
    },
}
"""By the module that writes them."""


def main() -> None:
    for made in OURS.values():
        for path, text in made().items():
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
