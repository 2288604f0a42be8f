import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.exceptions import (
    MissingDependencyError,
    ModelFileError,
    RecognitionError,
)
from dualqml.persistence.tensors import read_tensors, write_tensors
from dualqml.recognition import Recognizer
from dualqml.recognition.decision_model import load_decision_model
from dualqml.recognition.exact_scorer import ArrayScorer
from dualqml.recognition.folded_search import FoldedGallery
from dualqml.recognition.score_scale import ScoreScale
from dualqml.scale import Recall, Shortlist, fit_blocks
from dualqml.scale.inverted_file import Moments
from dualqml.scale.short_vectors import short_queries, short_vectors
from dualqml.scale.shortlist import _own_probes
from tests.people import make_people, make_vectors
from tests.recognition.scorers import made_up_scorer, sorted_scores

KINDS = ("flat", "ivf")
SETTINGS = "dualqml.shortlist.settings"


def probes(n_probes, size=6, seed=1):
    rows = np.random.default_rng(seed).normal(size=(n_probes, size))
    return rows.astype(np.float32)


def face_like(n_classes=3000, *, size=24, cosine_weight=1.5, seed=0):
    """A model of people who differ in few directions, and probes of them.

    The filters are those of a linear discriminant analysis, which is what the solver's
    filters are near to.
    """
    rng = np.random.default_rng(seed)
    spread = 1.0 / np.arange(1, size + 1)
    noise = 0.3 * np.sqrt(spread)
    mean = rng.normal(size=size)
    centres = mean + spread * rng.normal(size=(n_classes, size))
    samples = (centres + noise * rng.normal(size=(3, n_classes, size))).mean(axis=0)
    means = samples / np.linalg.norm(samples, axis=1)[:, None]
    centre = means.mean(axis=0)
    coefficients = np.diag(1.0 / noise)
    own = (means - centre) @ coefficients
    own /= np.linalg.norm(own, axis=1)[:, None]
    scorer = ArrayScorer(
        mean=centre,
        coefficients=coefficients,
        components=own,
        ranks=np.ones(n_classes, np.int64),
        mean_responses=np.ones(n_classes),
        means=means,
        scale=ScoreScale(spread=0.2, cosine_weight=cosine_weight, cosine_spread=0.1),
    )
    who = rng.integers(0, n_classes, 300)
    rows = centres[who] + noise * rng.normal(size=(300, size))
    return scorer, rows.astype(np.float32)


