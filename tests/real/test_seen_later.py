"""A server whose data are older than what the client has seen, as after a restart without them."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.support.command_lines import interpreter_of
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll
from zkwire.testing import Server


def test_hazard_A54_a_shell_begins_anew_after_a_restart_without_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with closing(interpreter_of()) as shell:
        shell.at_terminal = True
        with Server() as server:
            port = server.port
            shell.context.options.session_timeout = 1.0
            shell.connect(server.hosts)
            assert shell.run_line("create /former") == 0
            capsys.readouterr()
        client = shell.context.client
        poll("the loss was noticed", lambda: not client.state.usable or None, PATIENCE)
        with Server(port=port) as server:
            assert shell.run_line("ls /") == 3
            said = capsys.readouterr().err.splitlines()[-1]  # behind those about the connection
            assert "older than zxid" in said
            assert said.endswith("`reconnect` starts a new session")
            assert shell.run_line("reconnect; ls /") == 0
            assert capsys.readouterr().out == "zookeeper\n"
