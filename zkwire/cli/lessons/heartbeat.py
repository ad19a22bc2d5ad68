"""Lesson 2: pings, and how a session expires."""

from __future__ import annotations

from zkwire import SessionExpiredError, State, Watch
from zkwire.cli.command import duration
from zkwire.cli.lessons.lesson import Flag, Lesson
from zkwire.cli.lessons.stage import TICK, Stage


async def lesson(stage: Stage) -> None:
    """A goes silent, and others learn of it."""
    timeout, tick = 2 * stage.tick, stage.tick
    with stage.quiet("two clients begin"):
        a = stage.client("A", session_timeout=timeout)
        o = stage.client("O", session_timeout=timeout)
        await a.create("/exp")
    await a.create("/exp/e", ephemeral=True)
    watch = Watch()
    await o.exists("/exp/e", watch=watch)
    with stage.quiet("ten timeouts without a request"):
        await stage.sleep(10 * timeout)
    stage.say(f"A has asked for nothing for {10 * timeout:g} s, ten session timeouts, and sent "
              f"{len(stage.frames(a, 'ping', 'c2s'))} pings instead.")  # fmt: skip
    stage.expect(a.lease_remaining() > 0 and not watch.ready, "with pings, nothing expires")

    if stage.flags.half_open:
        stage.ask("A's cable is pulled: nothing arrives, and nothing says so. What can A know?")
        stage.silence(a, 3 * timeout)
    else:
        stage.ask(f"A's process stops for {3 * timeout:g} s. When does O know? When does A?")
        stage.pause(a, 3 * timeout)
    silent, heard = stage.now, stage.frames(a, "ping")[-1].time
    lease = stage.now + a.lease_remaining()
    event = await watch
    late = stage.now - heard
    stage.say(f"O was told {event.type} {late:.3f} s after A's last ping was answered: later "
              f"than the timeout of {timeout:g} s, as a server rounds each deadline up to its tick "
              f"of {tick:g} s.")  # fmt: skip
    stage.expect(timeout - 0.1 <= late <= timeout + tick + 0.1, "a session expires between its "
                 "timeout and a tick later")  # fmt: skip
    stage.expect(stage.now >= lease, "A's own lease, client.lease_remaining(), ended before")
    if stage.flags.half_open:
        lost = next(e.time for e in stage.events if e.kind == "cut" and e.actor == "A")
        stage.say(f"A had ended the connection by itself after {lost - silent:.3f} s of silence: "
                  f"two thirds of its timeout.")  # fmt: skip
        stage.expect(lost - heard <= timeout * 2 / 3 + 0.01, "two thirds of a timeout are enough")
    stage.ask("A goes on. What does it hear about its session?")
    await a.wait_for_state(State.EXPIRED)
    try:
        await a.exists("/exp/e")
    except SessionExpiredError as error:
        stage.say(f"A raised SessionExpiredError: {error}. It had to connect to learn that: "
                  f"the answer has session 0 and a timeout of 0.")  # fmt: skip
    stage.expect(a.state is State.EXPIRED, "A knows that its session is over")
    stage.expect(await stage.children("/exp") == [], "its ephemeral node is gone")


LESSON = Lesson(
    title="pings, and how a session expires",
    cast="A, which has an ephemeral node; O, which watches that node; a server",
    run=lesson,
    remember='only a server can say "expired"; behave as if it could have said so already.',
    in_code="client.state, client.lease_remaining(), and lock.lost, which is told in time.",
    flags=(
        Flag("--tick", "the server's unit of time (2s)", duration, TICK),
        Flag("--half-open", "A's network is silent, and A's process goes on"),
    ),
)