class TestSearch:
    @settings(max_examples=40)
    @given(
        seed=st.integers(0, 10_000),
        n_classes=st.integers(1, 80),
        weight=st.sampled_from([0.0, 0.7, -0.3]),
        scaled=st.booleans(),
        whole_numbers=st.booleans(),
        copies=st.integers(0, 40),
        top=st.integers(1, 90),
        index=st.sampled_from(KINDS),
    )
    def test_a_shortlist_of_all_is_a_full_sort(
        self, seed, n_classes, weight, scaled, whole_numbers, copies, top, index
    ):
        scorer = made_up_scorer(
            n_classes,
            cosine_weight=weight,
            scaled=scaled,
            copies=copies,
            seed=seed,
        )
        if whole_numbers:
            scorer.means = np.round(scorer.means, 1)
        found = Shortlist(scorer, index=index, k=n_classes).search(probes(4), top)
        classes, scores, sums = sorted_scores(scorer, probes(4), top)
        np.testing.assert_array_equal(found.classes, classes)
        np.testing.assert_array_equal(found.scores, scores)
        np.testing.assert_allclose(found.log_sums, sums, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("index", KINDS)
    def test_scores_are_exact_and_in_order(self, index):
        scorer, rows = face_like()
        found = Shortlist(scorer, index=index, k=20).search(rows, 8)
        assert found.classes.shape == found.scores.shape == (300, 8)
        assert (np.diff(found.scores, axis=1) <= 0).all()
        z, units = scorer.queries(rows)
        for number in range(0, 300, 10):
            exact = scorer.scores_of(z[number], units[number], found.classes[number])
            np.testing.assert_array_equal(found.scores[number], exact)
            assert np.unique(found.classes[number]).size == 8

    @pytest.mark.parametrize("index", KINDS)
    def test_classes_of_other_ranks_always_join(self, index):
        scorer = made_up_scorer(400, ranks=(1,) * 60 + (0, 2, 3))
        is_other = scorer.ranks != 1
        assert 0 < is_other.sum() < 40
        scorer.components[np.repeat(is_other, scorer.ranks)] *= 30.0
        found = Shortlist(scorer, index=index, k=1).search(probes(20), 1)
        classes, scores, _ = sorted_scores(scorer, probes(20), 1)
        assert is_other[classes].all()
        np.testing.assert_array_equal(found.classes, classes)
        np.testing.assert_array_equal(found.scores, scores)

    def test_without_a_cosine_the_proposals_are_those_of_the_scores(self):
        scorer, rows = face_like(cosine_weight=0.0)
        found = Shortlist(scorer, k=8).search(rows, 8)
        classes, scores, sums = sorted_scores(scorer, rows, 8)
        np.testing.assert_array_equal(found.classes, classes)
        np.testing.assert_array_equal(found.scores, scores)
        np.testing.assert_allclose(found.log_sums, sums, rtol=1e-5)

    def test_other_classes_count_in_sums(self):
        scorer, rows = face_like()
        found = Shortlist(scorer, k=10).search(rows, 1)
        sums = sorted_scores(scorer, rows, 1)[2]
        assert np.median(np.abs(found.log_sums - sums)) < 0.3
        lower = Shortlist(scorer, index="ivf", k=10).search(rows, 1)
        assert (lower.log_sums < sums).all()
        assert (lower.log_sums > found.scores[:, 0]).all()

    @pytest.mark.parametrize("index", KINDS)
    def test_batches_and_single_probes_have_the_same_answers(self, index):
        scorer, rows = face_like()
        shortlist = Shortlist(scorer, index=index, k=10)
        batch = shortlist.search(rows, 3)
        for number in range(0, 300, 30):
            single = shortlist.search(rows[number : number + 1], 3)
            np.testing.assert_array_equal(single.classes[0], batch.classes[number])
            np.testing.assert_allclose(single.scores[0], batch.scores[number])
        assert shortlist.search(np.empty((0, 24)), 3).classes.shape == (0, 3)

    def test_groups_with_fewer_than_k_classes(self):
        scorer, rows = face_like(500)
        shortlist = Shortlist(scorer, index="ivf", k=60, n_lists=100, n_probes=1)
        found = shortlist.search(rows, 60)
        assert found.classes.shape == (300, 60)
        assert found.classes.min() >= 0

    @pytest.mark.parametrize("index", KINDS)
    def test_threads_share_a_shortlist(self, index):
        scorer, rows = face_like()
        shortlist = Shortlist(scorer, index=index, k=10)
        expected = shortlist.search(rows, 3)
        start = threading.Barrier(4)

        def search():
            start.wait()
            return shortlist.search(rows, 3)

        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(search) for _ in range(4)]
            for call in calls:
                for one, other in zip(call.result(), expected, strict=True):
                    np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize("index", KINDS)
    def test_extreme_numbers_are_scored_exactly(self, index):
        scorer = made_up_scorer(300)
        scorer.components[[3, 8]] *= 1e20
        scorer.components[5] *= 1e-70
        scorer.mean_responses[11] = 0.0
        found = Shortlist(scorer, index=index, k=300).search(probes(5), 300)
        classes, scores, _ = sorted_scores(scorer, probes(5), 300)
        np.testing.assert_array_equal(found.classes, classes)
        np.testing.assert_array_equal(found.scores, scores)


