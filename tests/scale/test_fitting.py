"""Fits in blocks: equal results, whatever happens on the way."""

import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_spd_matrix

from dualqml import DualQML, DualQMLClassifier, DualQMLW, DualQMLWCV
from dualqml.exceptions import (
    BlockError,
    ClusterError,
    DualQMLError,
    FileError,
    InfeasibleError,
    MethodError,
    RunError,
)
from dualqml.extractors import Background
from dualqml.recognition import Recognizer
from dualqml.scale import ShardedModel, fit_blocks, fit_recognizer, row_blocks
from tests.datasets import has_database, load_samples

#: Bytes of a part, so that small data have several parts.
SMALL = 40_000
#: The largest difference of scores from those of the usual fit.
CLOSE = 1e-8


def make_samples(counts, *, size=16, noise=0.5, seed=0):
    """Vectors of people in random order, and their names."""
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    rows = rng.normal(size=(len(counts), size))[codes]
    rows += noise * rng.normal(size=rows.shape) @ make_spd_matrix(size, random_state=0)
    return rows, np.array([f"Person {code:05}" for code in codes])


@pytest.fixture(scope="module")
def people():
    """300 people with one to eight photos each."""
    counts = np.random.default_rng(3).integers(1, 9, size=300)
    return make_samples(counts)


@pytest.fixture(scope="module")
def vectors(people):
    """The same people as a recogniser keeps them."""
    X, y = people
    return X.astype(np.float32), y.tolist()


def content(model, folder):
    """All bytes of a model."""
    model.save(folder)
    return {
        path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.saf*"))
    }


def closeness(model, local, X):
    """The largest difference of features, relative to the largest feature."""
    found, usual = model.transform(X), local.transform(X)
    return np.abs(found - usual).max() / np.abs(usual).max()


ESTIMATORS = {
    "DualQML": DualQML(0.3),
    "quadratic": DualQML(0.3, features="quadratic", lam_scale="auto"),
    "max": DualQMLClassifier(0.3, rule="max"),
    "cosine": DualQMLClassifier(0.3, rule="cosine"),
    "DualQML-W": DualQMLW(kernel="linear", rule="max"),
    "DualQML-W, cosine": DualQMLW(kernel="linear", rule="cosine"),
    "DualQML-W-CV": DualQMLWCV(kernel="linear", random_state=0),
}


