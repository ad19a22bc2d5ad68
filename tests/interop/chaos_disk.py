"""A disk of one member's own that can be full.

With the right to mount it is a small file system in memory, and full is what the kernel calls full.
Without it the size of the process's files is limited: it then fails as late and in the same place,
with another error.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from pathlib import Path

from tests.support.installed_servers import InstalledServer

ROOMY = "1g"  # memory is taken only for what is in there
ATTEMPTS = 20


class Disk:
    """See the module's docstring; the member has to serve, and is stopped for a moment."""

    def __init__(self, member: InstalledServer) -> None:
        self.member = member
        self._place = member.directory / "disk"
        self._place.mkdir()
        self.real = self._mount(f"size={ROOMY}")
        if self.real:
            self._move_in()

    def __str__(self) -> str:
        return "a full file system" if self.real else "a limit of file sizes, no right to mount"

    def _mount(self, options: str) -> bool:
        command = ("mount", "-t", "tmpfs", "-o", options, "zkwire-chaos", str(self._place))
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False

    def _move_in(self) -> None:
        data = self.member.directory / "data"
        self.member.stop()
        shutil.copytree(data, self._place, dirs_exist_ok=True)
        shutil.rmtree(data)
        data.symlink_to(self._place, target_is_directory=True)
        self.member.start(wait=False)

    def fill(self) -> None:
        """Leave no room for what the member writes next."""
        if not self.real:
            logs = (self.member.directory / "data" / "version-2").glob("log.*")
            size = max((log.stat().st_size for log in logs), default=65536)
            resource.prlimit(self.member.pid, resource.RLIMIT_FSIZE, (size, size))
            return
        for _ in range(ATTEMPTS):  # the kernel refuses a size that is taken up meanwhile
            found = os.statvfs(self._place)
            taken = (found.f_blocks - found.f_bfree) * found.f_frsize
            if self._mount(f"remount,size={taken}"):
                return
        raise OSError(f"{self._place} cannot be filled")

    def is_felt(self, since: int) -> bool:
        """Whether the member has complained in its log, from this byte on."""
        with self._log.open("rb") as log:
            log.seek(since)
            return (b"No space left" if self.real else b"File too large") in log.read()

    def log_size(self) -> int:
        """Where the member's log ends now."""
        return self._log.stat().st_size

    @property
    def _log(self) -> Path:
        return self.member.directory / "log"

    def free(self) -> None:
        """Room again; a limited process has to be a new one."""
        if self.real and not self._mount(f"remount,size={ROOMY}"):
            raise OSError(f"{self._place} cannot be freed")

    def close(self) -> None:
        """End the member, and give its disk back."""
        self.member.kill()
        if self.real:
            subprocess.run(("umount", "--lazy", str(self._place)), check=False)
            self.real = False
