import json
import mmap
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from joblib import Parallel, delayed

from dualqml.exceptions import FileError, ModelFileError
from dualqml.persistence.tensors import (
    DTYPES,
    MAX_ARRAYS,
    MAX_HEADER,
    read_tensors,
    strict_json,
    write_tensors,
)
from tests.persistence.sealed import KEY, edited, join, split

oracle = pytest.importorskip("safetensors.numpy")
safe_open = pytest.importorskip("safetensors").safe_open


def make_arrays(rng):
    arrays = {
        name: rng.normal(scale=50.0, size=(3, 4)).astype(dtype)
        for name, dtype in DTYPES.items()
        if dtype.kind != "u"
    }
    arrays |= {
        name: rng.integers(0, 200, (2, 1, 5)).astype(dtype)
        for name, dtype in DTYPES.items()
        if dtype.kind == "u"
    }
    arrays |= {
        "empty": np.empty((0, 3)),
        "number": np.array(2.5),
        "special": np.array([np.nan, -np.inf, -0.0, 5e-324]),
        "": np.array([True]),
        'ä\n"\\': np.arange(3, dtype=np.uint8),
    }
    return arrays


def assert_same(one, other):
    assert set(one) == set(other)
    for name, array in one.items():
        assert other[name].dtype == array.dtype, name
        assert other[name].shape == array.shape, name
        assert other[name].tobytes() == array.tobytes(), name


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture
def small(path):
    """A file with few bytes."""
    arrays = {"a": np.arange(4.0), "b": np.array([1, 2], dtype=np.int16)}
    write_tensors(path, arrays | {"c": np.array([True, False])}, {"who": "Anna"})
    return path


class TestRoundTrip:
    def test_all_types_come_back_bit_for_bit(self, path, rng):
        arrays = make_arrays(rng)
        write_tensors(path, arrays, {"who": "Zoë", "": 'quotes " and \\'})
        found, metadata = read_tensors(path)
        assert_same(arrays, found)
        assert metadata == {"who": "Zoë", "": 'quotes " and \\'}

    def test_a_file_without_arrays_comes_back(self, path):
        write_tensors(path, {}, {})
        assert read_tensors(path) == ({}, {})

    def test_order_and_strides_do_not_matter(self, path, rng):
        whole = rng.normal(size=(6, 8))
        arrays = {"columns": np.asfortranarray(whole), "strided": whole[::2, ::-3]}
        arrays["big-endian"] = whole.astype(">f8")
        write_tensors(path, arrays, {})
        found, _ = read_tensors(path)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == np.float64

    def test_same_arrays_make_the_same_file(self, tmp_path, rng):
        arrays = make_arrays(rng)
        for name in ("one", "other"):
            write_tensors(tmp_path / name, arrays, {"a": "b"})
        assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()

    def test_a_file_can_be_read_while_it_is_replaced(self, path):
        write_tensors(path, {"a": np.zeros(1000)}, {})
        old, _ = read_tensors(path)
        write_tensors(path, {"a": old["a"] + 1.0}, {})
        new, _ = read_tensors(path)
        assert (old["a"] == 0.0).all()
        assert (new["a"] == 1.0).all()

    def test_a_string_that_looks_like_a_checksum_is_kept(self, path):
        text = f'"{KEY}":"' + "0" * 64 + '"'
        write_tensors(path, {}, {"a": text, text: ""})
        assert read_tensors(path)[1] == {"a": text, text: ""}