class TestEqualToTheUsualFit:
    @pytest.mark.parametrize("name", ESTIMATORS)
    def test_all_estimators(self, people, name):
        X, y = people
        model = fit_blocks(ESTIMATORS[name], X, y, part_bytes=SMALL)
        local = ESTIMATORS[name].fit(X, y)
        assert model.n_shards == 5
        assert closeness(model, local, X[:200]) < CLOSE
        np.testing.assert_array_equal(model.classes_, local.classes_)
        qml = getattr(local, "qml_", local)
        np.testing.assert_array_equal(model.ranks_, qml.ranks_)
        assert (model.status_ == "optimal").all()
        assert model.duality_gap_.max() <= model.tol
        if hasattr(local, "predict"):
            np.testing.assert_array_equal(model.predict(X), local.predict(X))
            np.testing.assert_allclose(
                model.class_scores(X[:50]), local.class_scores(X[:50]), atol=CLOSE
            )

    @pytest.mark.parametrize("name", ESTIMATORS)
    def test_to_local(self, people, name):
        X, y = people
        found = fit_blocks(ESTIMATORS[name], X, y, part_bytes=SMALL).to_local()
        local = ESTIMATORS[name].fit(X, y)
        assert type(found) is type(local)
        assert closeness(found, local, X[:200]) < CLOSE
        found_qml, qml = (getattr(model, "qml_", model) for model in (found, local))
        np.testing.assert_allclose(found_qml.dual_coef_, qml.dual_coef_, atol=1e-7)
        assert found_qml.lam_ == pytest.approx(qml.lam_, rel=1e-12)
        if hasattr(local, "predict"):
            np.testing.assert_array_equal(found.predict(X), local.predict(X))

    def test_ragged_classes(self):
        X, y = make_samples([1, 2, 3, 200, 50, 1, 1, 7, 120, 4, 4, 5], size=12)
        for estimator in (DualQMLClassifier(1.0, rule="max"), ESTIMATORS["DualQML-W"]):
            model = fit_blocks(estimator, X, y, part_bytes=10_000)
            assert closeness(model, estimator.fit(X, y), X) < CLOSE

    def test_ten_thousand_classes(self):
        X, y = make_samples(np.full(10_000, 3), size=32)
        estimator = ESTIMATORS["DualQML-W"]
        model = fit_blocks(estimator, X, y, part_bytes=1_000_000)
        local = estimator.fit(X, y)
        assert model.n_shards == 8
        assert closeness(model, local, X[:50]) < CLOSE
        np.testing.assert_array_equal(model.predict(X[:500]), local.predict(X[:500]))

    def test_vectors_in_single_precision_with_numbers_as_labels(self, people):
        X, names = people
        y = np.unique(names, return_inverse=True)[1] - 7
        model = fit_blocks(
            ESTIMATORS["DualQML-W"], X.astype(np.float32), y, part_bytes=SMALL
        )
        local = ESTIMATORS["DualQML-W"].fit(X.astype(np.float32), y)
        assert closeness(model, local, X[:100]) < CLOSE
        np.testing.assert_array_equal(model.predict(X), local.predict(X))

    def test_a_background(self, people):
        X, y = people
        others = Background.from_samples(*make_samples(np.full(60, 4), seed=9))
        for estimator in (
            DualQMLW(kernel="linear", rule="max", background=others),
            DualQMLWCV(kernel="linear", random_state=0, background=others),
        ):
            model = fit_blocks(estimator, X, y, part_bytes=SMALL)
            assert closeness(model, estimator.fit(X, y), X[:100]) < CLOSE

    def test_the_search_is_told(self, people):
        model = fit_blocks(ESTIMATORS["DualQML-W-CV"], *people, part_bytes=SMALL)
        local = ESTIMATORS["DualQML-W-CV"].fit(*people)
        assert model.n_searched_classes_ == 300
        assert model.search_["best_params_"] == pytest.approx(local.best_params_)
        assert "on the samples of 300 classes" in model.describe()

    @pytest.mark.realdata
    @pytest.mark.skipif(not has_database("ar"), reason="AR is not here")
    def test_ar(self):
        X, y = load_samples("ar")
        X = X - X.mean(axis=1, keepdims=True)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        for estimator in (DualQML(1.0), DualQMLW(kernel="linear", rule="max")):
            model = fit_blocks(estimator, X, y, part_bytes=4_000_000)
            assert model.n_shards == 4
            assert closeness(model, estimator.fit(X, y), X[:200]) < CLOSE


class TestRecognizer:
    def test_scores_are_those_of_its_own_fit(self, vectors):
        X, names = vectors
        usual, other = Recognizer(threshold=1.0), Recognizer(threshold=1.0)
        for recognizer in (usual, other):
            recognizer.enroll_many(X, names)
        fit_recognizer(other)
        np.testing.assert_allclose(
            other.scores(X[:60]), usual.scores(X[:60]), atol=CLOSE
        )
        assert other.chosen_parameters == pytest.approx(usual.chosen_parameters)
        assert other.model_id == usual.model_id

    def test_without_the_samples(self, vectors):
        X, names = vectors
        usual = Recognizer()
        usual.enroll_many(X, names)
        model = fit_blocks(Recognizer(), X, names, part_bytes=SMALL)
        scores = usual.scores(X[:60])
        np.testing.assert_allclose(model.class_scores(X[:60]), scores, atol=CLOSE)
        best = np.array(usual.subjects())[scores.argmax(axis=1)]
        np.testing.assert_array_equal(model.predict(X[:60]), best)

    def test_few_people_with_a_background(self):
        others = Background.from_samples(*make_samples(np.full(60, 4), seed=9))
        X, names = make_samples([2, 3, 1, 4])
        X = X.astype(np.float32)
        usual = Recognizer(background=others)
        usual.enroll_many(X, names.tolist())
        model = fit_blocks(Recognizer(background=others), X, names)
        np.testing.assert_allclose(model.class_scores(X), usual.scores(X), atol=CLOSE)

    def test_a_recogniser_changes_after_it(self, vectors, tmp_path):
        X, names = vectors
        recognizer = Recognizer(threshold=1.0)
        recognizer.enroll_many(X, names)
        fit_recognizer(recognizer, scratch=tmp_path)
        assert not list(tmp_path.iterdir())
        recognizer.save(tmp_path / "people.dualqml")
        loaded = Recognizer.load(tmp_path / "people.dualqml")
        np.testing.assert_array_equal(loaded.scores(X[:9]), recognizer.scores(X[:9]))
        gone = names[0]
        recognizer.remove(gone)
        assert gone not in recognizer.fit().subjects()

    def test_other_methods_need_all_samples(self):
        with pytest.raises(MethodError, match="LDA cannot be fitted in parts"):
            fit_blocks(Recognizer("LDA"), *make_samples([3, 3, 3]))

    def test_one_person_needs_a_background(self):
        with pytest.raises(DualQMLError, match="at least two"):
            fit_blocks(Recognizer(), *make_samples([3]))


