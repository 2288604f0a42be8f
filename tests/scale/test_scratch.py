"""The files of a fit in blocks: keys, runs, parts and shards."""

import dataclasses
import itertools
import os
import resource
import shutil
import sys

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

from dualqml.exceptions import BlockError, DualQMLError, FileError, ModelFileError
from dualqml.extractors import DualQML
from dualqml.extractors.fit_in_parts import LinearMap, Recipe, checked_recipe
from dualqml.extractors.part_sums import label_hashes, part_numbers
from dualqml.persistence.tensors import read_tensors, write_tensors
from dualqml.recognition.score_scale import ScoreScale
from dualqml.scale import scratch as module
from dualqml.scale.blocks import Block
from dualqml.scale.scratch import (
    Gathering,
    Projection,
    Scratch,
    check_numbers,
    gather_part,
    key_of,
    read_part,
    read_scatter,
    read_shard,
    read_sums,
    sum_coordinates,
    write_run,
)

RECIPE = checked_recipe(DualQML(0.5))
RNG = np.random.default_rng(0)


def made_up(n_rows=60, n_classes=13, *, size=5, text=True, single=False, seed=0):
    """Rows and labels, which are text of several widths."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, size=n_rows)
    rows = rng.normal(size=(n_rows, size)).astype(np.float32 if single else np.float64)
    if not text:
        return rows, codes - 4
    return rows, np.array(["é" * (code % 5) + f"{code}" for code in codes])


def blocks_of(rows, labels, cuts):
    """Blocks, each with labels of its own width."""
    edges = [0, *sorted(cuts), len(rows)]
    for start, stop in itertools.pairwise(edges):
        own = labels[start:stop]
        if own.dtype.kind == "U":
            own = np.array(own.tolist(), dtype=np.str_)
        yield Block(start, rows[start:stop], own)


def gather(folder, rows, labels, n_parts, cuts=(), *, recipe=RECIPE, single=False):
    """Write the runs and the parts of some data."""
    folder.mkdir(exist_ok=True)
    scratch = Scratch(str(folder), single=single)
    runs = [
        write_run(scratch, (number, block))
        for number, block in enumerate(blocks_of(rows, labels, cuts))
    ]
    gathering = Gathering(scratch, len(runs), n_parts, recipe, key_of(*runs))
    for part in range(n_parts):
        gather_part(gathering, part)
    return scratch, gathering


def parts_in(folder):
    return {path.name: path.read_bytes() for path in folder.glob("part-*")}


class TestKeyOf:
    def test_it_is_stable(self):
        """A key of an earlier process must be found again."""
        key = key_of(1, 0.1, "a", None, True, np.arange(3.0), ScoreScale(), {"b": [2]})
        again = key_of(
            1, 0.1, "a", None, True, np.arange(6.0)[:3], ScoreScale(), {"b": [2]}
        )
        assert key == again
        assert key_of("a", 1) == (
            "13ddd1cec47a258d76205503d2c658126903351e751c13214a22b6f6f1cfc868"
        )

    def test_other_things_have_other_keys(self):
        things = [
            *(1, 1.0, True, "1", None, "None", "", 1e-6, np.float64(1.0), np.int64(1)),
            *([1], (1,), [], (), [[1], 2], [[1, 2]], {"a": 1}, {"b": 1}, {1: "a"}),
            *(np.arange(6), np.arange(6.0), np.arange(6, dtype=np.int32)),
            *(np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2), np.array(6)),
            *(np.arange(6, dtype=">i8"), np.arange(7), np.array(["a"]), np.zeros(0)),
            *(np.zeros((0, 3)), np.array(["a", "b"]), np.array(["ab"])),
            *(ScoreScale(), ScoreScale(mean=1e-300), vars(ScoreScale())),
            *(LinearMap(np.zeros(2), np.eye(2)), LinearMap(np.zeros(2), -np.eye(2))),
        ]
        keys = [key_of(thing) for thing in things]
        assert len(set(keys)) == len(things)
        assert all(len(key) == 64 for key in keys)

    @given(
        st.lists(st.integers(-20, 200) | st.text("1,'\"a", max_size=4), max_size=4),
        st.lists(st.integers(-20, 200) | st.text("1,'\"a", max_size=4), max_size=4),
    )
    def test_where_a_thing_ends_counts(self, one, other):
        assert (key_of(*one) == key_of(*other)) == (one == other)

    def test_things_that_run_together(self):
        assert key_of(1, 12) != key_of(11, 2)
        assert key_of("a", "b") != key_of("a''b")
        assert key_of([1, 2], 3) != key_of([1], 2, 3)
        assert key_of(np.arange(2), np.arange(3)) != key_of(np.arange(5))

    def test_every_bit_of_an_array_counts(self):
        array = RNG.normal(size=2_000)
        changed = array.copy()
        changed[1_234] = np.nextafter(changed[1_234], 9.0)
        assert key_of(array) != key_of(changed)
        assert key_of([array]) != key_of([changed])
        assert key_of(array[::2]) == key_of(array[::2].copy())

    def test_every_field_counts(self):
        fields = {"unit": True, "signed_root": True, "tol": 1e-9, "max_iter": 3}
        keys = {
            key_of(dataclasses.replace(RECIPE, **{k: v})) for k, v in fields.items()
        }
        assert len(keys | {key_of(RECIPE)}) == 5

    def test_what_has_no_key(self):
        for thing in (object(), {1, 2}, b"a", np.sum, [object()]):
            with pytest.raises(TypeError, match="has no key"):
                key_of(thing)


def with_a_long_name(*, text):
    """Made-up data, of which one sample has a label of its own."""
    rows, labels = made_up(text=text)
    if text:
        labels = labels.astype("<U40")
        labels[0] = "a name that is longer than others"
    return rows, labels


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The parts of the made-up data, by text or number and number of parts."""
    found = {}
    for text in (True, False):
        for n_parts in (1, 3, 17):
            folder = tmp_path_factory.mktemp("expected")
            gather(folder, *with_a_long_name(text=text), n_parts)
            found[text, n_parts] = parts_in(folder)
    return found