class TestMemory:
    def test_arrays_are_maps_of_the_file(self, path, rng):
        write_tensors(path, make_arrays(rng), {})
        for array in read_tensors(path)[0].values():
            base = array
            while isinstance(base, np.ndarray):
                base = base.base
            assert isinstance(base.obj, mmap.mmap)
            assert not array.flags.writeable
            with pytest.raises(ValueError, match="cannot set WRITEABLE"):
                array.flags.writeable = True

    def test_arrays_are_aligned(self, path, rng):
        write_tensors(path, make_arrays(rng), {})
        found, _ = read_tensors(path)
        assert all(array.flags.aligned for array in found.values())
        _, data = split(path.read_bytes())
        assert (path.stat().st_size - len(data)) % 64 == 0

    def test_other_processes_get_these_arrays_and_not_those_of_a_newer_file(self, path):
        write_tensors(path, {"a": np.zeros(100)}, {})
        old, _ = read_tensors(path)
        write_tensors(path, {"a": np.ones(100)}, {})
        (total,) = Parallel(n_jobs=2, backend="loky")(
            delayed(np.sum)(old["a"]) for _ in range(1)
        )
        assert total == 0.0
        assert (pickle.loads(pickle.dumps(old["a"])) == 0.0).all()

    @pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
    def test_reading_without_verifying_reads_the_header_only(self, path):
        size = 200_000_000
        write_tensors(path, {"a": np.zeros(size, np.uint8)}, {})
        script = """
import sys
from dualqml.persistence import read_tensors
from tests.peak_memory import peak_bytes
before = peak_bytes()
arrays, _ = read_tensors(sys.argv[1], verify=False)
assert arrays["a"][-1] == 0
print(peak_bytes() - before)
"""
        ended = subprocess.run(
            [sys.executable, "-c", script, path],
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(ended.stdout) < size / 10


class TestOracle:
    def test_safetensors_reads_files_of_dualqml(self, path, rng):
        arrays = make_arrays(rng)
        write_tensors(path, arrays, {"who": "Zoë"})
        assert_same(arrays, oracle.load_file(path))
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata()
        assert metadata.pop(KEY)
        assert metadata == {"who": "Zoë"}

    def test_files_of_safetensors_are_read_without_verification(self, path, rng):
        arrays = make_arrays(rng)
        oracle.save_file(arrays, path, metadata={"who": "Zoë"})
        found, metadata = read_tensors(path, verify=False)
        assert_same(arrays, found)
        assert metadata == {"who": "Zoë"}
        with pytest.raises(ModelFileError, match=r"no checksum.*verify=False"):
            read_tensors(path)

    def test_files_of_safetensors_without_metadata_are_read(self, path):
        oracle.save_file({"a": np.arange(3.0)}, path)
        assert read_tensors(path, verify=False)[1] == {}

    def test_files_that_safetensors_refuses_are_refused(self, small):
        """Header edits that its reader finds wrong."""
        header, data = split(small.read_bytes())
        refused = 0
        for change, _ in CHANGES:
            changed = json.loads(json.dumps(header))
            change(changed)
            try:
                oracle.load(join(changed, data))
            except Exception:
                refused += 1
                small.write_bytes(join(changed, data))
                with pytest.raises(ModelFileError):
                    read_tensors(small)
        assert refused > 10


def entry(name="a", **values):
    return lambda header: header[name].update(values)


SHAPE, PLACE = "has an impossible shape", "has impossible data_offsets"

#: How a header becomes wrong, and what is said of it. Of the file of `small`: "a" has
#: bytes 0 to 32, "b" 32 to 36 and "c" 36 to 38.
CHANGES = [
    (entry(dtype="BF16"), "unknown dtype 'BF16'"),
    (entry(dtype="f8"), "unknown dtype 'f8'"),
    (entry(dtype=None), "unknown dtype None"),
    (entry(dtype=["F64"]), "unknown dtype ['F64']"),
    (entry(shape=[5]), "is given 32 bytes and needs 40"),
    (entry(shape=[]), "is given 32 bytes and needs 8"),
    (entry(data_offsets=[0, 40]), "is given 40 bytes and needs 32"),
    (entry(data_offsets=[32, 0]), "is given -32 bytes"),
    (entry(shape=[-4]), SHAPE),
    (entry(shape=[-2, -2]), SHAPE),
    (entry(shape=[True] * 4), SHAPE),
    (entry(shape=[4.0]), SHAPE),
    (entry(shape=4), SHAPE),
    (entry(shape=[0, 2**62, 4], data_offsets=[0, 0]), SHAPE),
    (entry(shape=[2**32, 2**32, 2**32, 0], data_offsets=[0, 0]), SHAPE),
    (entry(shape=[2**63, 2**63]), SHAPE),
    (entry(shape=[1] * 33 + [4]), SHAPE),
    (entry(data_offsets=[0, 32, 32]), PLACE),
    (entry(data_offsets=[-8, 24]), PLACE),
    (entry(data_offsets=["0", 32]), PLACE),
    (entry(data_offsets=None), PLACE),
    (entry("b", data_offsets=[31, 35]), "'b' overlaps another or leaves a gap"),
    (entry(data_offsets=[8, 40]), "'a' overlaps another or leaves a gap"),
    (entry("b", data_offsets=[33, 37]), "overlaps another or leaves a gap"),
    (
        lambda header: header.update(
            d={"dtype": "U8", "shape": [9], "data_offsets": [38, 47]}
        ),
        "data are shorter than its header says",
    ),
    (lambda header: header.pop("c"), "data are longer than its header says"),
    (lambda header: [header.pop(name) for name in "abc"], "data are longer"),
    (lambda header: header["a"].pop("dtype"), "needs dtype, shape and data_offsets"),
    (entry(more=1), "data_offsets and no more"),
    (lambda header: header.update(d=[]), "'d' needs"),
    (lambda header: header["__metadata__"].update(n=1), "not an object of strings"),
    (lambda header: header["__metadata__"].update(n=None), "not an object of strings"),
    (lambda header: header.update(__metadata__=[]), "__metadata__ is not an object"),
]


class TestRefusals:
    @pytest.mark.parametrize(("change", "message"), CHANGES)
    def test_headers_that_do_not_fit_are_refused(self, small, change, message):
        edited(small, change)
        for verify in (True, False):
            with pytest.raises(ModelFileError) as caught:
                read_tensors(small, verify=verify)
            assert message in str(caught.value)
            assert str(small) in str(caught.value)

    def test_every_flipped_bit_is_found(self, small):
        content = small.read_bytes()
        for place in range(8 * len(content)):
            changed = bytearray(content)
            changed[place // 8] ^= 1 << place % 8
            small.write_bytes(changed)
            with pytest.raises(ModelFileError):
                read_tensors(small)
        small.write_bytes(content)
        read_tensors(small)

    def test_every_truncation_and_every_added_byte_is_found(self, small):
        content = small.read_bytes()
        for length in range(len(content)):
            small.write_bytes(content[:length])
            for verify in (True, False):
                with pytest.raises(ModelFileError):
                    read_tensors(small, verify=verify)
        small.write_bytes(content + b"\0")
        with pytest.raises(ModelFileError, match="data are longer"):
            read_tensors(small)

    def test_damaged_data_are_found_by_the_checksum_alone(self, small):
        content = bytearray(small.read_bytes())
        content[-6] ^= 1
        small.write_bytes(content)
        with pytest.raises(ModelFileError, match="checksum does not fit"):
            read_tensors(small)
        read_tensors(small, verify=False)

    @pytest.mark.parametrize(
        "header",
        [
            b'{"a": 1, "a": 2}',
            b'{"__metadata__":{"a":"1","a":"2"}}',
            b'{"a": NaN}',
            b'{"a": 1e999}',
            b'{"a": -Infinity}',
            b'{"a": ' + b"9" * 5000 + b"}",
            b'{"a"',
            b"{} {}",
            b'{"\xff": 1}',
            b'{"a": ' + b"[" * 100_000,
            b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            b"[]",
            b' {"a": 1}',
            b"\x00\x00\x00{",
            b"",
        ],
        ids=range(15),
    )
    def test_headers_that_are_not_json_are_refused(self, path, header):
        path.write_bytes(struct.pack("<Q", len(header)) + header)
        with pytest.raises(ModelFileError, match="header is not JSON"):
            read_tensors(path, verify=False)

    @pytest.mark.parametrize("number", [MAX_ARRAYS + 1, 150_000])
    def test_too_many_arrays_are_refused(self, small, number):
        header, data = split(small.read_bytes())
        entry = {"dtype": "U8", "shape": [0], "data_offsets": [len(data)] * 2}
        header |= {f"x{place}": entry for place in range(number)}
        small.write_bytes(join(header, data))
        # The larger one before anything is made of it.
        message = "arrays, more than 1,000" if number < 10_000 else "250,000 values"
        with pytest.raises(ModelFileError, match=message):
            read_tensors(small)

    def test_the_largest_number_of_arrays_is_accepted(self, path):
        arrays = {f"x{place}": np.zeros(1) for place in range(MAX_ARRAYS)}
        write_tensors(path, arrays, {})
        assert len(read_tensors(path)[0]) == MAX_ARRAYS
        with pytest.raises(ModelFileError, match="1,001 arrays, at most 1,000"):
            write_tensors(path, arrays | {"more": np.zeros(1)}, {})

    @pytest.mark.parametrize("length", [MAX_HEADER + 1, 2**63, 2**64 - 1])
    def test_absurd_lengths_of_the_header_are_refused(self, path, length):
        path.write_bytes(struct.pack("<Q", length) + b"{}")
        with pytest.raises(ModelFileError, match="no model file"):
            read_tensors(path)

    def test_a_header_beyond_the_end_of_the_file_is_refused(self, path):
        path.write_bytes(struct.pack("<Q", 3) + b"{}")
        with pytest.raises(ModelFileError, match="shorter than its header"):
            read_tensors(path)

    @pytest.mark.parametrize("digest", ["", "0" * 63, "A" * 64, "é" * 64])
    def test_invalid_checksums_are_refused(self, small, digest):
        header, data = split(small.read_bytes())
        header["__metadata__"][KEY] = digest
        text = json.dumps(header, separators=(",", ":")).encode()
        small.write_bytes(struct.pack("<Q", len(text)) + text + data)
        with pytest.raises(ModelFileError, match="checksum is damaged"):
            read_tensors(small)

    def test_booleans_that_are_neither_true_nor_false_are_refused(self, small):
        header, data = split(small.read_bytes())
        small.write_bytes(join(header, data[:-1] + b"\2"))
        with pytest.raises(ModelFileError, match="'c' has bytes that are no booleans"):
            read_tensors(small)

    def test_paths_that_are_not_files_are_refused(self, tmp_path):
        with pytest.raises(ModelFileError, match="No such file") as caught:
            read_tensors(tmp_path / "absent")
        assert isinstance(caught.value, FileError)
        assert isinstance(caught.value, ValueError)
        with pytest.raises(ModelFileError, match="not a file"):
            read_tensors(tmp_path)
        if hasattr(os, "mkfifo"):
            os.mkfifo(tmp_path / "pipe")
            with pytest.raises(ModelFileError, match="not a file"):
                read_tensors(tmp_path / "pipe")

    @pytest.mark.parametrize(
        "array",
        [
            np.array([None]),
            np.array(["a"]),
            np.zeros(2, np.complex128),
            np.zeros(2, "datetime64[s]"),
            np.zeros(2, [("a", "f8")]),
        ],
        ids=lambda array: str(array.dtype),
    )
    def test_types_that_the_format_does_not_have_are_refused(self, small, array):
        before = small.read_bytes()
        with pytest.raises(ModelFileError, match=r"'x' of type .* no place"):
            write_tensors(small, {"x": array}, {})
        assert small.read_bytes() == before

    def test_names_and_strings_that_the_format_cannot_hold_are_refused(self, small):
        before = small.read_bytes()
        with pytest.raises(ModelFileError, match="no place"):
            write_tensors(small, {"__metadata__": np.zeros(1)}, {})
        for metadata in ({KEY: "0"}, {"a": 1}, {1: "a"}):
            with pytest.raises(ModelFileError, match="metadata must be strings"):
                write_tensors(small, {}, metadata)
        with pytest.raises(ModelFileError, match="at most 10,000,000"):
            write_tensors(small, {}, {"a": "x" * MAX_HEADER})
        assert small.read_bytes() == before


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_only_the_owner_can_read_a_new_file(path):
    before = os.umask(0)
    try:
        write_tensors(path, {}, {})
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_strict_json_reads_json():
    text = '{"a": [1, 2.5, null, true, "\\u00e9"], "b": {}}'
    assert strict_json(text) == json.loads(text)
