import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from dualqml.data import VectorDatabase
from dualqml.exceptions import RunError, StoreError
from dualqml.experiments import runner
from dualqml.experiments.protocol import Experiment, Protocol
from dualqml.experiments.runner import (
    UnitRunner,
    chosen_parameters,
    run_experiment,
    spectrum,
    versions,
)
from dualqml.experiments.store import ResultStore, read_results
from dualqml.extractors.methods import METHODS, VECTOR_METHODS, make_method
from dualqml.extractors.own_methods import OwnMethod
from tests.people import make_people, make_vectors


def run_units(database, **settings):
    experiment = Experiment({"p": database}, **{"repeats": 1} | settings)
    units = UnitRunner(experiment.databases, experiment.protocol)
    return {unit.method: units.run(unit) for unit in experiment.units}


@pytest.fixture(scope="module")
def everything():
    return run_units(make_people(noise=0.8), sizes=(3,))


def test_every_method_runs(everything):
    assert list(everything) == list(METHODS)
    for result in everything.values():
        assert result.status == "done", result.reason
        assert (result.n_subjects, result.n_train, result.n_test) == (6, 18, 12)
        assert result.n_short == 0
        assert result.fit_seconds >= 0.0
        assert result.test_seconds >= 0.0
        assert result.versions == versions()
        assert result.finished.endswith("+00:00")


def test_mistakes_name_the_sample_and_whom_it_was_taken_for(everything):
    people = make_people(noise=0.8)
    n_seen = 0
    for result in everything.values():
        n_wrong = round(result.error * result.n_test / 100)
        if result.n_seeds == 1:
            assert len(result.mistakes) == min(n_wrong, 8)
        for asked, taken, true in result.mistakes:
            assert people.labels[asked] == people.labels[true]
            assert people.labels[asked] != people.labels[taken]
            assert asked != true
            n_seen += 1
    assert n_seen > 0


def test_identification_agrees_with_the_error(everything):
    for result in everything.values():
        assert len(result.identified) == 6
        assert result.identified[-1] == 12
        assert list(result.identified) == sorted(result.identified)
        assert result.error == pytest.approx(100 * (1 - result.identified[0] / 12))


def test_the_error_is_that_of_the_method_done_by_hand(everything):
    people = make_people(noise=0.8)
    split = Protocol().split(people, 3, 0, 0)
    X = normalize(people.rows)
    for name in ("LDA", "DualQML", "DualQML-W"):
        model = make_method(name, image_shape=(8, 8))
        model.fit(X[split.train], people.labels[split.train])
        right = model.score(X[split.test], people.labels[split.test])
        assert everything[name].error == pytest.approx(100 * (1 - right))


def test_the_error_of_mle_is_a_mean_over_seeds():
    people = make_people(n_people=20, noise=2.0)
    result = run_units(people, sizes=(3,), methods=("MLE",))["MLE"]
    split = Protocol().split(people, 3, 0, 0)
    X, labels = normalize(people.rows), people.labels
    errors = []
    for seed in range(5):
        model = make_method("MLE", random_state=seed)
        model.fit(X[split.train], labels[split.train])
        errors.append(100 * (1 - model.score(X[split.test], labels[split.test])))
    assert result.n_seeds == METHODS["MLE"].n_seeds == 5
    assert np.std(errors) > 0.0, "a case where the seed matters"
    assert result.error == pytest.approx(np.mean(errors))
    n_test = split.test.size
    assert result.error == pytest.approx(100 * (1 - result.identified[0] / n_test))


def test_times_are_those_of_one_seed(monkeypatch):
    # Each reading of the clock is a second after the one before.
    seconds = iter(range(1000))
    monkeypatch.setattr(runner.time, "process_time", lambda: float(next(seconds)))
    results = run_units(make_people(), sizes=(3,), methods=("LDA", "MLE"))
    for result in results.values():
        assert (result.fit_seconds, result.test_seconds) == (1.0, 1.0)


def test_what_was_chosen_is_kept(everything):
    assert everything["LDA"].parameters == {}
    chosen = everything["DualQML"].parameters
    assert set(chosen) == {"best_lam", "folds"}
    assert 0.1 <= chosen["best_lam"] <= 10.0
    assert chosen["folds"] == 10
    assert {"best_rho", "best_lam", "best_rule"} <= set(
        everything["DualQML-W"].parameters
    )
    tuned = run_units(make_people(noise=0.8), sizes=(3,), methods=("LDA",), tune=True)
    assert set(tuned["LDA"].parameters) == {"shrinkage", "tangents"}