def test_short_vectors_are_nearly_the_scores():
    scorer, rows = face_like()
    z, units = scorer.queries(rows)
    short = short_vectors(scorer)
    proposed = short_queries(scorer, z, units) @ short.vectors.T + short.constants
    everyone = np.arange(scorer.n_classes)
    for own, products in zip(zip(z, units, strict=True), proposed, strict=True):
        exact = scorer.scores_of(*own, everyone)
        # Probes whose coordinates have another norm have another slope.
        assert np.corrcoef(exact, products)[0, 1] > 0.98


class TestBalance:
    def test_products_stay_the_same(self):
        rng = np.random.default_rng(0)
        queries = rng.normal(size=(500, 8)) * np.arange(1, 9)
        matrix = np.diag(1.0 / np.arange(1.0, 9.0) ** 2)
        vectors = queries @ matrix + 0.01 * rng.normal(size=(500, 8))
        moments = Moments(8)
        moments.add(vectors[:200], queries[:200])
        moments.add(vectors[200:], queries[200:])
        np.testing.assert_allclose(moments.centre(), vectors.mean(axis=0))
        to_vector, to_query = moments.balance()
        left, right = vectors @ to_vector, queries @ to_query
        np.testing.assert_allclose(
            left @ right.T, vectors @ queries.T, rtol=0.02, atol=0.05
        )
        # Both are in the same place.
        lengths = [np.linalg.norm(rows, axis=1) for rows in (left, right)]
        cosines = np.einsum("ij,ij->i", left, right) / np.prod(lengths, axis=0)
        assert np.median(cosines) > 0.99
        raw = np.einsum("ij,ij->i", vectors, queries) / (
            np.linalg.norm(vectors, axis=1) * np.linalg.norm(queries, axis=1)
        )
        assert np.median(raw) < 0.9

    def test_axes_without_variance_are_left_out(self):
        rng = np.random.default_rng(0)
        queries = rng.normal(size=(500, 8))
        vectors = queries * np.where(np.arange(8) < 3, 1.0, 1e-6)
        moments = Moments(8)
        moments.add(vectors, queries)
        to_vector, to_query = moments.balance()
        assert to_vector.shape == to_query.shape == (8, 3)

    def test_without_means_nothing_is_balanced(self):
        moments = Moments(3)
        moments.add(np.ones((2, 3)), None)
        for matrix in moments.balance():
            np.testing.assert_array_equal(matrix, np.eye(3))

    def test_without_means_there_still_is_an_index(self):
        scorer, rows = face_like(cosine_weight=0.0)
        with_means = Shortlist(scorer, index="ivf", k=10).recall(rows)
        scorer.means = None
        without = Shortlist(scorer, index="ivf", k=10).recall(rows)
        assert 0.0 < without.estimate <= with_means.estimate


