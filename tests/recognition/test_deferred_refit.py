"""Refits that are deferred: what goes at once, what stays, and the refit itself."""

import copy
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest

from dualqml._linalg import unit_rows
from dualqml.core import solve_certified
from dualqml.exceptions import DualQMLError, ModelFileError, RecognitionError
from dualqml.extractors import Background
from dualqml.persistence.tensors import read_tensors
from dualqml.recognition import Recognizer, RefitDue, deferred_refit
from dualqml.recognition.decision_model import load_decision_model
from tests.datasets import load_samples
from tests.persistence.sealed import Forged

N_FEATURES = 24


def samples(number, count=3):
    """The samples of a person, always the same ones first."""
    rng = np.random.default_rng(number)
    mean = rng.normal(size=N_FEATURES)
    rows = mean + 0.6 * rng.normal(size=(20, N_FEATURES)) + 0.3
    return rows[:count].astype(np.float32)


def recognizer_of(numbers, counts=None, **options):
    found = Recognizer(**{"threshold": 0.0, "refit": "deferred"} | options)
    for place, number in enumerate(numbers):
        found.enroll(f"p{number:03d}", samples(number, counts[place] if counts else 3))
    return found.fit()


def fresh(recognizer, **options):
    """A recogniser with the same samples that has seen nobody else."""
    found = Recognizer(**{"threshold": 0.0, "refit": recognizer.refit} | options)
    for subject in reversed(recognizer.subjects()):
        found.enroll(subject, recognizer.samples(subject))
    return found


PROBES = np.concatenate([samples(number, 20)[-1:] for number in range(60)])


def scores_by_name(recognizer):
    return dict(zip(recognizer.subjects(), recognizer.scores(PROBES).T, strict=True))


def file_of(recognizer, folder, name="a.dualqml"):
    recognizer.save(folder / name)
    return (folder / name).read_bytes()


def test_scores_are_near_those_of_an_exact_fit():
    found = recognizer_of(range(50))
    found.remove("p007")
    found.enroll("p050", samples(50))
    found.enroll("p051", samples(51))
    found.remove_sample("p004", 1)
    found.enroll("p005", samples(5, 6)[3:])
    assert found.refit_due == RefitDue(3, 1, 9, 4)
    exact = fresh(found, refit="exact")
    assert exact.refit_due is None
    ours, theirs = found.scores(PROBES), exact.scores(PROBES)
    # Scores here reach from -10 to 20.
    assert np.abs(ours - theirs).max() < 1.5
    assert (ours.argmax(axis=1) == theirs.argmax(axis=1)).all()
    assert not np.array_equal(ours, theirs)


def test_all_others_stay_as_they_are_after_an_erasure():
    found = recognizer_of(range(30))
    before, matrices = scores_by_name(found), found._matcher.model.qml_
    found.remove("p011")
    after = scores_by_name(found)
    assert after.keys() == before.keys() - {"p011"}
    for subject, scores in after.items():
        np.testing.assert_allclose(scores, before[subject], atol=1e-12)
    # To the last bit; products of matrices can depend on their number of columns.
    left = found._matcher.model.qml_
    gone = int(matrices.ranks_[:11].sum()) + np.arange(matrices.ranks_[11])
    np.testing.assert_array_equal(
        left.components_, np.delete(matrices.components_, gone, axis=0)
    )