class TestParts:
    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(
        cuts=st.lists(st.integers(0, 60), max_size=8),
        text=st.booleans(),
        n_parts=st.sampled_from([1, 3, 17]),
    )
    @example(cuts=[1], text=True, n_parts=3)
    def test_any_blocks_give_the_same_bytes(
        self, expected, tmp_path, cuts, text, n_parts
    ):
        folder = tmp_path / "folder"
        gather(folder, *with_a_long_name(text=text), n_parts, cuts)
        assert parts_in(folder) == expected[text, n_parts]
        shutil.rmtree(folder)

    @pytest.mark.parametrize("text", [True, False])
    @pytest.mark.parametrize("single", [True, False])
    def test_what_is_in_them(self, tmp_path, text, single):
        rows, labels = made_up(text=text, single=single)
        scratch, _ = gather(tmp_path, rows, labels, 6, [7, 7, 31])
        seen = []
        for number in range(6):
            part = read_part(scratch, number)
            if not part.labels.size:
                continue
            assert part.rows.rows.dtype == rows.dtype
            own = part_numbers(label_hashes(part.labels), 6)
            assert (own == number).all()
            names = np.repeat(part.labels, part.rows.counts)
            np.testing.assert_array_equal(labels[part.numbers], names)
            np.testing.assert_array_equal(rows[part.numbers], part.rows.rows)
            assert part.labels.tolist() == sorted(set(names.tolist()))
            seen.extend(part.numbers.tolist())
        assert sorted(seen) == list(range(60))

    def test_single_precision_of_a_recogniser(self, tmp_path):
        rows, labels = made_up()
        scratch, _ = gather(tmp_path, rows, labels, 2, single=True)
        for number in range(2):
            part = read_part(scratch, number)
            assert part.rows.rows.dtype == np.float32
            wanted = rows[part.numbers].astype(np.float32)
            np.testing.assert_array_equal(part.rows.rows, wanted)

    def test_text_has_the_width_that_it_needs(self, tmp_path):
        rows = RNG.normal(size=(4, 3))
        labels = np.array(["a", "a", "b", "a name that is long"])
        scratch, _ = gather(tmp_path, rows, labels, 40)
        widths = [read_part(scratch, n).labels.dtype.itemsize // 4 for n in range(40)]
        used = [w for n, w in enumerate(widths) if read_part(scratch, n).labels.size]
        assert sorted(used) == [1, 1, 19]

    def test_parts_without_classes(self, tmp_path):
        rows, labels = made_up(n_classes=2, text=False)
        scratch, gathering = gather(tmp_path, rows, labels, 20)
        empty = [n for n in range(20) if not read_part(scratch, n).labels.size]
        assert len(empty) >= 18
        projection = Projection(scratch, 20, RECIPE, None, 100.0, "key")
        for number in empty:
            part = read_part(scratch, number)
            assert part.rows.counts.size == part.numbers.size == 0
            assert read_sums(scratch, number) is None
            sum_coordinates(projection, number)
            assert read_scatter(scratch, number) is None
        before = parts_in(tmp_path)
        for number in range(20):
            gather_part(gathering, number)
        assert parts_in(tmp_path) == before

    def test_labels_whose_hashes_are_equal_are_kept_apart(self, tmp_path, monkeypatch):
        hashes = lambda labels: np.full(labels.size, 7 << 60, np.uint64)  # noqa: E731
        monkeypatch.setattr(module, "label_hashes", hashes)
        rows, labels = made_up(n_classes=4)
        scratch, _ = gather(tmp_path, rows, labels, 3, [20, 40])
        sizes = [read_part(scratch, number).labels.size for number in range(3)]
        assert sizes == [0, 4, 0]
        part = read_part(scratch, 1)
        names = np.repeat(part.labels, part.rows.counts)
        np.testing.assert_array_equal(labels[part.numbers], names)

    def test_hashes_at_the_edges(self, tmp_path, monkeypatch):
        """The part of a run is where `part_numbers` says, also at its first hash."""
        firsts = [module._first_hash(part, 7) for part in range(8)]
        hashes = np.array(
            [h + d for h in firsts for d in (-1, 0, 1) if 0 <= h + d < 2**64], np.uint64
        )
        monkeypatch.setattr(module, "label_hashes", lambda labels: hashes[labels])
        labels = np.arange(hashes.size)
        scratch, _ = gather(tmp_path, RNG.normal(size=(labels.size, 2)), labels, 7)
        for number in range(7):
            own = read_part(scratch, number).labels
            np.testing.assert_array_equal(part_numbers(hashes[own], 7), number)
        found = [read_part(scratch, number).labels for number in range(7)]
        assert sorted(np.concatenate(found)) == labels.tolist()

    def test_the_order_of_samples_depends_on_their_values(self, tmp_path):
        rows, labels = made_up()
        rows[40:] = rows[:20]
        labels[40:] = labels[:20]
        order = np.random.default_rng(5).permutation(60)
        one, _ = gather(tmp_path / "one", rows, labels, 3)
        other, _ = gather(tmp_path / "other", rows[order], labels[order], 3, [10, 50])
        for number in range(3):
            first, second = read_part(one, number), read_part(other, number)
            assert first.rows.rows.tobytes() == second.rows.rows.tobytes()
            np.testing.assert_array_equal(first.labels, second.labels)
            np.testing.assert_array_equal(
                rows[order][second.numbers], rows[first.numbers]
            )

    def test_content_tells_rows_apart(self):
        rows = RNG.normal(size=(5_000, 4))
        rows[1:3_000:2] = rows[0]
        # Values in another order, and one bit.
        rows[3_001] = rows[3_000][::-1]
        rows[3_003] = rows[3_002]
        rows[3_003, 3] = np.nextafter(rows[3_003, 3], 9.0)
        for kind in (np.float64, np.float32):
            own = np.ascontiguousarray(rows.astype(kind))
            found = module._content(own)
            assert len(set(found)) == len(np.unique(own, axis=0))
            np.testing.assert_array_equal(module._content(own[17:40]), found[17:40])

    @pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
    def test_more_blocks_than_files_can_be_open(self, tmp_path):
        rows, labels = made_up(n_rows=300, n_classes=3, text=False)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = set(map(int, os.listdir("/proc/self/fd")))
        free = itertools.filterfalse(used.__contains__, itertools.count())
        most = next(itertools.islice(free, 100, None))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
        try:
            scratch, _ = gather(tmp_path, rows, labels, 1, range(1, 300))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert read_part(scratch, 0).numbers.size == 300


class TestMadeAgain:
    """Files that are there, and are right, are not made again."""

    @pytest.fixture
    def made(self, tmp_path):
        return gather(tmp_path / "folder", *made_up(), 3)

    def times(self, scratch, kind):
        return [scratch.path(kind, n).stat().st_mtime_ns for n in range(3)]

    def test_nothing_has_changed(self, made):
        scratch, gathering = made
        before = self.times(scratch, "part") + self.times(scratch, "sums")
        scratch.remove("run")
        for part in range(3):
            gather_part(gathering, part)
        assert self.times(scratch, "part") + self.times(scratch, "sums") == before

    @pytest.mark.parametrize("kind", ["part", "sums"])
    def test_a_damaged_file(self, made, kind):
        scratch, gathering = made
        path = scratch.path(kind, 1)
        content = path.read_bytes()
        for place in [*range(0, len(content), 97), len(content) - 1]:
            damaged = bytearray(content)
            damaged[place] ^= 16
            path.write_bytes(damaged)
            gather_part(gathering, 1)
            assert path.read_bytes() == content
        for length in (0, 5, 200, len(content) - 1):
            path.write_bytes(content[:length])
            gather_part(gathering, 1)
            assert path.read_bytes() == content

    @pytest.mark.parametrize(
        "change",
        [
            {"key": "other runs"},
            {"recipe": Recipe(True, True, 1e-6, None)},
            {"recipe": Recipe(False, False, 1e-6, None, True)},
        ],
    )
    def test_another_key(self, made, change):
        scratch, gathering = made
        before = self.times(scratch, "sums")
        gather_part(dataclasses.replace(gathering, **change), 1)
        after = self.times(scratch, "sums")
        assert [a == b for a, b in zip(before, after, strict=True)] == [
            *(True, False, True)
        ]

    def test_a_file_in_the_place_of_another(self, made):
        scratch, gathering = made
        right = parts_in(scratch.path("part", 0).parent)
        for kind in ("part", "sums"):
            shutil.copy(scratch.path(kind, 0), scratch.path(kind, 1))
        # Part 0 is whole, but not what part 1 should be.
        gather_part(gathering, 1)
        assert parts_in(scratch.path("part", 0).parent) == right

    def test_sums_over_coordinates(self, made):
        scratch, _ = made
        projection = Projection(scratch, 3, RECIPE, None, 100.0, "key")
        for part in range(3):
            sum_coordinates(projection, part)
        before = self.times(scratch, "scatter")
        sum_coordinates(projection, 1)
        assert self.times(scratch, "scatter") == before
        sum_coordinates(dataclasses.replace(projection, key="other"), 1)
        assert self.times(scratch, "scatter")[1] != before[1]
        # Another content of the part.
        before = self.times(scratch, "scatter")
        gather(tmp := scratch.path("part", 0).parent, *made_up(seed=1), 3)
        assert tmp.exists()
        sum_coordinates(projection, 2)
        assert self.times(scratch, "scatter")[2] != before[2]


class TestFaults:
    def test_a_folder_that_was_removed_does_not_come_back(self, tmp_path):
        scratch, gathering = gather(tmp_path / "folder", *made_up(), 2)
        runs = tmp_path / "runs"
        shutil.copytree(tmp_path / "folder", runs)
        shutil.rmtree(tmp_path / "folder")
        with pytest.raises(FileError, match="not there any more"):
            write_run(scratch, (0, Block(0, *made_up())))
        with pytest.raises(DualQMLError, match="Part 1 of 2"):
            gather_part(gathering, 1)
        assert not (tmp_path / "folder").exists()

    def test_a_missing_run_is_named(self, tmp_path):
        scratch, gathering = gather(tmp_path, *made_up(), 2, [30])
        scratch.remove("run", "part")
        with pytest.raises(ModelFileError, match=r"Part 0 of 2: .*run-000000"):
            gather_part(gathering, 0)

    def test_a_block_names_itself(self, tmp_path):
        def broken():
            raise BlockError("rows 0 to 9 of x cannot be read")

        with pytest.raises(BlockError, match=r"^rows 0 to 9"):
            write_run(Scratch(str(tmp_path)), (3, broken))

    def test_no_memory(self):
        with (
            pytest.raises(DualQMLError, match="Part 1 of 2: not enough memory"),
            module._named("Part 1 of 2"),
        ):
            raise MemoryError("1 GB")


def shard_arrays():
    """A shard of three classes with one, no and two factors."""
    return {
        "components": RNG.normal(size=(3, 4)),
        "ranks": np.array([1, 0, 2]),
        "mean_responses": np.ones(3),
        "multipliers": np.ones(6),
        "gap": np.zeros(3),
        "violation": np.zeros(3),
        "rounding_limited": np.zeros(3, dtype=bool),
        "n_iter": np.ones(3, dtype=np.int64),
        "energies": np.ones(3),
        "means": np.empty((0, 0)),
        "counts": np.array([1, 2, 3]),
        "labels": np.array([10, 20, 30]),
        "numbers": np.arange(6),
    }


class TestReadShard:
    def read(self, folder, *, verify=True, **change):
        arrays = shard_arrays() | change
        arrays = {name: array for name, array in arrays.items() if array is not None}
        write_tensors(folder / "shard", arrays, {})
        return read_shard(folder / "shard", verify=verify)

    def test_it_comes_back(self, tmp_path):
        shard = self.read(tmp_path)
        assert shard.labels.tolist() == [10, 20, 30]
        assert shard.solution.ranks.tolist() == [1, 0, 2]
        assert not shard.solution.components.flags.writeable
        text = np.array([[97, 0], [98, 98], [99, 0]], dtype=np.uint32)
        assert self.read(tmp_path, labels=text).labels.tolist() == ["a", "bb", "c"]

    def test_an_empty_one(self, tmp_path):
        write_tensors(tmp_path / "shard", {}, {})
        assert read_shard(tmp_path / "shard", verify=True) is None

    @pytest.mark.parametrize("name", shard_arrays())
    @pytest.mark.parametrize("verify", [True, False])
    def test_arrays_that_do_not_fit(self, tmp_path, name, verify):
        good = shard_arrays()[name]
        for bad in (
            None,
            np.zeros((), good.dtype),
            good[None, None],
            good.astype(np.float32),
            good.astype(np.uint16),
            np.zeros((5, *good.shape[1:]), good.dtype),
        ):
            with pytest.raises(ModelFileError, match=r"is no (whole )?shard"):
                self.read(tmp_path, verify=verify, **{name: bad})

    @pytest.mark.parametrize(
        "change",
        [
            {"ranks": np.array([-1, 2, 2])},
            {"ranks": np.array([1, 1, 2])},
            {"ranks": np.array([2**62, 2**62, 2**63 - 1])},
            {"counts": np.array([0, 3, 3])},
            {"counts": np.array([1, 2, 4])},
            {"counts": np.array([-1, 3, 4])},
            {"numbers": np.arange(7)},
            {"mean_responses": np.ones(2)},
            {"means": np.ones((2, 4))},
            {"labels": np.zeros((3, 0), dtype=np.uint32)},
            {"more": np.ones(3)},
        ],
    )
    def test_numbers_that_do_not_fit(self, tmp_path, change):
        with pytest.raises(ModelFileError, match=r"is no (whole )?shard"):
            self.read(tmp_path, **change)

    @pytest.mark.parametrize("name", ["components", "mean_responses", "energies"])
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_numbers_that_are_not_finite(self, tmp_path, name, value):
        bad = shard_arrays()[name]
        bad.flat[-1] = value
        with pytest.raises(ModelFileError, match=f"{name} has numbers that are not"):
            self.read(tmp_path, **{name: bad})
        # Only with `verify` all numbers are read.
        assert self.read(tmp_path, verify=False, **{name: bad}) is not None

    @pytest.mark.parametrize(
        "numbers", [[0, 1, 2, 3, 4, 4], [0, 1, 2, 3, 4, 6], [-1, 1, 2, 3, 4, 5]]
    )
    def test_each_sample_once(self, tmp_path, numbers):
        check_numbers([self.read(tmp_path)])
        with pytest.raises(ModelFileError, match="each sample"):
            check_numbers([self.read(tmp_path, numbers=np.array(numbers))])

    def test_another_file(self, tmp_path):
        scratch, _ = gather(tmp_path, *made_up(), 1)
        for kind in ("run", "part", "sums"):
            arrays, _ = read_tensors(scratch.path(kind, 0))
            assert arrays
            with pytest.raises(ModelFileError, match="is no shard"):
                read_shard(scratch.path(kind, 0))