class TestRecall:
    @pytest.mark.parametrize(("index", "least"), [("flat", 0.99), ("ivf", 0.9)])
    def test_it_is_the_share_of_best_classes(self, index, least):
        scorer, rows = face_like()
        shortlist = Shortlist(scorer, index=index, k=10)
        measured = shortlist.recall(rows)
        best = sorted_scores(scorer, rows, 1)[0]
        found = shortlist.search(rows, 1).classes
        assert measured.estimate == np.mean(found == best)
        assert measured.n_probes == 300
        assert measured.low <= measured.estimate <= measured.high
        assert least < measured.estimate
        assert measured.low < 1.0
        assert not measured.simulated
        assert shortlist.measured == measured

    def test_a_poor_index_has_a_low_recall(self):
        scorer, rows = face_like()
        shortlist = Shortlist(scorer, index="ivf", k=1, n_lists=300, n_probes=1)
        measured = shortlist.recall(rows)
        assert measured.estimate < 0.8
        assert measured.high < 0.9

    def test_an_equal_class_is_as_good(self):
        scorer = made_up_scorer(50)
        scorer.components[:] = scorer.components[0]
        scorer.mean_responses[:] = 1.0
        scorer.means[:] = scorer.means[0]
        assert Shortlist(scorer, index="ivf", k=1).recall(probes(5)).estimate == 1.0

    def test_a_recogniser_makes_its_own_probes(self):
        recognizer = enrolled()
        shortlist = Shortlist(recognizer, k=5)
        measured = shortlist.recall()
        assert measured.simulated
        assert measured.n_probes == 80
        assert measured == shortlist.recall()

    def test_own_probes_are_as_hard_as_new_samples(self):
        rng = np.random.default_rng(0)
        centres = 10.0 + rng.normal(size=(500, 1, 12))
        noise = 0.3 * rng.normal(size=(500, 4, 12))
        samples = (centres + noise).astype(np.float32)
        recognizer = Recognizer(cosine_weight=1.0)
        names = [f"p{n:03d}" for n in range(500)]
        rows = samples[:, :3].reshape(-1, 12)
        recognizer.enroll_many(rows, np.repeat(names, 3).tolist())
        shortlist = Shortlist(recognizer, k=500)
        own, new = (
            shortlist.search(part, 1).scores[:, 0]
            for part in (_own_probes(recognizer), samples[:, 3])
        )
        assert own.mean() == pytest.approx(new.mean(), abs=0.25 * new.std())

    def test_one_sample_each(self):
        recognizer = Recognizer()
        recognizer.enroll_many(probes(30, 10), [f"{n:02d}" for n in range(30)])
        assert Shortlist(recognizer, k=3).recall().n_probes == 30

    def test_a_model_without_samples_needs_probes(self):
        shortlist = Shortlist(made_up_scorer(50))
        with pytest.raises(RecognitionError, match="has no samples: give probes"):
            shortlist.recall()
        with pytest.raises(RecognitionError, match="at least one probe"):
            shortlist.recall(np.empty((0, 6)))


def enrolled(n_people=80, **parameters):
    X, y = make_vectors(n_people, 3, size=20, noise=0.4)
    recognizer = Recognizer(threshold=2.0, **parameters)
    recognizer.enroll_many(X, y.tolist())
    return recognizer


class TestModels:
    @pytest.mark.parametrize("index", KINDS)
    def test_a_recogniser_and_its_file(self, index, tmp_path):
        recognizer = enrolled()
        recognizer.save(tmp_path / "model")
        rows = np.concatenate(
            [recognizer.samples(f"p{n:02d}") for n in range(0, 80, 9)]
        )
        expected = recognizer.identify_many(rows, top=4)
        for model in (recognizer, load_decision_model(tmp_path / "model")):
            shortlist = Shortlist(model, index=index, k=80)
            found = shortlist.search(rows, 4)
            names = shortlist.scorer.labels[found.classes]
            assert [
                [c.subject for c in a.candidates] for a in expected
            ] == names.tolist()
            np.testing.assert_allclose(
                found.scores, [[c.score for c in a.candidates] for a in expected]
            )

    @pytest.mark.parametrize("index", KINDS)
    def test_a_model_in_parts(self, index, tmp_path):
        X, y = make_vectors(80, 3, size=20, noise=0.4)
        model = fit_blocks(Recognizer(), X, y.astype(str), part_bytes=4000)
        assert model.n_shards > 1
        shortlist = Shortlist(model, index=index, k=80)
        rows = X[::7].astype(np.float32)
        found = shortlist.search(rows, 4)
        expected = np.argsort(-model.class_scores(rows), axis=1, kind="stable")[:, :4]
        np.testing.assert_array_equal(found.classes, expected)
        assert shortlist.recall(rows).estimate == 1.0
        shortlist.save(tmp_path / "shortlist")
        loaded = Shortlist.load(tmp_path / "shortlist", model)
        np.testing.assert_array_equal(loaded.search(rows, 4).scores, found.scores)

    def test_a_recogniser_that_has_changed(self):
        recognizer = enrolled()
        shortlist = Shortlist(recognizer, k=5)
        row = recognizer.samples("p03")
        shortlist.search(row)
        recognizer.remove("p03")
        with pytest.raises(RecognitionError, match="has changed"):
            shortlist.search(row)
        with pytest.raises(RecognitionError, match="has changed"):
            shortlist.recall()
        assert "p03" not in Shortlist(recognizer, k=5).scorer.labels

    @pytest.mark.parametrize(
        "parameters",
        [{"method": "LDA"}, {"rule": "cosine"}, {"kernel": "rbf"}],
        ids=str,
    )
    def test_other_methods_cannot_be_searched(self, parameters):
        with pytest.raises(RecognitionError, match="linear in vectors"):
            Shortlist(enrolled(20, **parameters))

    def test_other_models_cannot_be_searched(self):
        people = make_people(n_people=5)
        recognizer = Recognizer(size=(8, 8))
        recognizer.enroll_many(people.images, people.labels.tolist())
        for model in (recognizer, object(), None):
            with pytest.raises(RecognitionError, match="linear in vectors"):
                Shortlist(model)

    def test_too_many_classes_of_other_ranks(self):
        scorer = made_up_scorer(100, ranks=(1, 1, 2))
        with pytest.raises(RecognitionError, match=r"Only \d\d of 100 classes"):
            Shortlist(scorer)
        with pytest.raises(RecognitionError, match="Only 0 of 100"):
            Shortlist(made_up_scorer(100, ranks=(0,)))