def test_new_people_are_solved_exactly_in_the_frozen_coordinates():
    found = recognizer_of(range(30))
    linear = copy.deepcopy(found._matcher.model.metric_)
    found.remove("p003")
    found.enroll("p040", samples(40, 5))
    found.enroll("p002", samples(2, 4)[3:])
    found.scores(PROBES)
    found.remove("p040")
    found.enroll("p005", samples(5, 6)[3:])
    found.enroll("p041", samples(41, 2))
    model = found._fitted_matcher().model
    np.testing.assert_array_equal(model.metric_.coefficients_, linear.coefficients_)
    rows = np.concatenate([found.samples(subject) for subject in found.subjects()])
    inputs = unit_rows(rows.astype(np.float64))
    Z = unit_rows((inputs - linear.mean_) @ linear.coefficients_)
    counts = [len(found.samples(subject)) for subject in found.subjects()]
    ends = np.cumsum(counts)
    members = [np.arange(end - n, end) for end, n in zip(ends, counts, strict=True)]
    expected = solve_certified(Z, members, model.qml_.lam)
    place = found.subjects().index("p041")

    def matrix(components, ranks):
        start = int(ranks[:place].sum())
        own = components[start : start + ranks[place]]
        return own.T @ own

    np.testing.assert_allclose(
        matrix(model.qml_.components_, model.qml_.ranks_),
        matrix(expected.components, expected.ranks),
        atol=1e-8,
    )
    assert model.qml_.status_[place] == "optimal"
    own = model.qml_.dual_coef_[members[place]]
    np.testing.assert_allclose(own, expected.multipliers[members[place]], atol=1e-6)
    # The sums were changed six times, and are those of the present samples.
    np.testing.assert_allclose(found._deferred.sums.scatter, Z.T @ Z, atol=1e-11)
    assert found._deferred.sums.n_used == len(Z)


def test_sums_of_which_most_was_erased_are_computed_again():
    found = recognizer_of(range(30))
    found.enroll("p030", samples(30))
    found.scores(PROBES)
    for number in range(20):
        found.remove(f"p{number:03d}")
        known = found._deferred.sums
        assert (known is None) == (number >= 15), number
    found.enroll("p031", samples(31))
    found.scores(PROBES)
    assert found._deferred.sums.n_used == found.n_samples == 36


def traces(recognizer, subject):
    """Bytes of the samples, the mean and the factors of a person."""
    matcher = recognizer._fitted_matcher()
    place = matcher.subjects.index(subject)
    qml = matcher.model.qml_
    start = int(qml.ranks_[:place].sum())
    rows = recognizer.samples(subject)
    first = sum(len(recognizer.samples(name)) for name in matcher.subjects[:place])
    kept = [
        *rows,
        matcher.means[place],
        qml.components_[start],
        qml.dual_coef_[first : first + len(rows)],
        qml.energies_[place : place + 1],
    ]
    # These are there while a model is fitted.
    inputs = rows.astype(np.float64)
    derived = [*inputs, *unit_rows(inputs)]
    return (
        [subject.encode(), *(part[:4].tobytes() for part in kept)],
        [part[:4].tobytes() for part in derived],
    )


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("new", [False, True])
def test_nothing_of_an_erased_person_is_in_the_file_or_the_objects(
    tmp_path, loaded, new
):
    found = recognizer_of(range(20), counts=[3, 4] * 10)
    subject = "p006"
    if new:
        found.enroll("p077 name", samples(77))
        subject = "p077 name"
    if loaded:
        found.save(tmp_path / "before.dualqml")
        found = Recognizer.load(tmp_path / "before.dualqml")
    kept, derived = traces(found, subject)
    before, held = file_of(found, tmp_path), pickle.dumps(found)
    for trace in kept:
        assert trace in before
        assert trace in held
    found.remove(subject)
    assert found.refit_due.n_erased == 1
    for now in (pickle.dumps(found), file_of(found, tmp_path), pickle.dumps(found)):
        for trace in kept + derived:
            assert trace not in now
    # No array is a view of one that has more people, or of the old file.
    found.scores(PROBES)
    model = found._matcher.model
    for array in (*vars(model.qml_).values(), *vars(model.metric_).values()):
        if isinstance(array, np.ndarray):
            assert array.base is None or array.base.nbytes == array.nbytes