@pytest.fixture(scope="module")
def expected(people, tmp_path_factory):
    """The files of the model of the people."""
    model = fit_blocks(ESTIMATORS["DualQML-W-CV"], *people, part_bytes=SMALL)
    return content(model, tmp_path_factory.mktemp("expected"))


class TestTheSameBits:
    @pytest.mark.parametrize("block_bytes", [1, 1_000, 1 << 30])
    def test_for_any_blocks(self, people, expected, tmp_path, block_bytes):
        blocks = row_blocks(*people, block_bytes=block_bytes)
        model = fit_blocks(ESTIMATORS["DualQML-W-CV"], blocks, part_bytes=SMALL)
        assert content(model, tmp_path) == expected

    def test_for_a_stream(self, people, expected, tmp_path):
        X, y = people
        cuts = [0, 1, 50, 50, 900, len(X)]
        stream = ((X[a:b], y[a:b]) for a, b in itertools.pairwise(cuts))
        model = fit_blocks(ESTIMATORS["DualQML-W-CV"], stream, part_bytes=SMALL)
        assert content(model, tmp_path) == expected

    def test_for_any_order_of_arrival(self, people):
        X, y = people
        order = np.random.default_rng(1).permutation(len(X))
        estimator = ESTIMATORS["DualQML-W"]
        one = fit_blocks(estimator, X, y, part_bytes=SMALL)
        other = fit_blocks(estimator, X[order], y[order], part_bytes=SMALL)
        np.testing.assert_array_equal(one.transform(X[:99]), other.transform(X[:99]))
        np.testing.assert_array_equal(one.duality_gap_, other.duality_gap_)

    @pytest.mark.parametrize("made_by", ["dask", "zarr", "parquet", "memmap"])
    def test_for_all_kinds_of_input(self, people, expected, tmp_path, made_by):
        X, y = people
        rows = _stored(X, y, tmp_path, made_by)
        labels = "who" if made_by == "parquet" else y
        model = fit_blocks(ESTIMATORS["DualQML-W-CV"], rows, labels, part_bytes=SMALL)
        assert content(model, tmp_path / "model") == expected

    def test_on_a_cluster(self, people, expected, tmp_path, client):
        model = fit_blocks(
            ESTIMATORS["DualQML-W-CV"], *people, client=client, part_bytes=SMALL
        )
        assert content(model, tmp_path) == expected

    @pytest.mark.parametrize("made_by", ["dask", "zarr", "parquet", "memmap"])
    def test_workers_read_the_blocks(self, people, expected, tmp_path, client, made_by):
        X, y = people
        labels = "who" if made_by == "parquet" else y
        model = fit_blocks(
            ESTIMATORS["DualQML-W-CV"],
            _stored(X, y, tmp_path, made_by),
            labels,
            client=client,
            scratch=tmp_path / "scratch",
            part_bytes=SMALL,
        )
        assert content(model, tmp_path / "model") == expected

    def test_on_one_worker(self, people, expected, tmp_path):
        pytest.importorskip("distributed")
        from dualqml.scale import connected

        with connected("local", workers=1) as client:
            model = fit_blocks(
                ESTIMATORS["DualQML-W-CV"], *people, client=client, part_bytes=SMALL
            )
            assert content(model, tmp_path) == expected

    def test_workers_are_killed_at_ten_moments(self, people, tmp_path, client):
        X, y = people
        np.save(tmp_path / "X.npy", X)
        estimator, killed = ESTIMATORS["DualQML-W"], 0
        usual = content(fit_blocks(estimator, X, y, part_bytes=SMALL), tmp_path / "a")
        for moment in range(10):
            chance = random.Random(moment)
            kill = _Killer(client, at=chance.randint(1, 14), chance=chance)
            model = fit_blocks(
                estimator,
                tmp_path / "X.npy",
                y,
                client=client,
                part_bytes=SMALL,
                progress=kill,
            )
            assert content(model, tmp_path / str(moment)) == usual
            killed += kill.done
            client.wait_for_workers(2, timeout=60)
        assert killed == 10


