"""Tells PyInstaller where the hook is: the names of zkwire are loaded when they are asked for."""

from __future__ import annotations

import os


def get_hook_dirs() -> list[str]:
    """The folder with the hook."""
    return [os.path.dirname(__file__)]
