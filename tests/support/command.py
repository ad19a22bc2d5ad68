"""Runs a command of zkwire in this process, with streams of its own."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import patch

from zkwire.cli.main import main


class Ran(NamedTuple):
    """The exit status of a command, and what it has written."""

    status: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of standard output."""
        return self.out.decode().splitlines()

    @property
    def record(self) -> Any:
        """The one JSON object on standard output."""
        return json.loads(self.out)


def run(server: str, *words: str, stdin: bytes = b"") -> Ran:
    """Run ``zkwire WORDS`` with this server; its output goes into a pipe, as far as it knows."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    with redirect_stdout(out), redirect_stderr(err), patch("sys.stdin", given):
        status = main(["--server", server, *words])
    out.flush()
    return Ran(status, out.buffer.getvalue(), err.getvalue())