class _Killer:
    """Kills a worker at a moment of a fit."""

    def __init__(self, client, *, at, chance):
        self._client, self._left, self._chance = client, at, chance
        self.done = 0

    def __call__(self, step, done, total):
        self._left -= 1
        if self._left == 0:
            workers = self._client.scheduler_info(n_workers=-1)["workers"]
            pids = self._client.run(os.getpid)
            assert set(pids) <= set(workers)
            os.kill(self._chance.choice(sorted(pids.values())), signal.SIGKILL)
            self.done += 1


def _stored(X, y, folder, made_by):
    """Rows in another form."""
    if made_by == "memmap":
        np.save(folder / "X.npy", X)
        return np.load(folder / "X.npy", mmap_mode="r")
    if made_by == "dask":
        dask_array = pytest.importorskip("dask.array")
        return dask_array.from_array(X, chunks=(100, -1))
    if made_by == "zarr":
        zarr = pytest.importorskip("zarr")
        array = zarr.create_array(
            str(folder / "X.zarr"), shape=X.shape, chunks=(64, X.shape[1]), dtype="f8"
        )
        array[:] = X
        return folder / "X.zarr"
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    vectors = pyarrow.FixedSizeListArray.from_arrays(X.reshape(-1), X.shape[1])
    table = pyarrow.table({"vector": vectors, "who": pyarrow.array(y.tolist())})
    parquet.write_table(table, folder / "X.parquet", row_group_size=200)
    return folder / "X.parquet"