def test_a_refit_equals_a_fit_that_has_seen_nobody_else(tmp_path):
    rng = np.random.default_rng(1)
    found = recognizer_of(range(25))
    for _ in range(4):
        for number in rng.permutation(40)[:6]:
            subject = f"p{number:03d}"
            if subject not in found.subjects():
                found.enroll(subject, samples(number, 4))
            elif number % 3 == 0:
                found.remove(subject)
            elif number % 3 == 1:
                found.remove_sample(subject, 0)
            else:
                found.enroll(subject, samples(number, 6)[-2:])
            if rng.random() < 0.5:
                found.scores(PROBES)
        assert found.refit_due is not None
        found.fit()
        assert found.refit_due is None
        assert found._deferred is None
        found.set_threshold(0.0)
        expected = file_of(fresh(found), tmp_path, "fresh.dualqml")
        assert file_of(found, tmp_path) == expected


def test_changes_go_on_in_another_process(tmp_path):
    found = recognizer_of(range(20))
    found.remove("p003")
    found.enroll("p030", samples(30))
    content = file_of(found, tmp_path)
    loaded = Recognizer.load(tmp_path / "a.dualqml")
    assert loaded.refit == "deferred"
    assert loaded.refit_due == found.refit_due == RefitDue(1, 1, 3, 3)
    assert loaded.model_id == found.model_id
    assert file_of(loaded, tmp_path, "b.dualqml") == content
    for one in (found, loaded):
        one.enroll("p031", samples(31))
        one.remove("p004")
    assert loaded.refit_due == found.refit_due == RefitDue(2, 2, 6, 6)
    np.testing.assert_allclose(loaded.scores(PROBES), found.scores(PROBES), atol=1e-9)
    assert found.identify(PROBES[31]).subject == "p031"
    for one in (found, loaded):
        one.remove_sample("p005", 1)
        one.enroll("p006", samples(6, 5)[3:], names=["a", "b"])
    # What is kept of the samples of people follows all changes.
    loaded.save(tmp_path / "a.dualqml")
    assert Recognizer.load(tmp_path / "a.dualqml").model_id == loaded.model_id
    quick = load_decision_model(tmp_path / "a.dualqml")
    np.testing.assert_allclose(quick.scores(PROBES), loaded.scores(PROBES), atol=1e-9)
    assert quick.model_id == loaded.model_id
    for one in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert one.refit_due == found.refit_due
        np.testing.assert_array_equal(one.scores(PROBES), found.scores(PROBES))


def test_the_number_of_the_model_changes_with_every_change():
    found = recognizer_of(range(12))
    seen = [found.model_id]
    changes = [
        lambda: found.enroll("p020", samples(20)),
        lambda: found.remove("p001"),
        lambda: found.remove("p020"),
        lambda: found.enroll("p001", samples(1)),
        found.fit,
    ]
    for change in changes:
        change()
        template = found.template(PROBES[0])
        assert template.model_id == found.model_id == found._matcher.model_id
        seen.append(found.model_id)
    # The same samples as at first, and another model until the refit.
    assert seen[5] == seen[0]
    assert len(set(seen)) == 5
    # Erasures of different people leave different models, even of the same people.
    one, other = recognizer_of(range(12)), recognizer_of([*range(11), 30])
    one.remove("p011")
    other.remove("p030")
    assert one.subjects() == other.subjects()
    assert one.model_id != other.model_id


def test_people_of_the_deferred_period_leave_no_trace_in_the_others():
    found = recognizer_of(range(12))
    before = scores_by_name(found)
    found.enroll("p020", samples(20))
    found.scores(PROBES)
    found.remove("p020")
    after = scores_by_name(found)
    for subject, scores in before.items():
        np.testing.assert_array_equal(after[subject], scores)
    # One that was never asked for has not been solved.
    found.enroll("p021", samples(21))
    found.remove("p021")
    assert found._deferred.pending == frozenset()
    assert found.refit_due == RefitDue(2, 2, 6, 6)


