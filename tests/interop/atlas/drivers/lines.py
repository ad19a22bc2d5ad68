"""What the drivers in Python share: the lines, and one thread for each call.

The standard input has calls, ``NUMBER SESSION COMMAND WORD...``; each is answered by
``NUMBER ok TEXT`` or ``NUMBER error NAME``.  What a client tells by itself, through listeners and
watches, is ``* SESSION state NAME`` and ``* SESSION event TYPE PATH``.  A session is one client
object.  The command ``exit`` ends the program as its end would, with nothing closed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

OUT = sys.stdout
sys.stdout = sys.stderr  # libraries print
_mutex = threading.Lock()


def say(*words: object) -> None:
    """One whole line."""
    line = " ".join(map(str, words)).replace("\n", " ")
    with _mutex:
        OUT.write(line + "\n")
        OUT.flush()


def name_of(error: BaseException) -> str:
    """An exception's class, and what zkwire's says of the outcome."""
    applied = getattr(error, "maybe_applied", None)
    told = "" if applied is None else f" maybe_applied={applied}"
    kind = type(error)
    name = kind.__name__ if kind.__name__[0].isupper() else f"{kind.__module__}.{kind.__name__}"
    return f"{name}{told}"


def outcomes(ends: list[str]) -> str:
    """Ends of many calls, in the order of the calls: how many in a row have the same."""
    groups = ((end, len(list(group))) for end, group in itertools.groupby(ends))
    return ", ".join(f"{count}*{end}" for end, count in groups)


def stat(version: int, children: int, acl: int, size: int, count: int, owner: int) -> str:
    """What does not depend on times: the versions, bytes, children, whether it is owned."""
    return f"{version} {children} {acl}, {size} bytes, {count} children{', owned' * bool(owner)}"


class Lacks(Exception):
    """The library has no such thing."""


class Session:
    """One client; a subclass has a method for each command that its library can follow."""

    def __init__(self, name: str) -> None:
        self.name = name

    def state(self, name: object) -> None:
        say("*", self.name, "state", name)

    def event(self, kind: object, path: object) -> None:
        say("*", self.name, "event", kind, path)

    def fork(self, path: str) -> str:
        """What `get` says in a forked child."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                text = f"ok {self.get_in_child(path)}"
            except BaseException as error:
                text = name_of(error)
            os.write(writer, text.encode())
            os._exit(0)
        os.close(writer)
        found: list[bytes] = []
        reading = threading.Thread(target=lambda: found.append(os.read(reader, 1000)), daemon=True)
        reading.start()
        reading.join(5.0)
        said = found[0].decode() if found else "no answer in 5 s"
        os.kill(child, 9)
        os.waitpid(child, 0)
        return said

    def get_in_child(self, path: str) -> str:
        return str(self.get(path))

    def get(self, path: str) -> Any:
        raise NotImplementedError


class LoopSession(Session):
    """One whose commands are coroutines, in one loop for all."""

    loop: ClassVar = asyncio.new_event_loop()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name.startswith("_") or not asyncio.iscoroutinefunction(found):
            return found
        return lambda *words: self._run(found(*words))

    def get_in_child(self, path: str) -> str:
        """In a loop of the child's: the thread of the parent's is not there."""
        get = object.__getattribute__(self, "get")
        return str(asyncio.new_event_loop().run_until_complete(get(path)))


def answer(number: str, function: Callable[..., Any], words: list[str]) -> None:
    """Call it, and write how that ends."""
    try:
        result = function(*words)
        say(number, "ok", "" if result is None else result)
    except Lacks:
        say(number, "lacks")
    except BaseException as error:
        print(f"{time.monotonic():.3f} {words}: {error!r}", file=sys.stderr)
        say(number, "error", name_of(error))


def serve(make: type[Session], version: str, *, loop: bool = False) -> None:
    """Follow the calls until they end."""
    sessions: dict[str, Session] = {}
    if loop:
        threading.Thread(target=LoopSession.loop.run_forever, daemon=True).start()
    say("ready", version)
    for line in sys.stdin:
        number, name, command, *words = line.split()
        if command == "exit":
            return
        session = sessions.setdefault(name, make(name))
        function = getattr(session, command, None)
        if function is None:
            say(number, "lacks")
            continue
        arguments = (number, function, words)
        threading.Thread(target=answer, args=arguments, daemon=True).start()
    os._exit(0)