class TestFaults:
    def test_resume_computes_what_is_missing_only(self, people, tmp_path):
        scratch, said = tmp_path / "scratch", []
        estimator = ESTIMATORS["DualQML-W"]
        expected = content(
            fit_blocks(estimator, *people, part_bytes=SMALL), tmp_path / "expected"
        )
        with pytest.raises(_StopError):
            fit_blocks(
                estimator,
                *people,
                scratch=scratch,
                part_bytes=SMALL,
                progress=_stop_at("solve", 3),
            )
        made = {path.name: path.stat().st_mtime_ns for path in scratch.glob("shard*")}
        assert len(made) == 3
        model = fit_blocks(
            estimator,
            *people,
            scratch=scratch,
            part_bytes=SMALL,
            resume=True,
            progress=lambda *step: said.append(step),
        )
        assert content(model, tmp_path / "model") == expected
        for name, when in made.items():
            assert (scratch / name).stat().st_mtime_ns == when
        assert ("solve", 5, 5) in said
        # Only the model is left, and can be loaded.
        assert not list(scratch.glob("part-*"))
        assert content(ShardedModel.load(scratch), tmp_path / "again") == expected

    def test_resume_notices_other_data(self, people, tmp_path):
        X, y = people
        with pytest.raises(_StopError):
            fit_blocks(
                ESTIMATORS["max"],
                X,
                y,
                scratch=tmp_path / "scratch",
                part_bytes=SMALL,
                progress=_stop_at("solve", 3),
            )
        changed = X.copy()
        changed[17] *= 1.5
        found = fit_blocks(
            ESTIMATORS["max"],
            changed,
            y,
            scratch=tmp_path / "scratch",
            part_bytes=SMALL,
            resume=True,
        )
        right = fit_blocks(ESTIMATORS["max"], changed, y, part_bytes=SMALL)
        assert content(found, tmp_path / "a") == content(right, tmp_path / "b")

    def test_resume_replaces_damaged_files(self, people, tmp_path):
        scratch = tmp_path / "scratch"
        with pytest.raises(_StopError):
            fit_blocks(
                ESTIMATORS["max"],
                *people,
                scratch=scratch,
                part_bytes=SMALL,
                progress=_stop_at("solve", 3),
            )
        for name in ("shard-000001", "sums-000002", "part-000000", "scatter-000003"):
            path = scratch / f"{name}.safetensors"
            data = bytearray(path.read_bytes())
            data[-9] ^= 1
            path.write_bytes(data)
        found = fit_blocks(
            ESTIMATORS["max"], *people, scratch=scratch, part_bytes=SMALL, resume=True
        )
        right = fit_blocks(ESTIMATORS["max"], *people, part_bytes=SMALL)
        assert content(found, tmp_path / "a") == content(right, tmp_path / "b")

    def test_a_folder_with_another_fit_is_refused(self, people, tmp_path):
        fit_blocks(ESTIMATORS["max"], *people, scratch=tmp_path / "scratch")
        with pytest.raises(FileError, match="resume=True goes on"):
            fit_blocks(ESTIMATORS["max"], *people, scratch=tmp_path / "scratch")

    def test_resume_needs_a_folder(self, people):
        with pytest.raises(FileError, match="give it as scratch"):
            fit_blocks(ESTIMATORS["max"], *people, resume=True)

    def test_a_bad_block_is_named(self, people, tmp_path, client):
        X, y = people
        X = X.copy()
        X[700, 3] = np.nan
        np.save(tmp_path / "X.npy", X)
        for source, workers in ((X, None), (tmp_path / "X.npy", client)):
            with pytest.raises(BlockError, match="row 700"):
                fit_blocks(ESTIMATORS["max"], source, y, client=workers)

    def test_a_file_that_goes_away(self, people, tmp_path, client):
        X, y = people
        np.save(tmp_path / "X.npy", X)
        blocks = row_blocks(tmp_path / "X.npy", y, block_bytes=10_000)
        (tmp_path / "X.npy").unlink()
        with pytest.raises(BlockError, match=r"X\.npy"):
            fit_blocks(ESTIMATORS["max"], blocks, client=client)

    @pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
    def test_no_room_for_files(self, people, tmp_path):
        X, y = people
        np.savez(tmp_path / "data.npz", X=X, y=y)
        program = textwrap.dedent(
            """
            import resource, sys
            import numpy as np
            from dualqml import DualQMLClassifier
            from dualqml.exceptions import FileError
            from dualqml.scale import fit_blocks
            data = np.load("data.npz")
            resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))
            try:
                fit_blocks(DualQMLClassifier(0.3, rule="max"), data["X"], data["y"],
                           scratch="scratch", part_bytes=40_000)
            except FileError as error:
                sys.exit(str(error))
            """
        )
        found = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert found.returncode == 1
        assert "run-000000.safetensors cannot be written" in found.stderr
        assert "Block 0" in found.stderr
        model = fit_blocks(
            ESTIMATORS["max"],
            X,
            y,
            scratch=tmp_path / "scratch",
            part_bytes=SMALL,
            resume=True,
        )
        right = fit_blocks(ESTIMATORS["max"], X, y, part_bytes=SMALL)
        assert content(model, tmp_path / "a") == content(right, tmp_path / "b")

    def test_the_memory_limit_of_a_worker(self, tmp_path):
        dask = pytest.importorskip("dask")
        # Without it, Dask would forget its own settings at the end of this test.
        pytest.importorskip("distributed")
        from dualqml.scale import connected

        # A worker needs up to 250 MB for its imports, and 600 MB while it solves.
        X, y = make_samples(np.full(100_000, 1), size=64)
        with (
            dask.config.set({"distributed.scheduler.allowed-failures": 0}),
            connected("local", workers=1, memory_limit="400MB") as client,
            # Which step is over the limit, depends on the machine.
            pytest.raises(RunError, match=r"part 0 of 1, .* Give each worker more"),
        ):
            fit_blocks(
                DualQML(1.0),
                X,
                y,
                client=client,
                scratch=tmp_path / "scratch",
                part_bytes=1 << 30,
            )

    def test_workers_that_do_not_see_the_scratch_folder(self, people, client, tmp_path):
        def hide(step, done, total):
            if step == "gather":
                (tmp_path / "scratch").rename(tmp_path / "elsewhere")

        with pytest.raises(ClusterError, match=r"does not see the folder .*scratch"):
            fit_blocks(
                ESTIMATORS["max"],
                *people,
                client=client,
                scratch=tmp_path / "scratch",
                progress=hide,
            )

    def test_the_scheduler_goes_away(self, people, tmp_path):
        pytest.importorskip("distributed")
        from dualqml.scale import connected

        scheduler = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_scheduler",
                "--port",
                "0",
                "--host",
                "127.0.0.1",
                "--no-dashboard",
                "--scheduler-file",
                "s.json",
            ],
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
        )
        worker = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_worker",
                "--scheduler-file",
                "s.json",
                "--nworkers",
                "1",
                "--nthreads",
                "1",
                "--no-dashboard",
                "--host",
                "127.0.0.1",
                "--death-timeout",
                "60",
            ],
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_for_file(tmp_path / "s.json", scheduler)
            with connected(tmp_path / "s.json") as client:
                client.wait_for_workers(1, timeout=60)

                def end(step, done, total):
                    if (step, done) == ("solve", 1):
                        scheduler.kill()

                with pytest.raises(RunError, match="scheduler of the cluster is gone"):
                    fit_blocks(
                        ESTIMATORS["max"],
                        *people,
                        client=client,
                        scratch=tmp_path / "scratch",
                        part_bytes=SMALL,
                        progress=end,
                    )
        finally:
            for process in (worker, scheduler):
                process.kill()
                process.wait()
        model = fit_blocks(
            ESTIMATORS["max"],
            *people,
            scratch=tmp_path / "scratch",
            part_bytes=SMALL,
            resume=True,
        )
        right = fit_blocks(ESTIMATORS["max"], *people, part_bytes=SMALL)
        assert content(model, tmp_path / "a") == content(right, tmp_path / "b")