def test_erasing_everybody_leaves_nothing_due():
    found = recognizer_of(range(5))
    for number in range(5):
        assert (found.refit_due is None) == (number in {0})
        found.remove(f"p{number:03d}")
        if number == 3:
            # One person is too few for a model.
            assert found.refit_due is None
            with pytest.raises(RecognitionError, match="at least two"):
                found.identify(PROBES[0])
            break
    found.remove("p004")
    assert found.refit_due is None
    for number in range(8):
        found.enroll(f"p{number:03d}", samples(number))
    assert found.refit_due is None
    np.testing.assert_array_equal(
        found.scores(PROBES), recognizer_of(range(8)).scores(PROBES)
    )


def test_all_people_can_change_at_once():
    found = recognizer_of(range(6))
    for number in range(6):
        found.enroll(f"p{number:03d}", samples(number, 5)[3:])
    assert found.identify(PROBES[3]).subject == "p003"
    found = recognizer_of(range(3))
    for number in range(3):
        found.remove_sample(f"p{number:03d}", 0)
        found.enroll(f"p{number + 10:03d}", samples(number + 10))
    for number in range(2):
        found.remove(f"p{number:03d}")
    assert found.identify(PROBES[11]).subject == "p011"
    assert found.refit_due == RefitDue(3, 2, 9, 7)


def background_of(first):
    rows = np.concatenate([samples(number) for number in range(first, first + 40)])
    return Background.from_samples(rows, np.repeat(np.arange(40), 3))


def test_another_background_is_an_exact_fit():
    found = recognizer_of(range(12))
    found.remove("p003")
    found.background = background_of(100)
    assert found.refit_due is None
    # With a background one person is enough.
    for number in (0, 1, 2, 4, 5, 6, 7, 8, 9, 10):
        found.scores(PROBES)
        found.remove(f"p{number:03d}")
    assert found.subjects() == ["p011"]
    assert found.refit_due == RefitDue(0, 10, 0, 30)
    assert found.scores(PROBES).shape == (60, 1)
    found.enroll("p012", samples(12))
    assert found.identify(PROBES[12]).subject == "p012"
    found.remove("p011")
    found.remove("p012")
    assert found.refit_due is None


def test_a_prior_is_computed_again_by_the_refit():
    background = background_of(100)
    found = recognizer_of(range(8), background=background)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.calibrate(fpir=0.05)
    assert found.calibration.prior
    found.remove("p003")
    assert not found.calibration_is_stale
    assert found.calibration.model_id == found.model_id
    found.fit()
    assert found.calibration.model_id == found.model_id
    expected = recognizer_of([0, 1, 2, 4, 5, 6, 7], background=background)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected.calibrate(fpir=0.05)
    assert found.threshold == expected.threshold


@pytest.mark.parametrize("change", ["enroll", "remove"])
def test_calibrations_are_as_after_an_exact_change(change):
    found = {}
    for refit in ("exact", "deferred"):
        one = recognizer_of(range(30), refit=refit)
        one.calibrate(fpir=0.1)
        if change == "enroll":
            one.enroll("p040", samples(40))
        else:
            one.remove("p002")
        found[refit] = (one.calibration.source, one.calibration_is_stale)
        assert (one.refit_due is None) == (refit == "exact")
        # A calibration is of an exact model.
        one.calibrate(fpir=0.1)
        assert one.refit_due is None
        found[refit] += (one.threshold, one.model_id)
    assert found["exact"] == found["deferred"]


def test_an_exact_refit_that_fails_changes_nothing():
    found = recognizer_of(range(12))
    found.remove("p003")
    before, number = found.scores(PROBES), found.model_id

    def fails(matcher, gallery, cache):
        raise MemoryError

    with pytest.raises(MemoryError):
        found.fit(fails)
    assert found.refit_due == RefitDue(0, 1, 0, 3)
    assert found.model_id == number
    np.testing.assert_array_equal(found.scores(PROBES), before)


