"""``python3 -m tests.check.wheel``: the wheel and the sdist are what they should be.

Both are built twice, in the end from the unpacked sdist, and come out byte for byte the same; PyPI
would take them; the wheel holds the package, its types and the manual page and nothing else; and on
each Python of this machine it installs without any other package and gives a command that runs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from tests.check.environment import ROOT

FOLDER = ROOT / "build" / "wheel"
OLDEST = 11
_TELL = (
    "import sys; free = not getattr(sys, '_is_gil_enabled', lambda: True)();"
    "print(*sys.version_info[:2], 't' if free else '')"
)
EPOCH = "1700000000"
"""Seconds; any time will do, as long as it is the same for both builds."""

_SMOKE = """
import sys
from pathlib import Path
import zkwire
assert Path(zkwire.__file__).is_relative_to(sys.prefix), zkwire.__file__
from zkwire import *
from zkwire.testing import Server
with Server() as server, Client(server.hosts) as client:
    print(client.create("/smoke", b"", ephemeral=True))
"""

# --- the Pythons of this machine ------------------------------------------------------------------


def found_pythons() -> dict[str, Path]:
    """One of each version from 3.11 on, ``3.14t`` for a free-threaded one: of the path, of pyenv.

    What does not start is none.  With ``ZKWIRE_PYTHONS`` it is those programs, separated by colons,
    and no others.
    """
    if named := os.environ.get("ZKWIRE_PYTHONS"):
        return {
            _version(program) or str(program): program for program in map(Path, named.split(":"))
        }
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    folders = [*map(Path, os.get_exec_path()), *sorted(pyenv.glob("3.*/bin"))]
    found: dict[str, Path] = {}
    for folder in folders:
        for program in sorted(folder.glob("python3.*")):
            if re.fullmatch(r"python3\.\d+t?", program.name) and (name := _version(program)):
                found.setdefault(name, program)
    return dict(sorted(found.items()))


def _version(program: Path) -> str:
    """Its version; empty if it is too old or does not start."""
    told = subprocess.run([program, "-c", _TELL], capture_output=True, text=True, check=False)
    words = told.stdout.split()
    if told.returncode or int(words[1]) < OLDEST:
        return ""
    return f"3.{words[1]}{''.join(words[2:])}"


def make_environment(name: str, python: Path | str, *packages: str) -> Path:
    """A new environment ``name`` with these arguments of pip installed; returns its Python."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    made = folder / "bin" / "python"
    if packages:
        run(made, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return made


def run(*command: Path | str, cwd: Path = ROOT, **variables: str) -> str:
    """Its output; raises CalledProcessError, behind the output, if it fails."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **variables}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout, flush=True)
        done.check_returncode()
    return done.stdout


# --- the packages ---------------------------------------------------------------------------------


def build(tools: Path, name: str) -> dict[str, bytes]:
    """Each package's file name and bytes."""
    to = FOLDER / name
    for old in to.glob("*"):
        old.unlink()
    command = ("-m", "build", "--no-isolation", "--outdir", to, ROOT)
    run(tools, *command, SOURCE_DATE_EPOCH=EPOCH)
    return {file.name: file.read_bytes() for file in sorted(to.iterdir())}


def built_wheel() -> Path:
    """Build both twice and look at them; returns the wheel."""
    requirements = Path(__file__).with_suffix(".txt")
    tools = make_environment("tools", sys.executable, "--requirement", str(requirements))
    first, second = build(tools, "first"), build(tools, "second")
    if differing := [name for name in first if first[name] != second.get(name)]:
        raise SystemExit(f"two builds differ in {', '.join(differing)}")
    packages = [FOLDER / "first" / name for name in first]
    print("the same twice:", *first)
    run(tools, "-m", "twine", "check", "--strict", *packages)
    (wheel,) = (package for package in packages if package.suffix == ".whl")
    if wrong := differences(set(ZipFile(wheel).namelist()), sources()):
        raise SystemExit("\n".join(wrong))
    return wheel


def sources() -> set[str]:
    """The files of the package, as in a wheel."""
    files = [*(ROOT / "zkwire").rglob("*.py"), *(ROOT / "zkwire").rglob("py.typed")]
    files += [*(ROOT / "zkwire/cli").glob("completion.*sh"), ROOT / "zkwire/cli/picture.css"]
    return {str(file.relative_to(ROOT)) for file in files}


def differences(names: set[str], expected: set[str]) -> list[str]:
    """What a wheel with these names in it has too much or too little."""
    own = {name for name in names if ".dist-info/" not in name}
    pages = {name for name in own if name.endswith(".data/data/share/man/man1/zkwire.1")}
    wrong = [] if pages else ["the wheel has no manual page"]
    wrong += [f"the wheel lacks {name}" for name in sorted(expected - own)]
    return [*wrong, *(f"the wheel has {name}" for name in sorted(own - pages - expected))]


def main() -> None:
    wheel = built_wheel()
    for version, python in found_pythons().items():
        made = make_environment(f"smoke-{version}", python, "--no-index", str(wheel))
        told = run(made.with_name("zkwire"), "--version", cwd=FOLDER).strip()
        node = run(made, "-I", "-W", "error", "-c", _SMOKE, cwd=FOLDER).strip()
        page = made.parents[1] / "share" / "man" / "man1" / "zkwire.1"
        if not page.is_file():
            raise SystemExit(f"Python {version}: no {page}")
        print(f"Python {version}: {told}, {node}", flush=True)


if __name__ == "__main__":
    main()