def _wait_for_file(path, process):
    while not path.exists() or not path.read_bytes():
        assert process.poll() is None
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue


class _StopError(Exception):
    """The test ends a fit."""


def _stop_at(step, number):
    def progress(now, done, total):
        if (now, done) == (step, number):
            raise _StopError

    return progress


class TestRefused:
    def test_zero_vectors(self, people):
        X, y = people
        X = X.copy()
        X[[5, 1000]] = 0.0
        with pytest.warns(UserWarning, match="rows 5, 1000 of X"):
            model = fit_blocks(ESTIMATORS["max"], X, y, part_bytes=SMALL)
        with pytest.warns(UserWarning, match="rows 5, 1000 of X"):
            local = ESTIMATORS["max"].fit(X, y)
        assert closeness(model, local, X[:99]) < CLOSE
        with pytest.raises(InfeasibleError, match="rows 5, 1000 of X"):
            fit_blocks(DualQML(zero_samples="error"), X, y, part_bytes=SMALL)
        X[y == y[5]] = 0.0
        with (
            pytest.warns(UserWarning, match="zero vectors"),
            pytest.raises(InfeasibleError, match=f"class .*{y[5]}"),
        ):
            fit_blocks(ESTIMATORS["max"], X, y, part_bytes=SMALL)

    @pytest.mark.parametrize(
        ("estimator", "words"),
        [
            (DualQML(solver="lbfgs"), "solver='newton'"),
            (DualQMLClassifier(probability=True), "probability=False"),
            (DualQMLW(image_shape=(4, 4)), "only vectors"),
            (DualQMLW(kernel="rbf"), "kernel='linear'"),
            (DualQMLW(), "kernel='auto' is a Gaussian kernel"),
        ],
    )
    def test_what_needs_all_samples(self, people, estimator, words):
        with pytest.raises(MethodError, match=words):
            fit_blocks(estimator, *people)

    def test_an_address_is_no_connection(self, people):
        with pytest.raises(ClusterError, match=r"`connected` gives, not 'tcp://a:1'"):
            fit_blocks(ESTIMATORS["max"], *people, client="tcp://a:1")
        with pytest.raises(ClusterError, match=r"`connected` gives, not 'tcp://a:1'"):
            fit_recognizer(Recognizer(), client="tcp://a:1")

    def test_far_too_many_parts(self):
        rows = np.random.default_rng(0).normal(size=(1_000, 16))
        with pytest.raises(BlockError, match=r"128,000 parts.*: give at least 2$"):
            fit_blocks(DualQML(), rows, np.arange(1_000) % 9, part_bytes=1)

    def test_one_class(self):
        with pytest.raises(ValueError, match="at least 2 classes"):
            fit_blocks(ESTIMATORS["max"], np.eye(3), ["a", "a", "a"])

    def test_nothing_is_left_behind(self, people, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with pytest.raises(_StopError):
            fit_blocks(ESTIMATORS["max"], *people, progress=_stop_at("gather", 1))
        assert not list(tmp_path.iterdir())
        model = fit_blocks(ESTIMATORS["max"], *people)
        assert len(list(tmp_path.iterdir())) == 1
        model.transform(people[0][:2])
        del model
        assert not list(tmp_path.iterdir())