class TestParameters:
    @pytest.mark.parametrize(
        ("parameters", "reason"),
        [
            ({"k": 0}, "k must be a whole number of at least 1, got 0"),
            ({"k": 2.5}, "k must be a whole number"),
            ({"k": None}, "k must be a whole number"),
            ({"k": True}, "k must be a whole number"),
            ({"index": "hnsw"}, "index must be"),
            ({"n_lists": 5}, 'n_lists is for index="ivf" only'),
            ({"index": "ivf", "n_lists": 0}, "n_lists must be a whole number"),
            ({"index": "ivf", "n_probes": -1}, "n_probes must be a whole number"),
        ],
    )
    def test_wrong_ones(self, parameters, reason):
        with pytest.raises(RecognitionError, match=reason):
            Shortlist(made_up_scorer(20), **parameters)

    def test_wrong_probes(self):
        shortlist = Shortlist(made_up_scorer(20))
        with pytest.raises(RecognitionError, match="top must be at least 1"):
            shortlist.search(probes(1), 0)
        with pytest.raises(RecognitionError, match="6 values, not 5"):
            shortlist.search(probes(1, 5))
        with pytest.raises(RecognitionError, match="not finite"):
            shortlist.search(np.full((1, 6), np.nan))

    def test_more_groups_than_classes(self):
        scorer = made_up_scorer(20)
        shortlist = Shortlist(scorer, index="ivf", k=20, n_lists=50, n_probes=50)
        found = shortlist.search(probes(3), 2)
        np.testing.assert_array_equal(
            found.classes, sorted_scores(scorer, probes(3), 2)[0]
        )

    def test_faiss_is_missing(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "faiss", None)
        with pytest.raises(MissingDependencyError, match=r"dualqml\[search\]"):
            Shortlist(made_up_scorer(20), index="ivf")
        assert Shortlist(made_up_scorer(20)).search(probes(1)).classes.shape == (1, 5)

    def test_faiss_is_imported_for_its_index_only(self):
        code = (
            "import sys\n"
            "from dualqml.scale import Shortlist\n"
            "from tests.recognition.scorers import made_up_scorer\n"
            "Shortlist(made_up_scorer(20))\n"
            "assert 'faiss' not in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


class TestFiles:
    @pytest.fixture(params=KINDS)
    def kind(self, request):
        return request.param

    def saved(self, kind, folder):
        scorer, rows = face_like(600)
        shortlist = Shortlist(scorer, index=kind, k=7)
        shortlist.recall(rows)
        shortlist.save(folder / "shortlist")
        return scorer, rows, shortlist, folder / "shortlist"

    def test_a_loaded_shortlist_is_the_same(self, kind, tmp_path):
        scorer, rows, made, path = self.saved(kind, tmp_path)
        loaded = Shortlist.load(path, scorer)
        assert (loaded.index, loaded.k) == (kind, 7)
        assert loaded.measured == made.measured
        assert isinstance(loaded.measured, Recall)
        for one, other in zip(
            loaded.search(rows, 4), made.search(rows, 4), strict=True
        ):
            np.testing.assert_array_equal(one, other)
        loaded.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == path.read_bytes()

    def test_the_same_model_gives_the_same_file(self, kind, tmp_path):
        scorer, _ = face_like(600)
        for name in ("one", "other"):
            Shortlist(scorer, index=kind).save(tmp_path / name)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
        assert Shortlist.load(tmp_path / "one", scorer).measured is None

    def test_the_model_and_its_file_are_one_model(self, kind, tmp_path):
        recognizer = enrolled()
        recognizer.save(tmp_path / "model")
        Shortlist(recognizer, index=kind, k=5).save(tmp_path / "shortlist")
        row = recognizer.samples("p03")
        for model in (
            recognizer,
            Recognizer.load(tmp_path / "model"),
            load_decision_model(tmp_path / "model"),
        ):
            found = Shortlist.load(tmp_path / "shortlist", model).search(row, 1)
            assert found.classes[0, 0] == 3
        recognizer.remove("p79")
        with pytest.raises(ModelFileError, match="another model"):
            Shortlist.load(tmp_path / "shortlist", recognizer)

    def test_vectors_stay_in_the_file(self, tmp_path):
        _, path = face_like(60_000)[0], tmp_path / "shortlist"
        scorer = face_like(60_000)[0]
        Shortlist(scorer, index="ivf", n_lists=4).save(path)
        code = (
            "import sys\n"
            "from dualqml.persistence.tensors import read_tensors\n"
            "from dualqml.scale.inverted_file import InvertedFile, import_faiss\n"
            "def anonymous():\n"
            "    lines = open('/proc/self/status').read().splitlines()\n"
            "    return next(int(l.split()[1]) for l in lines if 'RssAnon' in l)\n"
            "import_faiss()\n"
            "arrays, _ = read_tensors(sys.argv[1])\n"
            "width, size = len(arrays['to_query']), arrays['faiss'].nbytes\n"
            "before = anonymous()\n"
            "found = InvertedFile.restored(arrays, {'n_probes': 1, 'shift': 1.0},\n"
            "    arrays['classes'], width)\n"
            "grown = 1024 * (anonymous() - before)\n"
            "assert grown < size / 2, (grown, size)\n"
        )
        subprocess.run([sys.executable, "-c", code, str(path)], check=True)

    def test_damage_is_found(self, kind, tmp_path):
        scorer, _, _, path = self.saved(kind, tmp_path)
        content = path.read_bytes()
        for place in np.linspace(0, len(content) - 1, 30).astype(int):
            damaged = bytearray(content)
            damaged[place] ^= 16
            path.write_bytes(damaged)
            with pytest.raises(ModelFileError):
                Shortlist.load(path, scorer)
        path.write_bytes(content[:-1])
        with pytest.raises(ModelFileError):
            Shortlist.load(path, scorer)

    def test_files_of_others(self, kind, tmp_path):
        scorer, _, _, path = self.saved(kind, tmp_path)
        with pytest.raises(ModelFileError, match="another model"):
            Shortlist.load(path, face_like(600, seed=1)[0])
        FoldedGallery(scorer).save(tmp_path / "folded")
        with pytest.raises(ModelFileError, match=r"has no 'dualqml.shortlist'"):
            Shortlist.load(tmp_path / "folded", scorer)
        with pytest.raises(ModelFileError, match="cannot be read"):
            Shortlist.load(tmp_path / "missing", scorer)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("index", "tree"),
            ("index", []),
            ("k", 0),
            ("k", "7"),
            ("recall", {"estimate": 1.0}),
            ("recall", 1.0),
            ("recall", {"estimate": "1", "low": 1.0, "high": 1.0}),
            ("n_probes", 0),
            ("n_probes", 1.5),
            ("shift", "1"),
            ("shift", None),
        ],
    )
    def test_forged_settings(self, key, value, tmp_path):
        scorer, _, _, path = self.saved("ivf", tmp_path)
        arrays, strings = read_tensors(path)
        forged = json.loads(strings[SETTINGS]) | {key: value}
        write_tensors(path, arrays, strings | {SETTINGS: json.dumps(forged)})
        with pytest.raises(ModelFileError):
            Shortlist.load(path, scorer)

    @pytest.mark.parametrize(
        ("index", "name", "change"),
        [
            ("flat", "vectors", lambda a: a[:, 1:]),
            ("flat", "vectors", lambda a: a[1:]),
            ("flat", "vectors", lambda a: a.astype(np.float64)),
            ("flat", "vectors", lambda a: a * np.float32(np.nan)),
            ("flat", "vectors", lambda a: a * np.float32(1e30)),
            ("flat", "constants", lambda a: a[1:]),
            ("flat", "constants", lambda a: a + np.float32(np.inf)),
            ("flat", "classes", lambda a: a[::-1]),
            ("flat", "classes", lambda a: a + 1),
            ("flat", "classes", lambda a: a - 1),
            ("flat", "classes", lambda a: a.astype(np.float64)),
            ("flat", "classes", lambda a: a[:, None]),
            ("flat", "classes", lambda a: a[:0]),
            ("flat", "classes", None),
            ("flat", "vectors", None),
            ("ivf", "classes", lambda a: a[1:]),
            ("ivf", "to_query", lambda a: a[1:]),
            ("ivf", "to_query", lambda a: a[0]),
            ("ivf", "to_query", lambda a: a * np.nan),
            ("ivf", "to_query", lambda a: np.tile(a, (1, 9))),
            ("ivf", "faiss", lambda a: a[: a.size // 2]),
            ("ivf", "faiss", lambda a: a[:3]),
            ("ivf", "faiss", lambda a: np.zeros_like(a)),
            ("ivf", "faiss", lambda a: a.astype(np.int64)),
            ("ivf", "faiss", None),
        ],
    )
    def test_forged_arrays(self, index, name, change, tmp_path):
        scorer, _, _, path = self.saved(index, tmp_path)
        arrays, strings = read_tensors(path)
        array = arrays.pop(name)
        if change is not None:
            arrays[name] = change(array)
        write_tensors(path, arrays, strings)
        with pytest.raises(ModelFileError):
            Shortlist.load(path, scorer)

    def test_an_index_of_another_kind(self, tmp_path):
        import faiss

        scorer, _, _, path = self.saved("ivf", tmp_path)
        arrays, strings = read_tensors(path)
        width = faiss.deserialize_index(np.array(arrays["faiss"])).d
        other = faiss.IndexFlatIP(width)
        other.add(np.zeros((600, width), np.float32))
        arrays["faiss"] = faiss.serialize_index(other)
        write_tensors(path, arrays, strings)
        with pytest.raises(ModelFileError, match="not one of this model"):
            Shortlist.load(path, scorer)

    def test_an_index_with_other_numbers(self, tmp_path):
        import faiss

        scorer, rows, _, path = self.saved("ivf", tmp_path)
        arrays, strings = read_tensors(path)
        index = faiss.deserialize_index(np.array(arrays["faiss"]))
        other = faiss.index_factory(index.d, "IVF1,SQfp16", faiss.METRIC_INNER_PRODUCT)
        vectors = np.random.default_rng(0).normal(size=(600, index.d))
        other.train(vectors.astype(np.float32))
        numbers = np.arange(10_000, 10_600)
        other.add_with_ids(vectors.astype(np.float32), numbers)
        arrays["faiss"] = faiss.serialize_index(other)
        write_tensors(path, arrays, strings)
        with pytest.raises(RecognitionError, match="does not have the classes"):
            Shortlist.load(path, scorer).search(rows)