def test_the_training_without_the_choice_is_timed_too(monkeypatch):
    # Each reading of the clock is a second after the one before.
    seconds = iter(range(1000))
    monkeypatch.setattr(runner.time, "process_time", lambda: float(next(seconds)))
    methods = ("LDA", "DualQML", "DualQML-W")
    results = run_units(make_people(noise=0.8), sizes=(3,), methods=methods)
    assert [result.searched for result in results.values()] == [False, True, True]
    assert np.isnan(results["LDA"].refit_seconds)
    for name in methods[1:]:
        assert results[name].refit_seconds == 1.0
    tuned = run_units(make_people(noise=0.8), sizes=(3,), methods=("LDA",), tune=True)
    assert tuned["LDA"].searched
    assert tuned["LDA"].refit_seconds == 1.0


def vector_people(noise=0.6):
    rows, labels = make_vectors(6, 5, size=20, noise=noise)
    return VectorDatabase("v", rows, labels)


def test_vectors_by_hand():
    people = vector_people(noise=2.0)
    results = run_units(people, sizes=(3,))
    assert set(VECTOR_METHODS) < set(results)
    assert not {"CFA-OTF", "GTDA", "MLE"} & set(results)
    split = Protocol().split(people, 3, 0, 0)
    X, labels = normalize(people.vectors), people.labels
    for name, result in results.items():
        assert result.status == "done", result.reason
        assert result.unit.input == "vectors"
        model = make_method(name).fit(X[split.train], labels[split.train])
        right = model.score(X[split.test], labels[split.test])
        assert result.error == pytest.approx(100 * (1 - right)), name
        assert result.error == pytest.approx(100 * (1 - result.identified[0] / 12))
    assert len({result.error for result in results.values()}) > 1


def test_tuned_vectors():
    methods = ("LDA", "NN-cosine", *list(VECTOR_METHODS)[2:])
    results = run_units(vector_people(), sizes=(2,), methods=methods, tune=True)
    chosen = {name: set(result.parameters) for name, result in results.items()}
    assert chosen == {
        "LDA": {"shrinkage"},
        "NN-cosine": set(),
        "Linear-SVM": {"C"},
        "Logistic": {"C"},
        "LDA-shrunk": {"shrinkage"},
    }
    assert not results["NN-cosine"].searched


def test_local_descriptors_by_hand():
    people = make_people(n_people=12, size=16, noise=1.5)
    methods = ("LDA", "DualQML", "DualQML-W")
    experiment = Experiment(
        {"p": people},
        sizes=(2,),
        methods=methods,
        repeats=1,
        inputs=("pixels", "local"),
    )
    units = UnitRunner(experiment.databases, experiment.protocol)
    split = Protocol().split(people, 2, 0, 0)
    X, labels = normalize(people.rows), people.labels
    errors = {}
    for unit in experiment.units:
        errors[unit.input, unit.method] = units.run(unit).error
    for (name, method), error in errors.items():
        model = make_method(
            method,
            image_shape=(16, 16),
            preprocessing="local" if name == "local" else None,
        )
        model.fit(X[split.train], labels[split.train])
        right = model.score(X[split.test], labels[split.test])
        assert error == pytest.approx(100 * (1 - right)), (name, method)
    assert len(set(errors.values())) > 2


