"""The public names and signatures, as `public_api.txt` has them, and what is generated.

`python3 -m tests.unit.test_public_api` writes that file anew; its difference is what users see.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import zkwire
import zkwire.testing
from tools import generate
from zkwire.jute.record import Record


def test_what_is_generated_is_up_to_date() -> None:
    stale = [str(path) for path, text in generate.everything().items() if path.read_text() != text]
    assert stale == [], "run python3 tools/generate.py"


SPECIAL = {"__init__", "__enter__", "__aenter__", "__iter__", "__aiter__"}
PATH = Path(__file__).with_name("public_api.txt")


def signature_of(function: object) -> str:
    """The parameters without their types: names, kinds and defaults."""
    try:
        found = inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "(...)"
    bare = [
        parameter.replace(annotation=parameter.empty) for parameter in found.parameters.values()
    ]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


def members_of(kind: type) -> Iterator[str]:
    for name in sorted(dir(kind)):
        base = next(b for b in (Record, tuple, object) if issubclass(kind, b))
        if name in dir(base) and name != "__init__":
            continue
        if name.startswith("_") and name not in SPECIAL:
            continue
        member = inspect.getattr_static(kind, name)
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        if callable(member):
            waits = inspect.iscoroutinefunction(member)
            yield f"    {'async ' if waits else ''}{name}{signature_of(member)}"
        elif name != "__init__":
            yield f"    {name}"


def base_of(kind: type) -> str:
    """Its nearest base that users can name, if there is one."""
    named = (base.__name__ for base in kind.__mro__[1:-1] if base.__name__ in zkwire.__all__)
    return next((f"({name})" for name in named), "")


def public_api() -> str:
    lines: list[str] = []
    for module in (zkwire, zkwire.testing):
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if isinstance(value, type):
                lines.append(f"class {module.__name__}.{name}{base_of(value)}")
                shown = not (issubclass(value, BaseException) or issubclass(value, Enum))
                lines += members_of(value) if shown else ()
            elif callable(value):
                lines.append(f"def {module.__name__}.{name}{signature_of(value)}")
            else:
                lines.append(f"{module.__name__}.{name}")
    return "\n".join(lines) + "\n"


def test_public_names_and_signatures_are_as_written() -> None:
    assert public_api() == PATH.read_text()


if __name__ == "__main__":
    PATH.write_text(public_api())
