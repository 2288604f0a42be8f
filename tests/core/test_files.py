import os
import stat
import sys
import threading
import time

import pytest

from dualqml.core import DualQMLError, FileError
from dualqml.core.files import exclusive, write_atomically, write_text

posix = pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_parts_are_written_one_after_the_other(tmp_path):
    path = tmp_path / "a.bin"
    write_atomically(path, iter([b"one", memoryview(b"two"), b""]))
    assert path.read_bytes() == b"onetwo"
    assert names(tmp_path) == ["a.bin"]


def test_folder_is_made_and_an_old_file_replaced(tmp_path):
    path = tmp_path / "new" / "deep" / "a.bin"
    write_atomically(path, [b"a long first content"])
    write_atomically(str(path), [b"short"])
    assert path.read_bytes() == b"short"
    assert names(path.parent) == ["a.bin"]


def test_text_is_utf8(tmp_path):
    write_text(tmp_path / "a.txt", "Zoë\n")
    assert (tmp_path / "a.txt").read_bytes() == "Zoë\n".replace(
        "\n", os.linesep
    ).encode("utf-8")


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_old_file_stays_when_the_disk_fails(tmp_path, monkeypatch, function):
    path = tmp_path / "a.bin"
    write_atomically(path, [b"old"])

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"os.{function}", full)
    with pytest.raises(FileError, match=r"a\.bin cannot be written: No space left"):
        write_atomically(path, [b"new"])
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_old_file_stays_when_the_content_fails(tmp_path, error):
    path = tmp_path / "a.bin"
    write_atomically(path, [b"old"])

    def parts():
        yield b"new"
        raise error

    with pytest.raises(error):
        write_atomically(path, parts())
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_errors_are_typed(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written") as caught:
        write_text(tmp_path / "file" / "a.txt", "")
    assert isinstance(caught.value, DualQMLError)
    assert isinstance(caught.value, OSError)
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match="folder cannot be written"):
        write_text(tmp_path / "folder", "")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match="cannot be written"):
        write_text("", "")
    assert names(tmp_path) == ["file", "folder"]


def test_long_names_leave_room_for_the_temporary_one(tmp_path):
    path = tmp_path / ("ä" * 120 + ".txt")
    write_text(path, "here")
    assert path.read_text() == "here"


@posix
def test_permissions_follow_the_mask_and_then_the_old_file(tmp_path):
    path = tmp_path / "a.bin"
    before = os.umask(0o027)
    try:
        write_atomically(path, [b"1"])
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o600)
        write_atomically(path, [b"2"])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.skipif(sys.platform != "linux", reason="synchronises the folder")
def test_file_and_folder_reach_the_disk_in_order(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(file):
        done.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
        fsync(file)

    def note_replace(*args):
        done.append("replace")
        replace(*args)

    monkeypatch.setattr("os.fsync", note_fsync)
    monkeypatch.setattr("os.replace", note_replace)
    write_atomically(tmp_path / "a.bin", [b"1"])
    assert done == ["file", "replace", "folder"]


@posix
def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    write_atomically(link, [b"new"])
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert real.stat().st_mode & 0o777 == 0o600


def test_others_wait_for_the_lock(tmp_path):
    path = tmp_path / "model"
    order = []

    def second():
        with exclusive(path):
            order.append("second")

    with exclusive(path):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