OWN_MODULE = """
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

class OnlyPredicts:
    def fit(self, X, y):
        self.X, self.y = X, y
        return self
    def predict(self, X):
        return self.y[(X @ self.X.T).argmax(axis=1)]

class Fails(OnlyPredicts):
    def __init__(self, how="error"):
        self.how = how
    def fit(self, X, y):
        if self.how == "exit":
            raise SystemExit("enough")
        raise RuntimeError("not today")

class WrongShape(OnlyPredicts):
    def predict(self, X):
        return super().predict(X)[:, None]

def search():
    return GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 2]}, cv=2)

def pairs():
    return SVC(decision_function_shape="ovo")
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_of_runner.py").write_text(OWN_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda text: OwnMethod.parse(text.replace("own:", "own_of_runner:"))


def test_methods_of_your_own_by_hand(own):
    people = make_people(n_people=10, noise=2.5)
    methods = (
        own("svm=sklearn.svm:LinearSVC(C=0.5)"),
        own("pca=sklearn.decomposition:PCA(n_components=4)"),
        own("only=own:OnlyPredicts"),
        own("search=own:search"),
        own("pairs=own:pairs"),
    )
    results = run_units(people, sizes=(3,), methods=("LDA",), own=methods)
    for result in results.values():
        assert result.status == "done", result.reason
        assert result.n_train == 30
    split = Protocol().split(people, 3, 0, 0)
    X, labels = normalize(people.rows), people.labels
    svm = LinearSVC(C=0.5, random_state=0).fit(X[split.train], labels[split.train])
    right = svm.score(X[split.test], labels[split.test])
    assert results["svm"].error == pytest.approx(100 * (1 - right))
    nearest = normalize(X[split.test]) @ X[split.train].T
    wrong = labels[split.train][nearest.argmax(axis=1)] != labels[split.test]
    assert results["only"].error == pytest.approx(100 * wrong.mean())
    # Scores of all classes give a list; without them only its first is known.
    assert [len(r.identified) for r in results.values()] == [10, 10, 10, 1, 10, 1]
    assert results["only"].identified == (float((~wrong).sum()),)
    assert results["search"].searched
    assert results["search"].parameters["best_n_neighbors"] in (1, 2)
    assert results["search"].refit_seconds >= 0.0


def test_a_method_of_your_own_that_fails_stops_nothing(own, tmp_path):
    what = experiment(
        sizes=(2,),
        methods=("LDA",),
        repeats=2,
        own=(
            own("error=own:Fails"),
            own("exit=own:Fails(how='exit')"),
            own("shape=own:WrongShape"),
            own("fine=own:OnlyPredicts"),
        ),
    )
    summary = run(tmp_path / "r.jsonl", what, n_jobs=2)
    assert len(summary.results) == 10
    reasons = {result.unit.method: result.reason for result in summary.failed}
    assert reasons == {
        "error": "RuntimeError: not today",
        "exit": "SystemExit: enough",
        "shape": "ValueError: predict returned shape (18, 1) for 18 samples",
    }
    alone = run(tmp_path / "alone.jsonl", what)
    assert [r.reason for r in alone.failed] == [r.reason for r in summary.failed]
    done = [
        outcome(r for r in found.results if r.status == "done")
        for found in (alone, summary)
    ]
    assert done[0] == done[1]
    # Another parameter is another unit.
    changed = own("error=own:Fails(how='exit')")
    again = experiment(sizes=(2,), methods=("LDA",), repeats=2, own=(changed,))
    assert run(tmp_path / "r.jsonl", again).new == 2
    assert run(tmp_path / "r.jsonl", again).new == 0


def test_fewer_folds_where_there_are_fewer_samples():
    people = make_people(n_people=3, n_images=3)
    result = run_units(people, sizes=(2,), methods=("DualQML",))["DualQML"]
    assert result.parameters["folds"] == 6


def test_spectrum_of_the_quadratic_methods(everything):
    for name, result in everything.items():
        if not name.startswith("DualQML"):
            assert result.spectrum == {}
            continue
        assert len(result.spectrum["ranks"]) == 6
        assert max(result.spectrum["ranks"]) <= 3
        eigenvalues = result.spectrum["eigenvalues"]
        assert len(eigenvalues) == max(result.spectrum["ranks"])
        assert eigenvalues[0] == 1.0
        assert eigenvalues == sorted(eigenvalues, reverse=True)


def test_spectrum_against_the_full_matrices():
    people = make_people()
    model = make_method("DualQML", image_shape=(8, 8)).fit(people.rows, people.labels)
    qml, found = model[-1], spectrum(model)
    ends, means = np.cumsum(qml.ranks_), []
    for end, rank in zip(ends, qml.ranks_, strict=True):
        factor = qml.components_[end - rank : end]
        values = np.linalg.eigvalsh(factor.T @ factor)[::-1][: max(qml.ranks_)]
        means.append(np.where(np.arange(values.size) < rank, values / values[0], 0.0))
    np.testing.assert_allclose(found["eigenvalues"], np.mean(means, axis=0), atol=1e-6)
    assert chosen_parameters(model)["best_lam"] == model[-1].best_lam_


def test_unequal_classes_are_counted():
    people = make_people(n_images=4)
    few = people.subset(np.arange(4 * 6) != 0)
    result = run_units(few, sizes=(3,), methods=("LDA",))["LDA"]
    assert (result.n_train, result.n_test, result.n_short) == (17, 6, 1)


def test_a_failure_has_a_reason():
    # With one image of each person there is nothing to cross-validate on.
    results = run_units(make_people(), sizes=(1,), methods=("LDA", "DualQML"))
    assert results["LDA"].status == "done"
    assert results["DualQML"].status == "failed"
    assert "every class has one" in results["DualQML"].reason
    assert np.isnan(results["DualQML"].error)


def test_an_image_without_contrast_is_no_failure():
    people = make_people()
    images = people.images.copy()
    images[0] = 7
    results = run_units(replace(people, images=images), sizes=(4,))
    for result in results.values():
        assert result.status == "done", result.reason


def test_a_split_that_is_not_the_planned_one_fails():
    experiment = Experiment({"p": make_people()}, sizes=(2,), methods=("LDA",))
    unit = replace(experiment.units[0], split="0" * 16)
    result = UnitRunner(experiment.databases, experiment.protocol).run(unit)
    assert result.status == "failed"
    assert "differently than planned" in result.reason


def test_two_people():
    results = run_units(make_people(n_people=2), sizes=(2,))
    for result in results.values():
        assert result.status == "done", result.reason
        assert len(result.identified) == 2
        assert result.error == pytest.approx(100 * (1 - result.identified[0] / 6))


RUN_METHODS = ("LDA", "MLE", "DualQML")


def experiment(**settings):
    return Experiment(
        {"people": make_people(noise=0.8)},
        **{"sizes": (2, 3), "methods": RUN_METHODS, "repeats": 3} | settings,
    )


def outcome(results):
    """What must not depend on when and where a unit ran."""
    return {
        r.unit: (r.status, r.error, r.identified, str(r.parameters), str(r.spectrum))
        for r in results
    }


def run(path, what, **settings):
    with ResultStore(path) as store:
        return run_experiment(what, store, **settings)


def test_all_units_and_what_it_says_on_the_way(tmp_path):
    seen = []
    summary = run(tmp_path / "r.jsonl", experiment(), progress=seen.append)
    assert (summary.new, summary.failed, summary.interrupted) == (18, [], False)
    assert [p.done for p in seen] == list(range(19))
    assert all(p.total == 18 for p in seen)
    assert seen[0].remaining is None
    assert all(p.remaining >= 0 for p in seen[1:])
    assert seen[-1].remaining == 0
    assert outcome(summary.results) == outcome(read_results(tmp_path / "r.jsonl"))


def test_a_second_run_repeats_nothing(tmp_path):
    path = tmp_path / "r.jsonl"
    run(path, experiment(repeats=1))
    before = path.read_bytes()
    summary = run(path, experiment(repeats=1))
    assert (summary.new, len(summary.results)) == (0, 6)
    assert path.read_bytes() == before
    summary = run(path, experiment(repeats=2, methods=("LDA", "ERE")))
    assert summary.new == 6
    # Results of another seed or of other data are not taken for these.
    assert run(path, experiment(repeats=1, seed=1)).new == 6
    other = Experiment({"people": make_people(seed=1)}, sizes=(2,), repeats=1)
    assert run(path, other).new == 13


def test_results_of_another_number_of_seeds_run_again(tmp_path):
    path = tmp_path / "r.jsonl"
    what = experiment(repeats=1, sizes=(2,))
    first = run(path, what)
    old = [replace(result, n_seeds=1) for result in first.results]
    with ResultStore(tmp_path / "old.jsonl") as store:
        for result in old:
            store.append(result)
    again = run(tmp_path / "old.jsonl", what)
    assert again.new == 1
    assert [r.n_seeds for r in again.results] == [1, 5, 1]
    assert outcome(again.results) == outcome(first.results)


def test_any_number_of_processes_gives_the_same(tmp_path):
    alone = run(tmp_path / "1.jsonl", experiment(repeats=1))
    together = run(tmp_path / "3.jsonl", experiment(repeats=1), n_jobs=3)
    assert outcome(alone.results) == outcome(together.results)
    assert len(alone.results) == 6
    # One process after another was stopped in between.
    part = run(tmp_path / "p.jsonl", experiment(repeats=1, sizes=(2,)), n_jobs=2)
    assert part.new == 3
    rest = run(tmp_path / "p.jsonl", experiment(repeats=1))
    assert outcome(rest.results) == outcome(alone.results)


def test_failures_are_kept_and_the_rest_goes_on(tmp_path):
    path = tmp_path / "r.jsonl"
    what = experiment(sizes=(1,), repeats=1)
    summary = run(path, what)
    assert [result.unit.method for result in summary.failed] == ["DualQML"]
    done = [r.unit.method for r in summary.results if r.status == "done"]
    assert done == ["LDA", "MLE"]
    assert run(path, what).new == 0
    again = run(path, what, retry_failed=True)
    assert (again.new, len(again.failed)) == (1, 1)


def test_ctrl_c_ends_cleanly(tmp_path):
    def interrupt(progress):
        if progress.done == 4:
            raise KeyboardInterrupt

    for n_jobs in (1, 2):
        path = tmp_path / f"{n_jobs}.jsonl"
        summary = run(path, experiment(), n_jobs=n_jobs, progress=interrupt)
        assert summary.interrupted
        assert len(summary.results) == 4
        assert outcome(read_results(path)) == outcome(summary.results)


def test_a_full_disk_ends_the_run(tmp_path, monkeypatch):
    def full(self, result):
        raise StoreError("No space left on device")

    with ResultStore(tmp_path / "r.jsonl") as store:
        monkeypatch.setattr(ResultStore, "append", full)
        with pytest.raises(StoreError, match="No space left"):
            run_experiment(experiment(), store, n_jobs=2)


def _die(unit):
    os._exit(9)


def test_a_worker_that_dies_is_an_error_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_run_in_worker", _die)
    with pytest.raises(RunError, match="worker process died"):
        run(tmp_path / "r.jsonl", experiment(), n_jobs=2)


def environment():
    """The tests must be found from any folder."""
    paths = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the program forks")
@pytest.mark.timeout(1200)  # It may hang, but it may be slow.
def test_killed_anywhere_nothing_is_lost_and_nothing_runs_twice(tmp_path):
    path = tmp_path / "r.jsonl"
    program = Path(__file__).with_name("kill_runs.py")
    ended = subprocess.run(
        [sys.executable, str(program), str(path)],
        # One thread: a process that forks must have no others.
        env=environment() | {"OPENBLAS_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    units = [result.unit for result in read_results(path)]
    assert len(units) == len(set(units))
    calm = run(tmp_path / "calm.jsonl", experiment(repeats=6))
    assert outcome(read_results(path)) == outcome(calm.results)


_RUN = """
import multiprocessing
import sys
from tests.experiments.test_runner import experiment, run

