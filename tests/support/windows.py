"""Takes away what Python has not on Windows, then runs a program: in a process of its own.

    python -m tests.support.windows -c CODE | -m MODULE ARGUMENTS ...

It shows that the program asks for none of it.  It is not Windows: errors of sockets, processes and
the console differ there in more ways; the workflow on GitHub runs the tests on the real one.
"""

from __future__ import annotations

import asyncio
import errno
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from typing import Any

MODULES = ("curses", "fcntl", "grp", "pty", "pwd", "readline", "resource", "termios", "tty")
NAMES: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (socket, ("AF_UNIX", "MSG_DONTWAIT", "MSG_NOSIGNAL")),
    (select, ("EPOLLEXCLUSIVE", "epoll", "kqueue", "poll")),
    (selectors, ("EpollSelector", "KqueueSelector", "PollSelector")),
    (signal, ("alarm", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait")),
    (time, ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "clock_gettime")),
    (
        os,
        (
            *("EFD_CLOEXEC", "EFD_NONBLOCK", "O_CLOEXEC", "O_NONBLOCK", "P_PID", "eventfd"),
            *("eventfd_read", "eventfd_write", "fchmod", "fchown", "fork", "forkpty", "getpgid"),
            *("getuid", "killpg", "mkfifo", "pipe2", "register_at_fork", "set_blocking"),
            *("setsid", "uname", "waitid"),
        ),
    ),
)
SIGNALS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM"}
"""Those that are left."""


def pair_of_sockets() -> tuple[socket.socket, socket.socket]:
    """What ``socket.socketpair`` is without sockets of the kernel's own kind."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    return here, there


class Socket(socket.socket):
    """A socket whose connecting is under way in Windows' word for it."""

    def connect_ex(self, address: Any) -> int:
        code = super().connect_ex(address)
        return errno.EWOULDBLOCK if code == errno.EINPROGRESS else code


def kill(process: subprocess.Popen[Any]) -> None:
    """What ``Popen.kill`` is: on this system it needs the signal."""
    os.kill(process.pid, 9)


def take_away() -> None:
    """Remove all of it from this process."""
    asyncio.SelectorEventLoop.__init__  # noqa: B018 - loaded with all that it needs
    for module, names in NAMES:
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in list(signal.Signals.__members__):
        if name not in SIGNALS:
            del signal.Signals._member_map_[name]
            delattr(signal, name)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    changed: Any = subprocess.Popen
    changed.kill = kill
    changed = selectors
    changed.DefaultSelector = selectors.SelectSelector
    changed = socket
    changed.socketpair, changed.socket = pair_of_sockets, Socket


def main() -> None:
    """Run what the words ask for."""
    what, name, *arguments = sys.argv[1:]
    take_away()
    sys.argv = [name, *arguments]
    if what == "-m":
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        exec(compile(name, "<program>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
