"""When TERM and KILL are due: from the lease alone, or from the news of a loss."""

from signal import SIGKILL, SIGTERM

from zkwire.cli.lock.holding import Deadline

MARGIN, KILL_AFTER = 1.0, 3.0


def test_both_are_due_before_the_lease_ends() -> None:
    deadline = Deadline(MARGIN, KILL_AFTER)
    deadline.prolong(10.0)
    assert (deadline.term_at, deadline.kill_at, deadline.next) == (6.0, 9.0, 6.0)
    assert deadline.due(5.9) is None
    assert deadline.due(6.0) is SIGTERM
    assert deadline.due(8.9) is None
    assert deadline.next == 9.0
    assert deadline.due(9.0) is SIGKILL
    assert deadline.due(99.0) is None


def test_an_answer_in_between_cancels_and_a_shorter_lease_changes_nothing() -> None:
    deadline = Deadline(MARGIN, KILL_AFTER)
    deadline.prolong(10.0)
    deadline.prolong(14.0)
    deadline.prolong(6.0)
    assert deadline.due(9.9) is None
    assert deadline.due(10.0) is SIGTERM


def test_behind_term_no_answer_saves_the_command() -> None:
    deadline = Deadline(MARGIN, KILL_AFTER)
    deadline.prolong(10.0)
    assert deadline.due(6.0) is SIGTERM
    deadline.prolong(99.0)
    assert deadline.due(9.0) is SIGKILL


def test_a_loss_is_no_reason_to_wait_and_leaves_time_for_the_end() -> None:
    deadline = Deadline(MARGIN, KILL_AFTER)
    deadline.prolong(10.0)
    deadline.lose()
    assert deadline.due(1.0) is SIGTERM
    assert deadline.due(3.9) is None
    assert deadline.due(4.0) is SIGKILL


def test_what_wakes_late_kills_at_once_or_as_soon_as_the_lease_wants_it() -> None:
    stopped = Deadline(MARGIN, KILL_AFTER)
    stopped.prolong(10.0)
    assert stopped.due(9.5) is SIGKILL
    late = Deadline(MARGIN, KILL_AFTER)
    late.prolong(10.0)
    assert late.due(8.0) is SIGTERM
    assert late.due(9.0) is SIGKILL


def test_without_a_time_for_term_there_is_kill_alone() -> None:
    deadline = Deadline(MARGIN, 0.0)
    deadline.prolong(10.0)
    assert deadline.due(8.9) is None
    assert deadline.due(9.0) is SIGKILL
