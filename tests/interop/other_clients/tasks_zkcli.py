"""The tasks by ZooKeeper's own shell, through its standard input.

    tasks_zkcli.py JAVA CLASSPATH [--brief] HOSTS

With `--brief` no session is cut off and none expires, which takes seconds.
Its output has no marks between commands: after each this asks for a node whose data is the mark.
Watch events come on a thread of their own, and are told where they are waited for: after a change
this makes a node that has a watch; all events before that node's have then come.
"""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import count
from pathlib import Path

MARK = "mark-of-the-end"
CONNECTED = "SyncConnected None null"
HIDDEN = re.compile(r"[cm]time = .*|[cm]Zxid = .*|pZxid = .*|WATCHER::|Connecting to .*|")
OWNED = re.compile(r"(ephemeralOwner = 0x)[1-9a-f][0-9a-f]*")
EVENT = re.compile(r"WatchedEvent state:(\w+) type:(\w+) path:(\S+)")

COMMANDS = Path(__file__).parent / "zkcli.txt"


class Shell:
    """zkCli, its commands one after another."""

    def __init__(self, java: str, classpath: str, hosts: str) -> None:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
        light = ("-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        main = ("org.apache.zookeeper.ZooKeeperMain", "-timeout", "10000", "-server", hosts)
        self._process = subprocess.Popen(
            [java, *light, quiet, "-cp", classpath, *main],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._events: list[str] = []
        self._numbers = count()

    def line(self) -> str | None:
        """The next line that is none of an event's; None where an event has come."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError("zkCli has ended")
        if event := EVENT.search(line):
            self._events.append(" ".join(event.groups()))
            return None
        return line.rstrip("\n")

    def send(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def run(self, command: str) -> list[str]:
        """What a command says."""
        self.send(command)
        self.send("get /mark")
        said: list[str] = []
        while (line := self.line()) != MARK:
            if line is not None and not HIDDEN.fullmatch(line):
                said.append(OWNED.sub(r"\1...", line))
        return said

    def event(self) -> str:
        """The next event."""
        while not self._events:
            self.line()
        return self._events.pop(0)

    def events(self) -> list[str]:
        """All that have come, or are on their way."""
        last = f"/last-{next(self._numbers)}"
        self.run(f"stat -w {last}")
        self.run(f"create {last}")
        found: list[str] = []
        while not (event := self.event()).endswith(last):
            found.append(event)
        return found

    def changes(self, until: str) -> list[str]:
        """The states of the session until this one, each once.

        Without that of the session that `connect` leaves: it comes before or after the new one's.
        """
        found = [self.event()]
        while found[-1] != until:
            found.append(self.event())
        return [state for state in dict.fromkeys(found) if not state.startswith("Closed")]

    def end(self) -> int:
        self.send("quit")
        assert self._process.stdout is not None
        self._process.stdout.read()
        return self._process.wait()


def tell(task: str, call: str, result: list[str]) -> None:
    if call.startswith("getEphemerals"):  # in the order of a Java set
        result = [", ".join(sorted(line.strip("[]").split(", "))) for line in result]
    print(f"{task}: {call} = {' | '.join(result)}", flush=True)


def ask(request: str) -> None:
    print(f"! {request}", flush=True)
    sys.stdin.readline()


def nodes_and_watches(shell: Shell) -> None:
    """The commands of the file; under a heading in pointed brackets each with the events after."""
    task, watching = "", False
    for line in COMMANDS.read_text().splitlines():
        if heading := re.fullmatch(r"[\[<](\w+)[\]>]", line):
            task, watching = heading[1], line.startswith("<")
        elif line and not line.startswith("#"):
            tell(task, line, shell.run(line))
            if watching and (events := shell.events()):
                tell(task, "events", events)


def sessions(shell: Shell, hosts: str) -> None:
    """Cut off, expired, closed, and in a part of the tree."""
    for command in ("create /t/cut x", "create -e /t/mine x", "get -w /t/cut", "ls -w /t"):
        tell("cut", command, shell.run(command))
    ask("cut /t/cut")
    tell("cut", "states", shell.changes(CONNECTED))
    tell("cut", "events", shell.events())
    tell("cut", "stat /t/mine", shell.run("stat /t/mine"))
    tell("cut", "create /t/after", shell.run("create /t/after"))
    tell("cut", "events", shell.events())
    ask("expire /t/mine")
    tell("expiry", "states", shell.changes("Expired None null"))
    shell.send("stat /t")
    while (line := shell.line()) is None or HIDDEN.fullmatch(line):
        pass
    tell("expiry", "stat /t", [line])
    shell.send(f"connect {hosts}")
    tell("expiry", "connect", shell.changes(CONNECTED))
    for command in ("stat /t/mine", "create -e /t/mine x", "getEphemerals"):
        tell("expiry", command, shell.run(command))
    shell.send(f"connect {hosts}/t")
    tell("close", "connect", shell.changes(CONNECTED))
    shell.run(f"create /mark {MARK}")
    for command in ("stat /mine", "ls /", "create -s /s- x", "get -s /cut", "stat /t", "ls -R /c"):
        tell("chroot", command, shell.run(command))
    shell.send("close")


def main() -> int:
    java, classpath, *options, hosts = sys.argv[1:]
    shell = Shell(java, classpath, hosts)
    tell("connect", "states", shell.changes(CONNECTED))
    shell.send(f"create /mark {MARK}")
    shell.run("version")
    nodes_and_watches(shell)
    if "--brief" not in options:
        sessions(shell, hosts)
    return shell.end()


if __name__ == "__main__":
    sys.exit(main())
