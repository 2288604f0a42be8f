from dataclasses import replace

import numpy as np
import pytest
from sklearn.preprocessing import normalize

from dualqml.experiments import worker
from dualqml.experiments.protocol import Experiment, Protocol
from dualqml.experiments.worker import Laboratory, chosen_parameters, spectrum, versions
from dualqml.extractors.methods import METHODS, make_method
from tests.people import make_people


def run(database, **settings):
    experiment = Experiment({"p": database}, **{"repeats": 1} | settings)
    laboratory = Laboratory(experiment.databases, experiment.protocol)
    return {unit.method: laboratory.run(unit) for unit in experiment.units}


@pytest.fixture(scope="module")
def everything():
    return run(make_people(noise=0.8), sizes=(3,))


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
    result = run(people, sizes=(3,), methods=("MLE",))["MLE"]
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
    monkeypatch.setattr(worker.time, "process_time", lambda: float(next(seconds)))
    results = run(make_people(), sizes=(3,), methods=("LDA", "MLE"))
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
    tuned = run(make_people(noise=0.8), sizes=(3,), methods=("LDA",), tune=True)
    assert set(tuned["LDA"].parameters) == {"shrinkage", "tangents"}


def test_fewer_folds_where_there_are_fewer_samples():
    people = make_people(n_people=3, n_images=3)
    result = run(people, sizes=(2,), methods=("DualQML",))["DualQML"]
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
    result = run(few, sizes=(3,), methods=("LDA",))["LDA"]
    assert (result.n_train, result.n_test, result.n_short) == (17, 6, 1)


def test_a_failure_has_a_reason():
    # With one image of each person there is nothing to cross-validate on.
    results = run(make_people(), sizes=(1,), methods=("LDA", "DualQML"))
    assert results["LDA"].status == "done"
    assert results["DualQML"].status == "failed"
    assert "every class has one" in results["DualQML"].reason
    assert np.isnan(results["DualQML"].error)


def test_an_image_without_contrast_is_no_failure():
    people = make_people()
    images = people.images.copy()
    images[0] = 7
    results = run(replace(people, images=images), sizes=(4,))
    for result in results.values():
        assert result.status == "done", result.reason


def test_a_split_that_is_not_the_planned_one_fails():
    experiment = Experiment({"p": make_people()}, sizes=(2,), methods=("LDA",))
    unit = replace(experiment.units[0], split="0" * 16)
    result = Laboratory(experiment.databases, experiment.protocol).run(unit)
    assert result.status == "failed"
    assert "differently than planned" in result.reason


def test_two_people():
    results = run(make_people(n_people=2), sizes=(2,))
    for result in results.values():
        assert result.status == "done", result.reason
        assert len(result.identified) == 2
        assert result.error == pytest.approx(100 * (1 - result.identified[0] / 6))
