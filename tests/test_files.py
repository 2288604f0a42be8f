import os
import stat
import subprocess
import sys

import pytest

from dualqml._files import exclusive, lock, write_atomically, write_text
from dualqml.exceptions import DualQMLError, FileError

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


@posix
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_private_files_are_for_their_owner(tmp_path, mask):
    path = tmp_path / "a.bin"
    before = os.umask(mask)
    try:
        write_atomically(path, [b"1"], private=True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        # Whoever widens it on purpose has it so.
        path.chmod(0o660)
        write_atomically(path, [b"2"], private=True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    finally:
        os.umask(before)


@posix
def test_content_is_never_seen_by_more_than_the_old(tmp_path):
    path = tmp_path / "a.bin"
    modes = []

    def parts():
        (temporary,) = tmp_path.glob("*.tmp")
        modes.append(stat.S_IMODE(temporary.stat().st_mode))
        yield b"content"

    before = os.umask(0)
    try:
        write_atomically(path, parts(), private=True)
        path.chmod(0o640)
        write_atomically(path, parts())
    finally:
        os.umask(before)
    assert modes == [0o600, 0o640]


@posix
def test_the_group_stays_or_gets_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    path.chmod(0o660)
    asked = []

    def refuse(name, user, group):
        asked.append((user, group))
        raise PermissionError

    stat_of = os.stat

    def of_another_group(name, **options):
        found = stat_of(name, **options)
        if os.fspath(name) == os.path.realpath(path):
            values = list(found)
            values[5] += 1
            return os.stat_result(values)
        return found

    monkeypatch.setattr("os.stat", of_another_group)
    monkeypatch.setattr("os.chown", refuse)
    write_atomically(path, [b"new"])
    monkeypatch.undo()
    assert asked == [(-1, path.stat().st_gid + 1)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


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


@posix
def test_others_cannot_have_the_lock_meanwhile(tmp_path):
    import fcntl

    path = tmp_path / "model"
    with (
        exclusive(path),
        open(tmp_path / ".model.lock") as other,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(tmp_path / ".model.lock") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_second_lock_is_refused_until_the_first_file_is_closed(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"content")
    with path.open("rb+") as second:
        with path.open("rb+") as first:
            lock(first.fileno())
            with pytest.raises(BlockingIOError):
                lock(second.fileno(), wait=False)
            assert path.read_bytes() == b"content"
        lock(second.fileno(), wait=False)


@posix
def test_a_file_system_that_refuses_a_lock_otherwise(tmp_path, monkeypatch):
    def refuse(file, kind):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("fcntl.flock", refuse)
    with (tmp_path / "a").open("wb") as file, pytest.raises(BlockingIOError):
        lock(file.fileno(), wait=False)


#: Locks a file, says so, and waits for ever.
_HOLDER = """
import sys
from dualqml._files import lock

file = open(sys.argv[1], "rb+")
lock(file.fileno())
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_no_lock(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    command = [sys.executable, "-c", _HOLDER, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as holder, path.open("rb+") as file:
        assert holder.stdout.readline().strip() == b"locked"
        with pytest.raises(BlockingIOError):
            lock(file.fileno(), wait=False)
        holder.kill()
        holder.wait()
        lock(file.fileno(), wait=False)


@posix
@pytest.mark.parametrize(("mask", "mode"), [(0o002, 0o664), (0o022, 0o644)])
def test_the_mask_says_who_shares_a_lock(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        with exclusive(tmp_path / "model"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / ".model.lock").stat().st_mode) == mode


@posix
def test_a_lock_that_may_only_be_read_is_a_lock(tmp_path, monkeypatch):
    with exclusive(tmp_path / "model"):
        pass
    opened = os.open

    def read_only(path, flags, *mode):
        # As for another member of the group, under the usual mask.
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *mode)

    monkeypatch.setattr("os.open", read_only)
    with exclusive(tmp_path / "model"):
        pass


def test_a_lock_that_cannot_be_made(tmp_path):
    with (
        pytest.raises(FileError, match=r"model cannot be locked: No such file"),
        exclusive(tmp_path / "absent" / "model"),
    ):
        pass


#: Writes a part, says so, and waits for ever.
_WRITER = """
import sys
from dualqml._files import write_atomically

def parts():
    yield b"secret"
    print("written", flush=True)
    sys.stdin.read()

write_atomically(sys.argv[1], parts())
"""


@pytest.fixture
def writer(tmp_path):
    """A process in the midst of writing "model"."""
    command = [sys.executable, "-c", _WRITER, str(tmp_path / "model")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == b"written\n"
        yield process
        process.kill()


def by_writing(path):
    write_atomically(path, [b"new"])


def by_locking(path):
    with exclusive(path):
        pass


@posix
@pytest.mark.parametrize("visit", [by_writing, by_locking])
def test_what_a_killed_process_left_is_removed(tmp_path, writer, visit):
    path = tmp_path / "model"
    other = tmp_path / "model.b"
    visit(path)
    visit(other)
    (left,) = tmp_path.glob(".model.*.tmp")
    writer.kill()
    writer.wait()
    # It is not theirs.
    visit(other)
    visit(tmp_path / "mode")
    assert left.exists()
    visit(path)
    assert not left.exists()


@posix
def test_a_living_writer_is_left_alone(tmp_path, writer):
    path = tmp_path / "model"
    by_locking(path)
    by_writing(path)
    writer.communicate()
    assert writer.returncode == 0
    assert path.read_bytes() == b"secret"
    assert list(tmp_path.glob("*.tmp")) == []


@posix
def test_a_new_temporary_file_taken_for_an_old_one(tmp_path, monkeypatch):
    """Somebody removes it between its making and its lock."""
    import fcntl

    path = tmp_path / "model"
    flock, removed = fcntl.flock, []

    def late(file, kind):
        if not removed:
            (temporary,) = tmp_path.glob(".model.*.tmp")
            removed.append(temporary)
            temporary.unlink()
        flock(file, kind)

    monkeypatch.setattr("fcntl.flock", late)
    write_atomically(path, [b"new"])
    assert len(removed) == 1
    assert path.read_bytes() == b"new"


@posix
def test_what_was_left_and_cannot_be_removed_is_named(tmp_path):
    (tmp_path / ".model.00ff.tmp").mkdir()
    with pytest.raises(FileError, match=r"\.model\.00ff\.tmp was left by a process"):
        write_atomically(tmp_path / "model", [b"new"])
    assert not (tmp_path / "model").exists()


def test_files_with_long_names_do_not_share_what_is_beside_them(tmp_path):
    names = ["x" * 100 + ending for ending in ("a", "b")]
    for name in names:
        with exclusive(tmp_path / name):
            pass
    assert len(list(tmp_path.glob(".*.lock"))) == 2
    with exclusive(tmp_path / ("y" * 255)):
        pass
