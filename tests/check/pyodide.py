"""Pyodide, a Python for browsers, for the playground of the site: an npm package, 14 MB."""

from __future__ import annotations

from tests.check import npm

VERSION = "314.0.7"
SHA256 = "66b7949e5a0cba2250b586d7e368bf12fb482800748d182c4618254b685ffaa0"
FOLDER = npm.folder_of("pyodide", VERSION)
FILES = (
    *("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm"),
    *("python_stdlib.zip", "pyodide-lock.json", "package.json"),
)
"""What a page needs of the package; the last one names its licence."""


def provide_pyodide() -> bool:
    """Have it in `FOLDER`; False if it cannot be fetched."""
    return npm.provide("pyodide", VERSION, SHA256, FILES)
