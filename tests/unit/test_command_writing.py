"""The files that the command writes: whole ones, ones that grow, and their modes and links."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from zkwire.cli.files import recording, whole


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def mode_of(file: Path) -> int:
    return file.stat().st_mode & 0o777


def write(file: Path, data: bytes = b"new", *, private: bool = True) -> None:
    with whole(str(file), private=private) as stream:
        stream.write(data)


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o644)])
def test_whole_new_file_has_the_mode_of_its_kind(private: bool, mode: int, file: Path) -> None:
    write(file, private=private)
    assert (mode_of(file), file.read_bytes()) == (mode, b"new")


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_whole_existing_file_keeps_its_mode(private: bool, mode: int, file: Path) -> None:
    file.write_bytes(b"a longer former text")
    file.chmod(mode)
    write(file, private=private)
    assert (mode_of(file), file.read_bytes()) == (mode, b"new")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_whole_that_fails_leaves_the_former(error: type[BaseException], file: Path) -> None:
    file.write_bytes(b"former")

    def half() -> None:
        with whole(str(file)) as stream:
            stream.write(b"half")
            raise error

    with pytest.raises(error):
        half()
    assert (file.read_bytes(), os.listdir(file.parent)) == (b"former", ["file"])


def test_whole_is_on_the_disk_before_it_has_its_name(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def note(name: str, *_: object) -> None:
        done.append(name)

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, partial(note, name))
    write(file)
    assert done == ["fsync", "replace"]


def test_whole_two_writers_each_write_a_whole_file(file: Path) -> None:
    with whole(str(file)) as first:
        first.write(b"first " * 10_000)
        with whole(str(file)) as second:
            second.write(b"second")
        assert file.read_bytes() == b"second"
        first.write(b"end")
    assert file.read_bytes() == b"first " * 10_000 + b"end"
    assert os.listdir(file.parent) == ["file"]


@pytest.mark.parametrize("write", [write, lambda file: recording(str(file)).close()])
def test_link_stays_a_link_to_what_is_written(write: Callable[[Path], None], file: Path) -> None:
    (file.parent / "real").write_bytes(b"former")
    file.symlink_to("real")
    write(file)
    assert os.readlink(file) == "real"
    assert (file.parent / "real").read_bytes() in (b"new", b"")


def test_whole_link_to_nothing_is_refused(file: Path) -> None:
    file.symlink_to("missing")
    with pytest.raises(OSError, match="is a symbolic link to a file that is missing"):
        write(file)
    assert os.listdir(file.parent) == ["file"]


def test_whole_follows_no_stale_link_beside_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has the name that the next part would have."""
    victim = file.parent / "victim"
    victim.write_bytes(b"mine")
    monkeypatch.setattr("os.urandom", bytes)
    for name in ("file.part", f".zkwire-{bytes(8).hex()}.part"):
        (file.parent / name).symlink_to("victim")
    with pytest.raises(FileExistsError, match=r"/file'$"):
        write(file)
    assert victim.read_bytes() == b"mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write all files")
def test_whole_read_only_file_is_refused(file: Path) -> None:
    file.write_bytes(b"former")
    file.chmod(0o444)
    with pytest.raises(PermissionError):
        write(file)


def test_whole_device_is_written_to_as_it_is() -> None:
    with whole("/dev/null") as stream:
        stream.write(b"data")
    assert not os.path.isfile("/dev/null")


def test_recording_is_private_and_begins_anew(file: Path) -> None:
    for text in ("a long one\n", "next\n"):
        with recording(str(file)) as stream:
            stream.write(text)
    assert (mode_of(file), file.read_text()) == (0o600, "next\n")
    file.chmod(0o644)
    recording(str(file)).close()
    assert mode_of(file) == 0o644