def test_people_who_cannot_be_solved_lead_to_an_exact_refit(monkeypatch):
    found = recognizer_of(range(12))
    found.enroll("p020", samples(20))

    def not_certified(*args, **options):
        solution = deferred_refit_solve(*args, **options)
        return replace(solution, gap=np.full(solution.gap.size, 0.1))

    deferred_refit_solve = deferred_refit.solve_rows
    monkeypatch.setattr(deferred_refit, "solve_rows", not_certified)
    assert found.model_id == fresh(found, refit="exact").model_id
    np.testing.assert_array_equal(
        found.scores(PROBES), fresh(found, refit="exact").scores(PROBES)
    )
    assert found.refit_due is None


def test_a_refit_is_exact_if_asked_for():
    found = recognizer_of(range(12), refit="exact")
    found.remove("p003")
    assert found.refit_due is None
    found.refit = "deferred"
    # Nothing has been fitted since, so there is nothing to defer.
    found.remove("p004")
    assert found.refit_due is None
    found.fit()
    found.remove("p005")
    assert found.refit_due == RefitDue(0, 1, 0, 3)
    found.refit = "exact"
    assert found.refit_due is None
    np.testing.assert_array_equal(found.scores(PROBES), fresh(found).scores(PROBES))


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("DualQML-W", {"refit": "later"}, "must be 'exact' or 'deferred', not 'later'"),
        ("LDA", {}, "needs vectors"),
        ("DualQML-W", {"rule": "cosine"}, "rule='max'"),
        ("DualQML-W", {"kernel": "auto"}, "linear kernel"),
    ],
)
def test_refits_that_cannot_be_deferred_are_refused(method, options, message):
    with pytest.raises(RecognitionError, match=message):
        Recognizer(method, **{"refit": "deferred"} | options)


def test_images_cannot_defer_refits():
    found = Recognizer(refit="deferred", size=(8, 8))
    images = np.random.default_rng(0).integers(0, 255, (3, 8, 8), dtype=np.uint8)
    with pytest.raises(RecognitionError, match="needs vectors"):
        found.enroll("Ann", images)
    # Nothing has changed: the next samples may be vectors.
    found.enroll("Ann", samples(0))
    assert found.inputs == "vector"
    crops = Recognizer(size=(8, 8))
    crops.enroll("Ann", images)
    with pytest.raises(RecognitionError, match="needs vectors"):
        crops.refit = "deferred"
    assert crops.refit == "exact"


def test_what_is_due_is_said_in_words():
    text = RefitDue(2, 1, 5, 4).describe()
    assert "2 enrolments (5 samples) and 4 samples erased (1 person as a whole)" in text
    assert "depend on the samples that were erased" in text
    text = RefitDue(1, 0, 3, 0).describe()
    assert "1 enrolment (3 samples)" in text
    assert "do not know of these samples" in text


def test_files_without_these_fields_are_of_exact_recognisers(tmp_path):
    recognizer_of(range(6), refit="exact").save(tmp_path / "a.dualqml")
    forged = Forged((tmp_path / "a.dualqml").read_bytes())
    del forged.state["refit"], forged.state["due"]
    (tmp_path / "a.dualqml").write_bytes(forged.seal())
    loaded = Recognizer.load(tmp_path / "a.dualqml")
    assert (loaded.refit, loaded.refit_due) == ("exact", None)


def due(**values):
    return lambda forged: forged.state["due"]["dict"].update(values)


