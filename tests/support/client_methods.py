"""What an editor is told of the methods of ``Client``: their signatures, written out.

    python3 -m tests.support.client_methods

writes them into zkwire/blocking/client.py. There a method is made of a coroutine or of an operation
when the module is loaded, which a program that only reads the source cannot follow.
"""

from __future__ import annotations

import inspect
import re
import sys
from enum import Enum
from pathlib import Path
from typing import Any

from zkwire.net.client import ClientCoroutines
from zkwire.operations import Operations

PATH = Path(__file__).resolve().parents[2] / "zkwire" / "blocking" / "client.py"
MADE = re.compile(r"^ +(\w+) = (?:in_thread|operation|iterator)\((\w+)\.\w+\)$", re.MULTILINE)
BLOCK = re.compile(
    r"(?<=        # <methods: tests/support/client_methods.py>\n).*?(?=        # </methods>)",
    re.DOTALL,
)
SOURCES: dict[str, Any] = {"ClientCoroutines": ClientCoroutines, "Operations": Operations}


def parameter(given: inspect.Parameter) -> str:
    """One parameter as it is written."""
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(given.kind.name, "")
    text = f"{stars}{given.name}"
    if given.annotation is not inspect.Parameter.empty:
        text += f": {given.annotation}"
    if given.default is not inspect.Parameter.empty:
        default = given.default
        text += f" = {default if isinstance(default, Enum) else repr(default)}"
    return text


def stated(name: str, source: str) -> str:
    """The definition of one method, without a body."""
    function = getattr(SOURCES[source], name)
    signature = inspect.signature(function)
    returned = str(signature.return_annotation)
    returned = re.sub(r"^Reply\[(.*)\]$", r"\1", returned).removeprefix("Async")
    parameters, keyword_only = [], False
    for given in signature.parameters.values():
        if given.kind.name == "VAR_POSITIONAL":
            keyword_only = True
        if given.kind.name == "KEYWORD_ONLY" and not keyword_only:
            parameters.append("*")
            keyword_only = True
        parameters.append(parameter(given))
    return f"        def {name}({', '.join(parameters)}) -> {returned}: ...\n"


def written(text: str) -> str:
    """The module with the definitions as they follow from what the methods are made of."""
    lines = "".join(stated(name, source) for name, source in MADE.findall(text))
    if len(BLOCK.findall(text)) != 1:
        raise ValueError(f"{PATH.name} has no place for the methods")
    return BLOCK.sub(lambda _: lines, text)


def without_layout(text: str) -> str:
    """The block without spaces and line breaks, which a formatter decides."""
    (block,) = BLOCK.findall(text)
    return re.sub(r",(?=\))", "", re.sub(r"\s+", "", block))


if __name__ == "__main__":
    PATH.write_text(written(PATH.read_text()))
    sys.exit()
