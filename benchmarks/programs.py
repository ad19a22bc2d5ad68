"""Programs that are not Python: built on the spot, into a directory that goes with the run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.interop.curator.process import NoCuratorError, find_classes
from tests.support.installed_servers import DEBIAN_JARS

NATIVE = Path(__file__).resolve().parent / "native"
BUILD_SECONDS = 120
JARS = ("zookeeper.jar", "slf4j-simple.jar")


class MissingError(Exception):
    """A program cannot be had on this machine; the message says why."""


def build(command: list[str]) -> None:
    """Run a compiler."""
    if shutil.which(command[0]) is None:
        raise MissingError(f"no `{command[0]}` on the path")
    built = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS
    )
    if built.returncode != 0:
        error = [line for line in built.stderr.splitlines() if "error" in line or "cannot" in line]
        raise MissingError(error[0] if error else f"{command[0]} failed")


def build_c(directory: Path, name: str, *libraries: str) -> Path:
    """A program in C."""
    program = directory / name
    compiler = [os.environ.get("CC", "cc"), "-O2", "-DTHREADED", "-o", str(program)]
    build([*compiler, str(NATIVE / f"{name}.c"), *(f"-l{library}" for library in libraries)])
    return program


def c_client(directory: Path) -> list[str]:
    """The command of the C client's worker."""
    return [str(build_c(directory, "client", "zookeeper_mt", "pthread"))]


def java_client(directory: Path) -> list[str]:
    """The command of the Java client's worker."""
    jars = [DEBIAN_JARS / jar for jar in JARS]
    if home := os.environ.get("ZOOKEEPER_HOME"):
        classpath = f"{home}/lib/*"
    elif jars[0].exists():
        classpath = ":".join(map(str, jars))
    else:
        raise MissingError(f"no {jars[0]}, and no ZOOKEEPER_HOME")
    build(["javac", "-cp", classpath, "-d", str(directory), str(NATIVE / "Measured.java")])
    if shutil.which("java") is None:
        raise MissingError("no `java` on the path")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", "-Xmx512m", quiet, "-cp", f"{directory}:{classpath}", "Measured"]


def curator(directory: Path, program: str) -> list[str]:
    """The command of a program with Curator, from the jars that the tests beside it use."""
    try:
        classpath = find_classes()
    except NoCuratorError as error:
        raise MissingError(str(error)) from error
    build(["javac", "-cp", classpath, "-d", str(directory), str(NATIVE / f"{program}.java")])
    if shutil.which("java") is None:
        raise MissingError("no `java` on the path")
    return ["java", "-Xmx2g", "-cp", f"{directory}:{classpath}", program]
