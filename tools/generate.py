#!/usr/bin/env python3
"""Writes what follows from the recipes and the operations: their methods for threads, their names.

    python3 tools/generate.py            write
    python3 tools/generate.py --check    fail, and name the files, if one is not up to date

A recipe is declared once, as a public class ``Async…`` in ``zkwire/recipes/``.  From that follow
the modules of ``zkwire/blocking/`` that GROUPS names (the class without ``Async``: the same
signatures, types and docstrings, each coroutine run in the caller's thread), and the names in
``zkwire/__init__.py`` and ``docs/api.md``.

An operation is declared once, as a method of ``zkwire.operations.Operations``.  From that, and from
the coroutines of ``ClientCoroutines``, follow the methods of ``Client``; from ``AsyncNodeWatches``
follows what clients and supervisors for threads watch with.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
BLOCKING = ROOT / "zkwire" / "blocking"
CLIENT = BLOCKING / "client.py"
EXPORTS = ROOT / "zkwire" / "__init__.py"
API = ROOT / "docs" / "api.md"

HEADER = '''"""The recipes, for threads.  Written by `tools/generate.py`: do not edit.

Each class runs the coroutines of the class ``Async…`` of the same name in the caller's thread.
"""

from __future__ import annotations

{imports}

TYPE_CHECKING = False
if TYPE_CHECKING:
{typing}
'''
GROUPS = {
    "locks": ["_lock", "sequential", "locks", "read_write", "semaphore"],
    "services": ["cache", "watching", "membership", "persistent_node", "partitioner"],
}
"""The modules for threads, and the recipes of each; all other recipes are in ``classic``."""
ONLY_ASYNC = {"cancel_on_loss"}
"""Methods that cancel a task: threads have none."""
OVERRIDES = "  # pyright: ignore[reportIncompatibleVariableOverride]"
NOT_PUBLIC = {
    *("AsyncPathLock", "AsyncQueueLock", "AsyncReadLock", "AsyncWriteLock"),
    "AsyncCacheEvents",
}
"""Classes that users meet and do not name."""
SPECIAL = {
    *("__aiter__", "__bool__", "__contains__", "__getitem__", "__iter__", "__len__", "__repr__"),
}
CLIENTS = {"AsyncClientLike": "ClientLike"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def for_threads(text: str) -> str:
    """Prose, examples and annotations of an asynchronous class, as they are for threads."""
    for old, new in CLIENTS.items():
        text = re.sub(rf"\b{old}\b", new, text)
    text = re.sub(r"\bAsync(Generator|Iterator)\[(.+?), None\]", r"Iterator[\2]", text)
    for old, new in (("async with ", "with "), ("async for ", "for "), ("await ", "")):
        text = text.replace(old, new)
    text = re.sub(r"(?<!`)``async with``", "``with``", text)
    text = text.replace("AbstractAsyncContextManager", "AbstractContextManager")
    return re.sub(r"\bAsync([A-Z]\w+)", r"\1", text)


def parsed(function: Any) -> Function:
    """The definition of a function, as it stands in its file."""
    node = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef), function
    return node


def declared(kind: type[Any], name: str, function: Any) -> tuple[Function, ModuleType]:
    """The definition of a method, or its declaration for type checkers, and where that stands."""
    for owner in kind.__mro__:
        if not owner.__module__.startswith("zkwire."):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                for stub in node.body:
                    if isinstance(stub, Function) and stub.name == name:
                        return stub, sys.modules[owner.__module__]
        if name in vars(owner):
            break
    return parsed(function), sys.modules[inspect.unwrap(function).__module__]


@cache
def imports_of(module: ModuleType) -> dict[str, str]:
    """Where each name that a module has comes from; of a name of its own, itself."""
    tree = ast.parse(inspect.getsource(module))
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.update({alias.asname or alias.name: node.module for alias in node.names})
        elif isinstance(node, ast.ClassDef):
            found[node.name] = module.__name__
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, module.__name__)
    return found


class Recipe:
    """One public class of a recipe."""

    def __init__(self, kind: type[Any]) -> None:
        self.kind, self.name = kind, kind.__name__
        self.blocking = self.name.removeprefix("Async")
        self.home: str = kind.__module__
        module = self.home.rpartition(".")[2]
        self.group = next((g for g, modules in GROUPS.items() if module in modules), "classic")
        self.parent = next((k for k in kind.__mro__[1:] if is_declaration(k)), object)
        self.imports: dict[str, str] = {self.name: self.home}
        self.typing: dict[str, str] = {}

    def members(self) -> Iterator[tuple[str, Any]]:
        """What users call; in the order of the definitions."""
        seen = set[str]()
        for owner in self.kind.__mro__:
            inherited = issubclass(self.parent, owner)
            if inherited or not owner.__module__.startswith("zkwire."):
                continue
            for name, member in vars(owner).items():
                if name in seen or (name.startswith("_") and name not in SPECIAL):
                    continue
                if code_of(member) is not None and code_of(member) is code_of(
                    getattr(self.parent, name, None)
                ):
                    continue  # inherited: `public` has copied it
                seen.add(name)
                if name not in ONLY_ASYNC:
                    yield name, member

    def bases(self) -> list[str]:
        """What it inherits from: how it names itself, and is entered by a ``with``."""
        if self.parent is not object:
            return [self.parent.__name__.removeprefix("Async")]
        found = {"Recipe": "zkwire.recipes._recipe"}
        if issubclass(self.kind, Mapping):
            found["Mapping"] = "collections.abc"
        if hasattr(self.kind, "__aenter__"):
            found["With"] = "zkwire.blocking.sync"
        if hasattr(self.kind, "size"):
            found["Sized"] = "zkwire.blocking.sync"
        self.imports |= found
        return ["Mapping[str, int]" if name == "Mapping" else name for name in found]

    def written(self, wrappers: set[str]) -> str:
        """The source of the class for threads."""
        bases = self.bases()
        doc = for_threads(inspect.cleandoc(self.kind.__doc__ or ""))
        doc = re.sub(r"\b([Tt])ask(s?)\b", lambda m: f"{'Tt'[m[1] == 't']}hread{m[2]}", doc)
        lines = [
            f"class {self.blocking}{f'({chr(44).join(bases)})' if bases else ''}:",
            textwrap.indent(f'"""{doc}\n"""' if "\n" in doc else f'"""{doc}"""', "    "),
            "",
            f"    _algorithm: {self.name}" + OVERRIDES * (self.parent is not object),
            "",
            *self.constructor(),
        ]
        for name, member in self.members():
            lines += [*self.method(name, member, wrappers), ""]
        return "\n".join(lines)

    def constructor(self) -> list[str]:
        function = self.kind.__init__
        node, module = declared(self.kind, "__init__", function)
        parameters = [argument.arg for argument in node.args.args]
        if node.args.vararg is not None:
            return self.constructor_of_several(node.args.vararg)
        if parameters[1:2] != ["client"] or self.name in NOT_PUBLIC:
            return []  # or another recipe makes it
        self.note_types(module, node)
        self.imports["core_of"] = "zkwire.blocking.sync"
        arguments = passed(node.args).replace("client", "core_of(client)", 1)
        return [
            f"    def __init__({for_threads(ast.unparse(node.args))}) -> None:",
            f"        self._algorithm = {self.name}({arguments})"
            + OVERRIDES * (self.parent is not object),
            "",
        ]

    def constructor_of_several(self, argument: ast.arg) -> list[str]:
        """Of what is made of other recipes; these are an attribute of it."""
        name, kind = argument.arg, for_threads(ast.unparse(argument.annotation or argument))
        self.imports["algorithms_of"] = "zkwire.blocking.sync"
        arguments = f'{name}, "{self.blocking}", {kind}'
        return [
            f"    def __init__(self, *{name}: {kind}) -> None:",
            f"        self._algorithm = {self.name}(*algorithms_of({arguments}))",
            f"        self.{name} = {name}",
            "",
        ]

    def method(self, name: str, member: Any, wrappers: set[str]) -> list[str]:
        """One method or property, which runs that of the algorithm."""
        is_property = isinstance(member, property)
        function = member.fget if is_property else member
        node, module = declared(self.kind, name, function)
        self.note_types(module, node)
        returns = ast.unparse(node.returns) if node.returns else "None"
        target = "__iter__" if name == "__aiter__" else name
        call = f"self._algorithm.{name}"
        if not is_property:
            call += f"({passed(node.args)})"
        if "AsyncGenerator" in returns or "AsyncIterator" in returns:
            self.imports["iterate"] = "zkwire.blocking.sync"
            call = f"iterate({call})"
        elif isinstance(node, ast.AsyncFunctionDef):
            self.imports["complete"] = "zkwire.blocking.sync"
            given = passed(node.args)
            call = f"complete(self._algorithm.{name}{', ' * bool(given)}{given})"
        each = re.fullmatch(r"AsyncGenerator\[(\w+), None\]", returns)
        if each is not None and each[1] in wrappers:
            self.imports["each_wrapped"] = "zkwire.blocking.sync"
            call = f"each_wrapped({for_threads(each[1])}, {call})"
        if returns.startswith("AbstractAsyncContextManager"):
            self.imports["Entered"] = "zkwire.blocking.sync"
            call = f"Entered({call}, self)"
        elif (wrapper := returns.removesuffix(" | None")) in wrappers:
            self.imports["wrapped"] = "zkwire.blocking.sync"
            call = f"wrapped({for_threads(wrapper)}, {call})"
        doc = for_threads(inspect.getdoc(member) or "")
        if name.startswith("__") and not member.__doc__:
            doc = ""
        if name == "__repr__":
            call += '.replace("Async", "", 1)'
        body = textwrap.indent(f'"""{doc}\n"""' if "\n" in doc else f'"""{doc}"""', " " * 8)
        return [
            *["    @property"] * is_property,
            f"    def {target}({for_threads(ast.unparse(node.args))}) -> {for_threads(returns)}:",
            *[body] * bool(doc),
            f"        {'return ' * (returns != 'None')}{call}",
        ]

    def note_types(self, module: ModuleType, node: Function) -> None:
        """Where the names come from that the annotations and the defaults have."""
        known = imports_of(module)
        annotations = ast.unparse(node.args) + " " + (ast.unparse(node.returns or node.args))
        for name in re.findall(r"\b[A-Za-z_]\w*\b", annotations):
            plain = for_threads(name)
            if name in CLIENTS:
                self.typing["ClientLike"] = "zkwire.blocking.sync"
            elif plain == "Iterator" or name in ("AsyncGenerator", "AsyncIterator"):
                self.typing["Iterator"] = "collections.abc"
            elif name in known and plain == name:
                self.typing[name] = known[name]
            elif plain == "AbstractContextManager":
                self.typing[plain] = "contextlib"


def code_of(member: Any) -> Any:
    """The code of a function; None for anything else."""
    return getattr(member, "__code__", None)


def passed(arguments: ast.arguments) -> str:
    """The arguments of the call that passes all parameters on."""
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][1:]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    return ", ".join([*names, *(f"{a.arg}={a.arg}" for a in arguments.kwonlyargs)])


def is_declaration(kind: object) -> bool:
    """Whether it is a class from which one for threads follows."""
    return (
        isinstance(kind, type)
        and re.match(r"Async[A-Z]", kind.__name__) is not None
        and kind.__module__.startswith("zkwire.recipes.")
        and kind.__name__ != "AsyncClientLike"
    )


def recipes() -> list[Recipe]:
    """All of them, each after those that it inherits from."""
    import zkwire.recipes

    found: dict[type[Any], None] = {}
    for info in pkgutil.walk_packages(zkwire.recipes.__path__, "zkwire.recipes."):
        for kind in list(vars(import_module(info.name)).values()):
            if is_declaration(kind):
                found |= dict.fromkeys(k for k in reversed(kind.__mro__) if is_declaration(k))
    return [Recipe(kind) for kind in found]


def aliases(found: list[Recipe]) -> dict[str, Recipe]:
    """Second names, such as AsyncLock, and the recipe that each stands for."""
    return {
        name: recipe
        for recipe in found
        for name, value in vars(sys.modules[recipe.home]).items()
        if value is recipe.kind and name != recipe.name
    }


def blocking_module(group: str, everywhere: list[Recipe]) -> str:
    """The text of the module for threads of one group of recipes."""
    wrappers = {recipe.name for recipe in everywhere}
    found = [recipe for recipe in everywhere if recipe.group == group]
    classes = [recipe.written(wrappers) for recipe in found]
    imports: dict[str, str] = {}
    typing: dict[str, str] = {}
    for recipe in found:
        imports |= recipe.imports
        typing |= recipe.typing
    own = {recipe.blocking for recipe in found}
    imported = [f"from {module} import {name}" for name, module in sorted(imports.items())]
    checked = [
        f"    from {module} import {name}"
        for name, module in sorted(typing.items())
        if name not in imports and name not in own
    ]
    head = HEADER.format(imports="\n".join(imported), typing="\n".join(checked))
    second = [f"{n.removeprefix('Async')} = {r.blocking}" for n, r in aliases(found).items()]
    return head + "\n\n" + "\n\n".join([*classes, *second])


def formatted(source: str, *rules: str) -> str:
    """As the project's formatter has it, with what breaks one of these rules mended."""
    if find_spec("ruff") is None:
        sys.exit("ruff is missing: run `python3 check.py lint` once, then `.venv-check/bin/python`")
    mend = [["check", "-q", "--fix-only", "--select", rule] for rule in rules]
    for command in (*mend, ["format", "-q"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", "x.py", "-"],
            input=source,
            text=True,
            capture_output=True,
            check=True,
            cwd=ROOT,
        )
        source = done.stdout
    return source


def between(text: str, begin: str, end: str, lines: list[str]) -> str:
    """``text`` with these lines between two that stay."""
    before, rest = text.split(begin + "\n")
    return "\n".join([before + begin, *lines, end + rest.split(end)[1]])


def exports(found: list[Recipe]) -> str:
    """The text of `zkwire/__init__.py`."""
    public = {recipe.name: recipe for recipe in found if recipe.name not in NOT_PUBLIC}
    public |= aliases(found)
    homes: dict[str, list[str]] = {}
    for name, recipe in sorted(public.items()):
        homes.setdefault(f"blocking.{recipe.group}", []).append(name.removeprefix("Async"))
        homes.setdefault(recipe.home.removeprefix("zkwire."), []).append(name)
    table = [f"    {entry!r},".replace("'", '"') for entry in homes.items()]
    begin, end = "    # <recipes: tools/generate.py>", "    # </recipes>"
    text = between(EXPORTS.read_text(), begin, end, table)
    by_module: dict[str, list[str]] = {}
    for module, group in re.findall(r'\(\s*"([\w.]+)",\s*\[([^]]*)\]', text):
        by_module.setdefault(module, []).extend(re.findall(r'"(\w+)"', group))
    typed = [
        f"    from zkwire.{module} import {name} as {name}"
        for module, names in sorted(by_module.items())
        for name in names
    ]
    begin, end = "    # <names: tools/generate.py>", "    # </names>"
    text = between(text, begin, end, typed)
    # mypy and others read only an ``__all__`` that is written out.
    listed = [name for names in by_module.values() for name in names]
    listed.sort(key=lambda name: (not name.isupper(), name[0].islower(), name))  # as ruff wants it
    written = [
        "__all__ = [",
        *textwrap.wrap(
            ", ".join(f'"{name}"' for name in listed) + ",",
            width=96,
            initial_indent="    ",
            subsequent_indent="    ",
        ),
    ]
    begin, end = "# <all: tools/generate.py>", "# </all>"
    return formatted(between(text, begin, end, [*written, "]  # fmt: skip"]), "I")


def api_page(found: list[Recipe]) -> str:
    """The text of `docs/api.md`."""
    public = [recipe for recipe in found if recipe.name not in NOT_PUBLIC]
    text = API.read_text()
    for group in dict.fromkeys(recipe.group for recipe in found):
        homes = dict.fromkeys(recipe.home for recipe in public if recipe.group == group)
        names = [f"blocking.{group}", *(home.removeprefix("zkwire.") for home in homes)]
        text = re.sub(rf"(?<=```{{api}} )blocking\.{group}\b.*", " ".join(names), text)
    return text


def parameter(given: inspect.Parameter) -> str:
    """One parameter of a method of the client, as it is written."""
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(given.kind.name, "")
    default = given.default
    text = f"{stars}{given.name}: {given.annotation}" if given.name != "self" else "self"
    if default is not inspect.Parameter.empty:
        text += f" = {default if isinstance(default, Enum) else repr(default)}"
    return text


def stated(function: Any) -> str:
    """The definition of a method of the client, without a body."""
    signature = inspect.signature(function)
    returned = re.sub(r"^Reply\[(.*)\]$", r"\1", signature.return_annotation).removeprefix("Async")
    given = signature.parameters.values()
    parameters = [parameter(one) for one in given]
    named = [index for index, one in enumerate(given) if one.kind.name == "KEYWORD_ONLY"]
    if named and not any(one.kind.name == "VAR_POSITIONAL" for one in given):
        parameters.insert(named[0], "*")
    return f"        def {function.__name__}({', '.join(parameters)}) -> {returned}: ..."


def client() -> str:
    """The text of `zkwire/blocking/client.py`.

    Its methods are made when it is loaded, which a program that only reads the source, such as an
    editor, cannot follow: so their signatures are written out.
    """
    from zkwire.aio.client import AsyncNodeWatches
    from zkwire.net.client import ClientCoroutines
    from zkwire.operations import Operations

    watches = inspect.getsource(AsyncNodeWatches).replace("AsyncNode", "ThreadNode")
    watches = for_threads(watches).replace("recipes.watching", "blocking.services")
    begin, end = "# <watches: tools/generate.py>", "# </watches>"
    text = between(CLIENT.read_text(), begin, end, [watches])
    typed, made = list[str](), list[str]()
    for owner in (ClientCoroutines, *Operations.__mro__):
        source = ClientCoroutines if owner is ClientCoroutines else Operations
        for name, function in vars(owner).items():
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            how = "operation" if source is Operations else "iterator"
            how = "in_thread" if inspect.iscoroutinefunction(function) else how
            typed.append(stated(function))
            made.append(f"        {name} = {how}({source.__name__}.{name})")
    begin, end = "    # <methods: tools/generate.py>", "    # </methods>"
    lines = ["    if TYPE_CHECKING:", "", *typed, "", "    else:", *made]
    return formatted(between(text, begin, end, lines))


def everything() -> dict[Path, str]:
    """Each file that follows from the recipes and operations, with its text."""
    found = recipes()
    groups = dict.fromkeys(recipe.group for recipe in found)
    modules = {BLOCKING / f"{group}.py": blocking_module(group, found) for group in groups}
    return {
        **{path: formatted(text, "I,F401") for path, text in modules.items()},
        EXPORTS: exports(found),
        API: api_page(found),
        CLIENT: client(),
    }


def main() -> int:
    """Write, or with ``--check`` compare."""
    stale = {p: t for p, t in everything().items() if not p.exists() or p.read_text() != t}
    for path, text in stale.items():
        if "--check" in sys.argv:
            print(f"{path.relative_to(ROOT)} is not up to date: run python3 tools/generate.py")
        else:
            path.write_text(text)
    return bool(stale) if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
