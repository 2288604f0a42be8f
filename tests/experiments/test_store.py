import errno
import json
import math
import os
import resource
import subprocess
import sys

import pytest

from dualqml.exceptions import StoreError
from dualqml.experiments.protocol import Experiment
from dualqml.experiments.results import Result
from dualqml.experiments.store import FORMAT, ResultStore, read_results
from tests.people import make_people


@pytest.fixture
def results():
    experiment = Experiment({"people": make_people()}, sizes=(2,), repeats=2)
    return [Result(unit, "done", error=1.5) for unit in experiment.units]


def written(path, results):
    with ResultStore(path) as store:
        for result in results:
            store.append(result)


def test_what_is_written_is_read(tmp_path, results):
    path = tmp_path / "new" / "results.jsonl"
    written(path, results)
    assert [r.unit for r in read_results(path)] == [r.unit for r in results]
    assert read_results(path)[0].error == 1.5
    assert math.isnan(read_results(path)[0].fit_seconds)
    for line in path.read_text().splitlines():
        assert isinstance(json.loads(line), dict)
    with ResultStore(path) as store:
        assert [r.unit for r in store.results] == [r.unit for r in results]


def test_every_result_is_on_disk_at_once(tmp_path, results):
    path = tmp_path / "results.jsonl"
    with ResultStore(path) as store:
        for n, result in enumerate(results, start=1):
            store.append(result)
            assert [r.unit for r in read_results(path)] == [r.unit for r in results[:n]]


def test_a_line_without_end_is_cut_off_at_every_byte(tmp_path, results):
    whole = tmp_path / "whole.jsonl"
    written(whole, results[:2])
    content = whole.read_bytes()
    first_two_lines = content[: content.index(b"\n", content.index(b"\n") + 1) + 1]
    path = tmp_path / "cut.jsonl"
    for end in range(len(first_two_lines), len(content)):
        path.write_bytes(content[:end])
        assert [r.unit for r in read_results(path)] == [results[0].unit]
        with ResultStore(path) as store:
            assert [r.unit for r in store.results] == [results[0].unit]
            store.append(results[1])
        assert path.read_bytes() == content


def test_a_header_without_end_begins_anew(tmp_path, results):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"dualqml res')
    with pytest.raises(StoreError, match="no store of results"):
        read_results(path)
    written(path, results[:1])
    assert [r.unit for r in read_results(path)] == [results[0].unit]


def test_files_of_others_are_refused_and_left_alone(tmp_path, results):
    path = tmp_path / "results.jsonl"
    for content in [b"a,b\n1,2\n", b'{"unit": 1}\n{"un', b"\xff\xfe\n", b"[]\n"]:
        path.write_bytes(content)
        for opening in (lambda: written(path, results), lambda: read_results(path)):
            with pytest.raises(StoreError, match="no store of results of dualqml"):
                opening()
        assert path.read_bytes() == content


def test_another_format_is_refused(tmp_path, results):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps({"dualqml results": FORMAT + 1}) + "\n")
    for opening in (lambda: written(path, results), lambda: read_results(path)):
        with pytest.raises(StoreError, match=r"has format 2.*reads format 1"):
            opening()


@pytest.mark.parametrize(
    "damage", ["{", "[1]", "{}", '{"database": "x"}', "null", "\x00"]
)
def test_a_damaged_line_is_named(tmp_path, results, damage):
    path = tmp_path / "results.jsonl"
    written(path, results[:3])
    lines = path.read_text().splitlines()
    lines[2] = damage
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(StoreError, match="line 3, is damaged"):
        read_results(path)


def test_an_unknown_field_or_status_is_damage(tmp_path, results):
    path = tmp_path / "results.jsonl"
    for change in ({"colour": "red"}, {"status": "maybe"}, {"error": "much"}):
        record = results[0].as_dict() | change
        path.write_text('{"dualqml results": 1}\n' + json.dumps(record) + "\n")
        with pytest.raises(StoreError, match="line 2, is damaged"):
            read_results(path)


@pytest.mark.parametrize("levels", [100_000, 900])
def test_deep_json_is_damage(tmp_path, results, levels):
    path = tmp_path / "results.jsonl"
    written(path, results[:1])
    whole = path.read_text()
    deep = "[" * levels + "]" * levels
    record = json.dumps(results[0].as_dict() | {"parameters": {"a": 0}})
    for line in (deep, record.replace('{"a": 0}', f'{{"a": {deep}}}')):
        path.write_text(whole + line + "\n")
        for opening in (lambda: written(path, results), lambda: read_results(path)):
            with pytest.raises(StoreError, match=r"line 3, is damaged \(.*100 levels"):
                opening()
        path.write_text(line + "\n")
        with pytest.raises(StoreError, match="no store of results"):
            read_results(path)