def say(progress):
    if progress.last:
        print(*[child.pid for child in multiprocessing.active_children()], flush=True)

if __name__ == "__main__":
    run(sys.argv[1], experiment(repeats=1000), n_jobs=2, progress=say)
"""


@pytest.mark.timeout(1200)
def test_workers_end_when_the_parent_is_killed(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(_RUN)
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "r.jsonl")],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        workers = process.stdout.readline().split()
        process.kill()
        assert len(workers) == 2
        try:
            # The workers have the same output: it ends when the last of them does.
            process.stdout.read()
        except BaseException:
            for worker in workers:
                os.kill(int(worker), signal.SIGKILL)
            raise


def test_the_estimate_uses_what_units_of_a_kind_took(tmp_path, monkeypatch):
    units = experiment(methods=("LDA", "MLE"), sizes=(2,), repeats=10).units
    estimate = runner._TimeEstimate(units)
    estimate._start -= 30.0
    made = {"LDA": 1.0, "MLE": 9.0}
    for unit in units[:6]:
        # Of five seeds each took a fifth.
        n_seeds = {"LDA": 1, "MLE": 5}[unit.method]
        result = runner.Result(
            unit,
            "done",
            error=0.0,
            n_seeds=n_seeds,
            fit_seconds=made[unit.method] / n_seeds,
            test_seconds=0.0,
        )
        estimate.add(result)
    # 30 s for 3 x 10 s of work; 7 x 10 s are left.
    assert estimate.remaining() == pytest.approx(70.0, rel=0.01)