def array(name, change):
    def replace_array(forged):
        forged.arrays[name] = change(forged.arrays[name])

    return replace_array


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (due(n_erased=-1), "due.n_erased is not a whole number"),
        (due(n_erased=1.0), "due.n_erased is not a whole number"),
        (due(name="p003"), "due.name is a field that is not known"),
        (lambda f: f.state["due"]["dict"].pop("n_erased"), "n_erased is missing"),
        (lambda f: f.state.update(due=3), "due is not"),
        (lambda f: f.state.update(refit="exact"), "due is there without"),
        (lambda f: f.state.update(refit="later"), "refit is not one of"),
        (lambda f: f.state.update(matcher=None), "due is there without|not used"),
        (
            array("matcher.model.qml_.dual_coef_", lambda a: a[:-1]),
            "one multiplier for each sample",
        ),
        (array("matcher.model.metric_.coefficients_", lambda a: a[:, :-1]), "."),
        (array("matcher.model.metric_.coefficients_", lambda a: 2 * a), "model id"),
        (array("matcher.model.qml_.energies_", lambda a: 2 * a), "model id"),
        (array("rows", lambda a: 2 * a), "model id"),
    ],
)
def test_forged_refits_are_refused(tmp_path, change, message):
    path = tmp_path / "a.dualqml"
    found = recognizer_of(range(6))
    found.remove("p003")
    found.save(path)
    forged = Forged(path.read_bytes())
    change(forged)
    path.write_bytes(forged.seal())
    with pytest.raises(ModelFileError, match=message):
        Recognizer.load(path)


def test_the_file_names_nobody_who_was_erased(tmp_path):
    found = recognizer_of(range(6))
    found.enroll("somebody else", samples(40))
    found.remove("somebody else")
    found.remove("p003")
    found.save(tmp_path / "a.dualqml")
    _, metadata = read_tensors(tmp_path / "a.dualqml")
    text = metadata["dualqml.state"]
    assert "somebody" not in text
    assert "p003" not in text
    assert '"n_erased": 2' in text


def test_large_galleries_are_changed_in_parts(monkeypatch):
    # The sums over all people are computed part by part too.
    from functools import partial

    from dualqml.extractors.part_sums import count_parts
    from dualqml.recognition import gallery_parts

    usual = recognizer_of(range(40))
    usual.enroll("p040", samples(40))
    expected = usual.scores(PROBES)
    monkeypatch.setattr(
        gallery_parts, "count_parts", partial(count_parts, part_bytes=4_000)
    )
    found = recognizer_of(range(40))
    found.enroll("p040", samples(40))
    np.testing.assert_allclose(found.scores(PROBES), expected, atol=1e-8)


def test_a_change_that_is_refused_changes_nothing():
    found = recognizer_of(range(6))
    number = found.model_id
    for change in (
        lambda: found.enroll("p009", np.ones((2, 5))),
        lambda: found.enroll("", samples(9)),
        lambda: found.remove("nobody"),
        lambda: found.remove_sample("p001", 7),
    ):
        with pytest.raises(DualQMLError):
            change()
        assert found.refit_due is None
        assert found.model_id == number


@pytest.mark.realdata("lfw_embeddings")
def test_deferred_scores_of_real_people_are_near_exact_ones():
    X, y = load_samples("lfw_embeddings")
    people = [np.flatnonzero(y == c) for c in np.unique(y)]
    people = [own for own in people if len(own) >= 4]
    n = len(people) - 10
    found = Recognizer(threshold=0.0, refit="deferred")
    for number, own in enumerate(people[:n]):
        found.enroll(f"{number:04d}", X[own[:3]])
    found.fit()
    for number in range(10):
        found.remove(f"{number:04d}")
        found.enroll(f"{number + n:04d}", X[people[number + n][:3]])
    probes = X[[own[3] for own in people[10:]]]
    ours = found.scores(probes)
    assert found.refit_due == RefitDue(10, 10, 30, 30)
    exact = found.fit().scores(probes)
    # A tenth of the people is new or gone. Scores reach from -12 to 21.
    assert np.abs(ours - exact).max() < 2.0
    assert np.sqrt(np.mean((ours - exact) ** 2)) < 0.3
    assert (ours.argmax(axis=1) == exact.argmax(axis=1)).mean() > 0.99