def test_what_a_damaged_line_holds_is_shown_short_and_harmless(tmp_path, results):
    path = tmp_path / "results.jsonl"
    for value in ("\x1b[2J", "x" * 100_000, ["\x1b"] * 1000):
        record = results[0].as_dict() | {"status": value, "versions": {"a": value}}
        path.write_text('{"dualqml results": 1}\n' + json.dumps(record) + "\n")
        with pytest.raises(StoreError) as caught:
            read_results(path)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 600
    path.write_text(json.dumps({"dualqml results": "\x1b" * 1000}) + "\n")
    with pytest.raises(StoreError) as caught:
        read_results(path)
    assert len(str(caught.value)) < 600


def test_versions_are_texts(tmp_path, results):
    path = tmp_path / "results.jsonl"
    record = results[0].as_dict() | {"versions": {"numpy": [1]}}
    path.write_text('{"dualqml results": 1}\n' + json.dumps(record) + "\n")
    with pytest.raises(StoreError, match="versions"):
        read_results(path)


def test_two_writers_are_refused(tmp_path, results):
    path = tmp_path / "results.jsonl"
    with (
        ResultStore(path),
        pytest.raises(StoreError, match="written by another process"),
        ResultStore(path),
    ):
        pass
    written(path, results[:1])


#: Opens a store, says so, and waits for ever.
_WRITER = """
import sys
from dualqml.experiments.store import ResultStore

with ResultStore(sys.argv[1]):
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_killed_writer_leaves_no_lock(tmp_path, results):
    path = tmp_path / "results.jsonl"
    command = [sys.executable, "-c", _WRITER, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as writer:
        assert writer.stdout.readline().strip() == b"open"
        with pytest.raises(StoreError, match="written by another process"):
            written(path, results[:1])
        # Who only reads needs no lock.
        assert read_results(path) == []
        writer.kill()
        writer.wait()
    written(path, results[:1])
    assert [r.unit for r in read_results(path)] == [results[0].unit]


def test_a_full_disk_loses_nothing(tmp_path, results, monkeypatch):
    path = tmp_path / "results.jsonl"
    with ResultStore(path) as store:
        store.append(results[0])
        before = path.read_bytes()
        write = os.write

        def full(file, data):
            # The disk takes a part and then no more.
            if len(data) > 40:
                return write(file, data[:40])
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StoreError, match="No space left"):
            store.append(results[1])
        assert path.read_bytes() == before
        monkeypatch.undo()
        store.append(results[1])
    assert [r.unit for r in read_results(path)] == [r.unit for r in results[:2]]


_UNTIL_FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
from dualqml.experiments.results import Result, StoreError
from dualqml.experiments.store import ResultStore
from dualqml.experiments.protocol import Experiment
from tests.people import make_people
units = Experiment({"people": make_people()}, sizes=(2,), repeats=2).units
with ResultStore(sys.argv[1]) as store:
    try:
        for unit in units:
            store.append(Result(unit, "done", error=1.0))
    except StoreError as error:
        sys.exit(f"StoreError {error}")
"""


def test_a_file_that_the_system_lets_grow_no_more(tmp_path):
    path = tmp_path / "results.jsonl"
    ended = subprocess.run(
        [sys.executable, "-c", _UNTIL_FULL, str(path)], capture_output=True, text=True
    )
    assert "StoreError" in ended.stderr
    assert "too large" in ended.stderr.lower()
    assert path.read_bytes().endswith(b"}\n")
    assert 1 <= len(read_results(path)) <= 6
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 3000


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StoreError, match=r"results\.jsonl: "),
        ResultStore(tmp_path / "file" / "results.jsonl"),
    ):
        pass


def test_a_missing_store(tmp_path):
    with pytest.raises(StoreError, match="No such file"):
        read_results(tmp_path / "results.jsonl")


def test_a_foreign_file_without_a_line_end_is_left_alone(tmp_path, results):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"my": "data"}')
    with pytest.raises(StoreError, match="no store of results"):
        written(path, results)
    assert path.read_bytes() == b'{"my": "data"}'
