"""What a shell may do at a moment when it means nothing, or has no other test of the session."""

from __future__ import annotations

import pytest

from tests.support.scripted import TERMINAL, Claim, Script, script_in
from zkwire.wire.model import State


@pytest.mark.parametrize("state", TERMINAL)
def test_a_session_that_is_over_is_not_closed_again(state: State) -> None:
    script = script_in(state)
    script.session.closed()
    assert script.state is state


def test_a_mechanism_that_answers_too_late_is_not_heard(script: Script) -> None:
    script.session.sasl_token(b"late")
    script.session.sasl_done(script.now)
    script.session.sasl_failed("late")
    assert script.state is State.CONNECTED
    assert not script.session.has_output


def test_a_server_that_hangs_up_on_a_login_may_have_refused_it() -> None:
    """ZooKeeper 3.4 does so; a network that fails says nothing of the password."""
    script = Script(sasl=True)
    for why, said in [("the server closed it", True), ("no route to host", False)]:
        script.dial()
        script.welcome()
        script.session.sasl_token(b"proof")
        script.flush()
        script.lose(why=why)
        assert script.session.last_failure.partition(" and ")[0].endswith(why)
        assert (
            "perhaps the user name or the password is wrong" in script.session.last_failure
        ) is said


def test_a_function_is_called_in_its_place_among_the_wakeups() -> None:
    script = script_in(State.HANDSHAKE)
    script.session.callbacks.append(lambda: script.log.append("called"))
    script.log_when_ready(script.session.change, "changed")
    script.welcome()
    assert script.wake() == ["called", "changed"]


def test_a_session_knows_whether_anything_is_held() -> None:
    script, claim = script_in(State.CONNECTED), Claim()
    script.session.hold(claim)
    assert script.session.lease_holders
    script.session.unhold(claim)
    assert not script.session.lease_holders
