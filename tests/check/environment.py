"""Has what the steps need: the tools in `.venv-check/`, and Debian's packages if this is root."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv-check"
PYTHON = ".venv-check/bin/python"
"""The tools' Python, as it would be typed in this project's folder."""

REQUIREMENTS = ROOT / "tests" / "requirements.txt"
INSTALL_LIMIT = 900


def provide_environment() -> bool:
    """Have the tools; made anew when the wanted versions, or this Python, have changed."""
    wanted = "\n".join((sys.version, str(ENVIRONMENT), REQUIREMENTS.read_text()))
    if ENVIRONMENT.is_symlink():  # `--clear` would empty what it leads to
        ENVIRONMENT.unlink()
    stamp = ENVIRONMENT / "made-for"
    digest = hashlib.sha256(wanted.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return True
    if importlib.util.find_spec("ensurepip") is None:  # Debian has it in a package of its own
        print("this Python cannot make environments")
        install_packages(["python3-venv"])
    make = [sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)]
    install = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["--requirement", str(REQUIREMENTS)]
    if not (succeeds(make) and succeeds(install)):
        return False
    stamp.write_text(digest)
    return True


def provide_zookeeper(*, curator: bool = False) -> None:
    """Install Debian's ZooKeeper and what goes with it, if missing and this may.

    With ``curator`` Apache Curator, too.

    The JDK compiles for the test of bytes (the package of ZooKeeper brings only what runs Java),
    `openssl` makes certificates.  Without them the tests say what that means.
    """
    from tests.support.installed_servers import find_installed
    from tests.support.server_control import NoBackendError

    missing = []
    try:
        find_installed()
    except NoBackendError as error:
        print(f"no installed ZooKeeper: {error}")
        missing.append("zookeeper")
    for command, package in (("javac", "default-jdk-headless"), ("openssl", "openssl")):
        if shutil.which(command) is None:
            print(f"no `{command}` on the path")
            missing.append(package)
    if curator:
        from tests.interop.curator.process import find_classes
        from tests.interop.other_clients.clients import NoClientError

        try:
            find_classes()
        except NoClientError as error:
            print(f"no Apache Curator: {error}")
            missing.append("libcurator-recipes-java")
    if missing:
        install_packages(missing)


def provide_browser() -> None:
    """Have Chromium and what drives it; Debian's packages as above, 120 MB if they are missing."""
    install = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    succeeds([*install, "--requirement", "tests/browser/requirements.txt"])
    packages = {"chromium": "chromium", "chromedriver": "chromium-driver"}
    if missing := [name for command, name in packages.items() if shutil.which(command) is None]:
        install_packages(missing)


def install_packages(names: list[str]) -> None:
    """Install packages of Debian, if this may."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print("not installing any package: that takes root and apt-get", flush=True)
        return
    print("installing Debian's", " and ".join(names), flush=True)
    install = ["apt-get", "-qq", "--yes", "install", "--no-install-recommends", *names]
    if succeeds(["apt-get", "-qq", "update"]):
        succeeds(["env", "DEBIAN_FRONTEND=noninteractive", *install])


def succeeds(command: list[str]) -> bool:
    """Run a command that installs something, shown as it would be typed."""
    print("$", shlex.join(command), flush=True)
    try:
        return subprocess.run(command, cwd=ROOT, timeout=INSTALL_LIMIT, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"not done within {INSTALL_LIMIT} s", flush=True)
        return False
