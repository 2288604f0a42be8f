import copy
import dataclasses
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.exceptions import ModelFileError, NoThresholdError, RecognitionError
from dualqml.extractors.probabilities import candidate_posterior, open_set_posterior
from dualqml.persistence.tensors import read_tensors, write_tensors
from dualqml.recognition import Recognizer, folded_search
from dualqml.recognition.decision_model import load_decision_model
from dualqml.recognition.folded_search import (
    LEAST_SUBJECTS,
    FoldedGallery,
    FoldedSearch,
    best_classes,
    leading,
    linear_parts,
    score_constant,
)
from dualqml.recognition.matcher import Matcher
from tests.people import make_people, make_vectors
from tests.recognition.scorers import made_up_scorer, sorted_scores


def probes(n_probes, size=6, seed=1):
    return np.random.default_rng(seed).normal(size=(n_probes, size))


def assert_same_answers(scorer, rows, top):
    """The answers are those of a full sort, bit by bit."""
    gallery = FoldedGallery(scorer)
    found = gallery.search(rows, top)
    classes, scores, sums = sorted_scores(scorer, rows, top)
    np.testing.assert_array_equal(found.classes, classes)
    np.testing.assert_array_equal(found.scores, scores)
    np.testing.assert_allclose(found.log_sums, sums, rtol=1e-4, atol=1e-4)
    return gallery


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of so few classes that small galleries have many."""
    monkeypatch.setattr(folded_search, "_FIRST", 16)
    monkeypatch.setattr(folded_search, "_PRODUCTS", 64)
    monkeypatch.setattr(folded_search, "_PROBES", 3)


@pytest.mark.usefixtures("small_blocks")
class TestFullSort:
    @given(
        seed=st.integers(0, 10_000),
        n_classes=st.integers(1, 200),
        ranks=st.lists(st.integers(0, 3), min_size=1, max_size=4),
        weight=st.sampled_from([0.0, 0.7, -0.3]),
        scaled=st.booleans(),
        whole_numbers=st.booleans(),
        copies=st.integers(0, 100),
        top=st.integers(1, 250),
    )
    def test_answers_are_those_of_a_full_sort(
        self, seed, n_classes, ranks, weight, scaled, whole_numbers, copies, top
    ):
        scorer = made_up_scorer(
            n_classes,
            ranks=ranks,
            cosine_weight=weight,
            scaled=scaled,
            whole_numbers=whole_numbers,
            copies=copies,
            seed=seed,
        )
        assert_same_answers(scorer, probes(5, seed=seed), top)

    @given(
        seed=st.integers(0, 10_000),
        power=st.integers(-300, 150),
        place=st.sampled_from(["components", "mean_responses", "class_scale"]),
        share=st.sampled_from([0.02, 0.5, 1.0]),
    )
    def test_extreme_numbers_in_some_classes(self, seed, power, place, share):
        scorer = made_up_scorer(60, scaled=True, seed=seed)
        chosen = np.random.default_rng(seed).random(60) <= share
        getattr(scorer, place)[chosen] *= 10.0**power
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                sorted_scores(scorer, probes(2), 3)
            except RecognitionError:
                with pytest.raises(RecognitionError, match="not finite"):
                    FoldedGallery(scorer).search(probes(2), 3)
                return
            assert_same_answers(scorer, probes(2), 3)

    @given(
        seed=st.integers(0, 10_000),
        fields=st.lists(
            st.sampled_from(
                [f.name for f in dataclasses.fields(made_up_scorer().scale)]
            ),
            min_size=1,
            max_size=3,
        ),
        power=st.integers(-120, 120),
    )
    def test_extreme_numbers_in_the_scale(self, seed, fields, power):
        scorer = made_up_scorer(60, seed=seed, copies=20)
        for name in fields:
            value = getattr(scorer.scale, name)
            setattr(scorer.scale, name, value * 10.0**power)
        classes, scores, _ = sorted_scores(scorer, probes(3), 4)
        found = FoldedGallery(scorer).search(probes(3), 4)
        np.testing.assert_array_equal(found.classes, classes)
        np.testing.assert_array_equal(found.scores, scores)

    def test_all_classes_are_equal(self):
        scorer = made_up_scorer(100)
        scorer.components[:] = scorer.components[0]
        scorer.mean_responses[:] = 1.0
        scorer.means[:] = scorer.means[0]
        found = assert_same_answers(scorer, probes(3), 7).search(probes(3), 7)
        np.testing.assert_array_equal(found.classes, np.tile(np.arange(7), (3, 1)))

    def test_scores_that_differ_by_less_than_single_precision(self):
        scorer = made_up_scorer(100, cosine_weight=0.0)
        scorer.components[:] = scorer.components[0]
        order = np.random.default_rng(0).permutation(100)
        scorer.components *= 1.0 + 1e-12 * order[:, None]
        scorer.mean_responses[:] = 1.0
        rows = probes(4)
        assert_same_answers(scorer, rows, 5)
        best = FoldedGallery(scorer).search(rows, 1).classes[:, 0]
        assert set(best) <= {order.argmax(), order.argmin()}

    def test_negative_mean_responses_turn_the_sign(self):
        scorer = made_up_scorer(50, cosine_weight=0.0)
        scorer.mean_responses[:] = 1.0
        before = FoldedGallery(scorer).search(probes(1), 50)
        scorer.mean_responses[:] = -1.0
        after = FoldedGallery(scorer).search(probes(1), 50)
        np.testing.assert_array_equal(after.classes[0, ::-1], before.classes[0])

    def test_no_class_is_linear(self):
        gallery = assert_same_answers(made_up_scorer(40, ranks=(0, 2, 3)), probes(2), 3)
        assert gallery.folded.linear.size == 0

    def test_probes_without_a_direction(self):
        # In such coordinates they are all zeros.
        scorer = made_up_scorer(40, cosine_weight=0.0)
        scorer.coefficients[:] = 0.0
        assert_same_answers(scorer, probes(2), 3)

    def test_no_probe(self):
        found = FoldedGallery(made_up_scorer(40)).search(np.empty((0, 6)), 3)
        assert found.classes.shape == found.scores.shape == (0, 3)
        assert found.log_sums.shape == (0,)


def test_a_large_gallery_with_the_usual_blocks():
    scorer = made_up_scorer(
        30_000, size=24, n_coordinates=20, ranks=(1,) * 30 + (2, 0), copies=500
    )
    rows = probes(40, size=24)
    gallery = assert_same_answers(scorer, rows, 5)
    assert 0 < gallery.folded.others.size < 3000
    for row in rows[:5]:
        assert_same_answers(scorer, row[None], 1)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(1, 400),
    weight=st.sampled_from([0.0, 0.7, 1e4]),
    power=st.integers(-8, 8),
)
def test_the_bound_is_a_bound(seed, size, weight, power):
    scorer = made_up_scorer(
        50,
        size=size,
        n_coordinates=max(size // 2, 1),
        cosine_weight=weight,
        scaled=True,
        seed=seed,
    )
    scorer.components *= 10.0**power
    gallery = FoldedGallery(scorer)
    z, units = scorer.queries(probes(4, size=size, seed=seed))
    queries = np.concatenate([z, units], axis=1) if weight else z
    bounds = gallery._bounds(np.linalg.norm(queries, axis=1))
    products = queries.astype(np.float32) @ gallery.folded.vectors.T
    products = products.astype(np.float64)
    for number, own in enumerate(zip(z, units, strict=True)):
        exact = scorer.scores_of(*own, gallery.folded.linear)
        errors = np.abs(products[number] + score_constant(scorer.scale) - exact)
        assert errors.max(initial=0.0) <= bounds[number]
        # It must not be so large that everybody is a candidate.
        assert bounds[number] < 1e-3 * np.abs(gallery.folded.norm) + 1e-9


def test_few_scores_are_computed_in_double_precision(monkeypatch):
    counts = []

    def counting(scorer, z, unit, classes):
        counts.append(classes.size)
        return scorer.scores_of(z, unit, classes)

    monkeypatch.setattr(folded_search, "scores_in_parts", counting)
    scorer = made_up_scorer(20_000, size=64, n_coordinates=64)
    FoldedGallery(scorer).search(probes(20, size=64), 5)
    assert max(counts) < 20


def test_vectors_give_the_score():
    scorer = made_up_scorer(30, ranks=(1, 2), scaled=True)
    z, units = (part[0] for part in scorer.queries(probes(1)))
    (block,) = scorer.class_blocks()
    linear, responses, cosines = linear_parts(block, scorer.scale)
    np.testing.assert_array_equal(linear, scorer.ranks == 1)
    scores = responses @ z + cosines @ units + score_constant(scorer.scale)
    expected = scorer.scores_of(z, units, np.flatnonzero(linear))
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


@given(
    scores=st.lists(st.integers(-3, 3), min_size=1, max_size=40),
    top=st.integers(1, 50),
)
def test_leading_is_a_stable_sort(scores, top):
    array = np.array(scores, dtype=np.float64)
    expected = np.argsort(-array, kind="stable")[:top]
    np.testing.assert_array_equal(leading(array, top), expected)


def test_best_classes_of_scores():
    scores = np.random.default_rng(0).integers(0, 5, size=(6, 30)).astype(float)
    found = best_classes(scores, 4)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(found.classes, expected)
    np.testing.assert_array_equal(
        found.scores, np.take_along_axis(scores, expected, axis=1)
    )
    np.testing.assert_allclose(found.log_sums, np.logaddexp.reduce(scores, axis=1))


def test_posteriors_are_those_of_all_scores():
    scorer = made_up_scorer(4000, ranks=(1,) * 20 + (2,))
    rows = probes(10)
    found = FoldedGallery(scorer).search(rows, 6)
    z, units = scorer.queries(rows)
    everyone = np.arange(4000)
    scores = np.array(
        [scorer.scores_of(*own, everyone) for own in zip(z, units, strict=True)]
    )
    people, unknown = open_set_posterior(scores)
    some, stranger = candidate_posterior(found.scores, found.log_sums, 4000)
    expected = np.take_along_axis(people, found.classes, axis=1)
    np.testing.assert_allclose(some, expected, rtol=1e-5)
    np.testing.assert_allclose(stranger, unknown, rtol=1e-5)


def test_batches_and_single_probes_have_the_same_answers():
    scorer = made_up_scorer(5000, copies=300)
    gallery, rows = FoldedGallery(scorer), probes(600)
    batch = gallery.search(rows, 4)
    for number in range(0, 600, 50):
        single = gallery.search(rows[number : number + 1], 4)
        np.testing.assert_array_equal(single.classes[0], batch.classes[number])
        np.testing.assert_allclose(single.scores[0], batch.scores[number], rtol=1e-12)


def test_a_score_that_is_not_finite_is_an_error():
    scorer = made_up_scorer(30)
    scorer.components[4] = np.nan
    with pytest.raises(RecognitionError, match="not finite"):
        FoldedGallery(scorer).search(probes(1), 1)
    scorer = made_up_scorer(30)
    scorer.mean[0] = np.nan
    with pytest.raises(RecognitionError, match="not finite"):
        FoldedGallery(scorer).search(probes(1), 1)


class Model(FoldedSearch):
    """A model whose galleries are counted."""

    def __init__(self, scorer, n_subjects):
        self.scorer, self.subjects, self.calls = scorer, ["x"] * n_subjects, 0

    def exact_scorer(self):
        self.calls += 1
        return self.scorer


@pytest.mark.parametrize(
    ("scorer", "n_subjects", "expected"),
    [
        (made_up_scorer(LEAST_SUBJECTS), LEAST_SUBJECTS, True),
        (made_up_scorer(LEAST_SUBJECTS), LEAST_SUBJECTS - 1, False),
        (None, LEAST_SUBJECTS, False),
        (made_up_scorer(5000, ranks=(1,) * 15 + (2,)), LEAST_SUBJECTS, True),
        (made_up_scorer(5000, ranks=(1,) * 5 + (2,)), LEAST_SUBJECTS, False),
    ],
)
def test_when_a_gallery_is_folded(scorer, n_subjects, expected):
    model = Model(scorer, n_subjects)
    found = model.folded_gallery()
    assert (found is not None) == expected
    assert model.folded_gallery() is found


def test_threads_share_one_gallery():
    model, rows = Model(made_up_scorer(6000), 6000), probes(8)
    start = threading.Barrier(6)

    def search():
        start.wait()
        gallery = model.folded_gallery()
        return gallery, gallery.search(rows, 3)

    with ThreadPoolExecutor(6) as pool:
        answers = [call.result() for call in [pool.submit(search) for _ in range(6)]]
    assert model.calls == 1
    assert len({id(gallery) for gallery, _ in answers}) == 1
    classes, scores, _ = sorted_scores(model.scorer, rows, 3)
    for _, found in answers:
        np.testing.assert_array_equal(found.classes, classes)
        np.testing.assert_array_equal(found.scores, scores)


def test_a_model_says_what_gives_its_scores():
    with pytest.raises(TypeError, match="exact_scorer"):
        FoldedSearch().exact_scorer()


class TestFiles:
    @pytest.fixture
    def scorer(self):
        return made_up_scorer(3000, ranks=(1,) * 20 + (0, 2), copies=100)

    @pytest.fixture
    def path(self, scorer, tmp_path):
        FoldedGallery(scorer).save(tmp_path / "folded")
        return tmp_path / "folded"

    def test_a_loaded_gallery_is_the_same(self, scorer, path):
        made, loaded = FoldedGallery(scorer), FoldedGallery.load(path, scorer)
        for name in ("vectors", "linear", "others", "norm"):
            np.testing.assert_array_equal(
                getattr(loaded.folded, name), getattr(made.folded, name)
            )
        for one, other in zip(
            made.search(probes(9), 5), loaded.search(probes(9), 5), strict=True
        ):
            np.testing.assert_array_equal(one, other)

    def test_vectors_stay_in_the_file(self, scorer, path):
        vectors = FoldedGallery.load(path, scorer).folded.vectors
        assert not vectors.flags.writeable
        while isinstance(vectors.base, np.ndarray):
            vectors = vectors.base
        assert not vectors.flags.owndata

    def test_damage_is_found(self, scorer, path):
        content = bytearray(path.read_bytes())
        for place in np.linspace(0, len(content) - 1, 40).astype(int):
            damaged = bytearray(content)
            damaged[place] ^= 4
            path.write_bytes(damaged)
            with pytest.raises(ModelFileError):
                FoldedGallery.load(path, scorer)
        path.write_bytes(content[:-1])
        with pytest.raises(ModelFileError):
            FoldedGallery.load(path, scorer)

    def test_files_of_others(self, scorer, path, tmp_path):
        with pytest.raises(ModelFileError, match="another model"):
            FoldedGallery.load(path, made_up_scorer(3000, seed=5))
        write_tensors(tmp_path / "other", {"x": np.ones(3)}, {})
        with pytest.raises(ModelFileError, match=r"has no 'dualqml.folded_gallery'"):
            FoldedGallery.load(tmp_path / "other", scorer)
        with pytest.raises(ModelFileError, match="missing cannot be read"):
            FoldedGallery.load(tmp_path / "missing", scorer)

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("vectors", lambda v: v[:, 1:]),
            ("vectors", lambda v: v[1:]),
            ("vectors", lambda v: v.astype(np.float64)),
            (
                "vectors",
                lambda v: np.where(
                    np.arange(len(v))[:, None] == 2500, np.float32(np.nan), v
                ),
            ),
            (
                "vectors",
                lambda v: np.where(
                    np.arange(len(v))[:, None] == 9, np.float32(1e30), v
                ),
            ),
            ("linear", lambda v: v[::-1]),
            ("linear", lambda v: v.astype(np.float64)),
            ("linear", lambda v: v - 1),
            ("linear", lambda v: np.where(v == v[1], v[0], v)),
            ("linear", lambda v: v[:, None]),
            ("others", lambda v: v[1:]),
            ("others", lambda v: v + 10**9),
            ("others", None),
        ],
    )
    def test_arrays_that_do_not_fit(self, scorer, path, name, change):
        arrays, strings = read_tensors(path)
        changed = arrays.pop(name)
        if change is not None:
            arrays[name] = change(changed)
        write_tensors(path, arrays, strings)
        with pytest.raises(ModelFileError):
            FoldedGallery.load(path, scorer)


@pytest.fixture
def folding(monkeypatch):
    """Galleries of any size are folded."""
    monkeypatch.setattr(folded_search, "LEAST_SUBJECTS", 2)


def enrolled_vectors(**parameters):
    X, y = make_vectors(60, 3, size=20, noise=0.4)
    recognizer = Recognizer(threshold=2.0, **parameters)
    recognizer.enroll_many(X, y.tolist())
    others, _ = make_vectors(5, 2, size=20, noise=0.4, seed=9)
    return recognizer, np.concatenate([X[::7] + 0.3, others]).astype(np.float32)


class TestRecognizer:
    @pytest.mark.parametrize("weight", [None, 0.0, 1.5])
    def test_answers_are_those_of_all_scores(self, weight, monkeypatch, tmp_path):
        recognizer, rows = enrolled_vectors(cosine_weight=weight)
        expected = recognizer.identify_many(rows, top=7)
        recognizer.save(tmp_path / "model")
        assert recognizer._fitted_matcher().folded_gallery() is None
        monkeypatch.setattr(folded_search, "LEAST_SUBJECTS", 2)
        assert recognizer._fitted_matcher().folded_gallery() is not None
        decisions = load_decision_model(tmp_path / "model")
        for found in (
            recognizer.identify_many(rows, top=7),
            [recognizer.identify(row, top=7) for row in rows],
            decisions.identify_many(rows, top=7),
        ):
            for one, other in zip(found, expected, strict=True):
                assert (one.decision, one.subject) == (other.decision, other.subject)
                assert one.model_id == other.model_id
                assert one.score == pytest.approx(other.score, abs=1e-9)
                stranger = pytest.approx(other.unknown_probability, abs=1e-5)
                assert one.unknown_probability == stranger
                for own, its in zip(one.candidates, other.candidates, strict=True):
                    assert own.subject == its.subject
                    assert own.score == pytest.approx(its.score, abs=1e-9)
                    assert own.probability == pytest.approx(its.probability, abs=1e-5)

    @pytest.mark.usefixtures("folding")
    def test_after_a_change_another_gallery_is_folded(self):
        recognizer, _ = enrolled_vectors()
        own = recognizer.samples("p03")[0]
        assert recognizer.identify(own).candidates[0].subject == "p03"
        before = recognizer._fitted_matcher().folded_gallery()
        recognizer.remove("p03")
        candidates = recognizer.identify(own, top=100).candidates
        assert "p03" not in {candidate.subject for candidate in candidates}
        assert len(candidates) == 59
        assert recognizer._fitted_matcher().folded_gallery() is not before

    @pytest.mark.usefixtures("folding")
    def test_a_copy_has_the_same_answers(self):
        recognizer, rows = enrolled_vectors()
        expected = recognizer.identify_many(rows)
        assert copy.deepcopy(recognizer).identify_many(rows) == expected
        assert pickle.loads(pickle.dumps(recognizer)).identify_many(rows) == expected

    @pytest.mark.usefixtures("folding")
    def test_wrong_questions(self):
        recognizer, rows = enrolled_vectors()
        with pytest.raises(RecognitionError, match="top must be at least 1"):
            recognizer.identify_many(rows, top=0)
        with pytest.raises(RecognitionError, match="20 values, not 19"):
            recognizer.identify_many(rows[:, 1:])
        recognizer.calibration = None
        with pytest.raises(NoThresholdError):
            recognizer.identify_many(rows)

    @pytest.mark.usefixtures("folding")
    def test_templates_are_searched_without_a_gallery(self):
        recognizer, rows = enrolled_vectors()
        templates = [recognizer.template(row) for row in rows]
        found = recognizer.identify_many(templates, top=4)
        for one, other in zip(
            found, recognizer.identify_many(rows, top=4), strict=True
        ):
            assert [c.subject for c in one.candidates] == [
                c.subject for c in other.candidates
            ]

    @pytest.mark.usefixtures("folding")
    @pytest.mark.parametrize(
        "parameters",
        [{"method": "LDA"}, {"rule": "cosine"}, {"kernel": "rbf"}],
        ids=str,
    )
    def test_other_methods_compute_all_scores(self, parameters):
        recognizer, rows = enrolled_vectors(**parameters)
        assert recognizer._fitted_matcher().exact_scorer() is None
        scores = recognizer.scores(rows)
        expected = np.argsort(-scores, axis=1, kind="stable")[:, :3]
        for found, places in zip(
            recognizer.identify_many(rows, top=3), expected, strict=True
        ):
            names = [candidate.subject for candidate in found.candidates]
            assert names == [recognizer.subjects()[place] for place in places]

    @pytest.mark.usefixtures("folding")
    def test_images_compute_all_scores(self):
        people = make_people(n_people=6)
        recognizer = Recognizer(size=(8, 8), threshold=0.0)
        recognizer.enroll_many(people.images, people.labels.tolist())
        assert recognizer._fitted_matcher().folded_gallery() is None
        assert (
            recognizer.identify(people.images[0]).candidates[0].subject == "person 00"
        )
        unfitted = Matcher("DualQML-W", None, None, {})
        assert unfitted.exact_scorer() is None
