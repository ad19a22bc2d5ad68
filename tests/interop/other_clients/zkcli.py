"""The commands of `zkcli.txt` by ZooKeeper's own shell, through its standard input.

Its output has no marks between commands: after each this asks for a node whose data is the mark.
Watch events come on a thread of their own, and are told where they are waited for: after a change
this makes a node that has a watch; all events before that node's have then come.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from itertools import count
from pathlib import Path

from tests.interop.other_clients.clients import NoClientError
from tests.support.installed_servers import DEBIAN_JARS, _leash

LIMIT = 120.0
"""Seconds for all; 20 on a machine that has nothing else to do."""
MARK = "mark-of-the-end"
HIDDEN = re.compile(r"[cm]time = .*|[cm]Zxid = .*|pZxid = .*|WATCHER::|Connecting to .*|")
OWNED = re.compile(r"(ephemeralOwner = 0x)[1-9a-f][0-9a-f]*")
EVENT = re.compile(r"WatchedEvent state:(\w+) type:(\w+) path:(\S+)")
COMMANDS = Path(__file__).with_name("zkcli.txt")


def provide() -> list[str]:
    """Its command; Debian's, for a folder of jars may lack what it needs beside the client."""
    java, debian = shutil.which("java"), DEBIAN_JARS / "zookeeper.jar"
    if java is None or not debian.exists():
        raise NoClientError(f"no `java` or no {debian} (Debian's package `zookeeper`)")
    light = ("-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    quiet = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off",)
    classes = ("-cp", f"{debian}:{DEBIAN_JARS}/slf4j-nop.jar")
    return [*_leash(), java, *light, *quiet, *classes, "org.apache.zookeeper.ZooKeeperMain"]


class Shell:
    """zkCli, its commands one after another; EOFError when it has ended."""

    def __init__(self, command: list[str], hosts: str) -> None:
        self.process = subprocess.Popen(
            [*command, "-timeout", "10000", "-server", hosts],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.said: list[str] = []
        self._events: list[str] = []
        self._numbers = count()

    def line(self) -> str | None:
        """The next line that is none of an event's; None where an event has come."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError
        if event := EVENT.search(line):
            self._events.append(" ".join(event.groups()))
            return None
        return line.rstrip("\n")

    def send(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

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

    def tell(self, task: str, call: str, result: list[str]) -> None:
        if call.startswith("getEphemerals"):  # in the order of a Java set
            result = [", ".join(sorted(line.strip("[]").split(", "))) for line in result]
        self.said.append(f"{task}: {call} = {' | '.join(result)}")


def nodes_and_watches(shell: Shell) -> None:
    """The commands of the file; under a heading in pointed brackets each with the events after."""
    task, watching = "", False
    for line in COMMANDS.read_text().splitlines():
        if heading := re.fullmatch(r"[\[<](\w+)[\]>]", line):
            task, watching = heading[1], line.startswith("<")
        elif line and not line.startswith("#"):
            shell.tell(task, line, shell.run(line))
            if watching and (events := shell.events()):
                shell.tell(task, "events", events)


def transcript(hosts: str) -> list[str]:
    """What it says on this server."""
    shell = Shell(provide(), hosts)
    timer = threading.Timer(LIMIT, shell.process.kill)
    timer.start()
    try:
        shell.tell("connect", "states", [shell.event()])
        shell.send(f"create /mark {MARK}")
        shell.run("version")
        nodes_and_watches(shell)
        shell.send("quit")
        shell.process.communicate()
    except (EOFError, BrokenPipeError):
        shell.said.append("end: not done")
    finally:
        timer.cancel()
        shell.process.kill()
        shell.process.communicate()
    return shell.said
