import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualqml.exceptions import ModelFileError, RecognitionError
from dualqml.recognition.exact_scorer import (
    MODEL_KEY,
    ArrayScorer,
    check_file_of_model,
    checked_vectors,
    scores_in_parts,
)
from dualqml.recognition.score_scale import ScoreScale
from tests.recognition.scorers import made_up_scorer, plain_scores


def probes(n_probes, size=6, seed=1):
    return np.random.default_rng(seed).normal(size=(n_probes, size))


@given(
    seed=st.integers(0, 1000),
    ranks=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    weight=st.sampled_from([0.0, 0.7]),
    scaled=st.booleans(),
)
def test_scores_are_those_of_the_definition(seed, ranks, weight, scaled):
    scorer = made_up_scorer(
        40, ranks=ranks, cosine_weight=weight, scaled=scaled, seed=seed
    )
    z, units = scorer.queries(probes(3, seed=seed))
    for own in zip(z, units, strict=True):
        found = scorer.scores_of(*own, np.arange(40))
        np.testing.assert_allclose(found, plain_scores(scorer, *own), rtol=1e-10)


def test_coordinates_are_at_unit_norm():
    scorer, rows = made_up_scorer(), probes(4)
    z, units = scorer.queries(7.0 * rows)
    np.testing.assert_allclose(
        units, rows / np.linalg.norm(rows, axis=1)[:, None], rtol=1e-14
    )
    expected = (units - scorer.mean) @ scorer.coefficients
    expected /= np.linalg.norm(expected, axis=1)[:, None]
    np.testing.assert_allclose(z, expected, rtol=1e-13)


@given(
    seed=st.integers(0, 1000),
    ranks=st.sampled_from([(1,), (0, 1, 2, 3)]),
    chosen=st.lists(st.integers(0, 49), min_size=1, max_size=60),
)
def test_a_score_does_not_depend_on_the_other_classes(seed, ranks, chosen):
    scorer = made_up_scorer(50, ranks=ranks, scaled=True, seed=seed)
    z, units = (part[0] for part in scorer.queries(probes(1, seed=seed)))
    everyone = scorer.scores_of(z, units, np.arange(50))
    some = scorer.scores_of(z, units, np.array(chosen))
    np.testing.assert_array_equal(some, everyone[chosen])


@pytest.mark.parametrize("size", [1, 3, 128, 9000])
def test_equal_classes_have_equal_scores_wherever_they_are(size):
    rng = np.random.default_rng(0)
    factors, means = (np.tile(rng.normal(size=size), (7, 1)) for _ in range(2))
    scorer = ArrayScorer(
        mean=np.zeros(size),
        coefficients=np.eye(size) if size < 200 else np.ones((1, 1)),
        components=factors,
        ranks=np.ones(7, np.int64),
        mean_responses=np.ones(7),
        means=means,
        scale=ScoreScale(cosine_weight=1.0),
    )
    z, unit = rng.normal(size=(2, size))
    scores = scorer.scores_of(z, unit, np.arange(7))
    assert np.unique(scores).size == 1
    assert scorer.scores_of(z, unit, np.array([3]))[0] == scores[3]


def test_scores_in_parts_are_the_same():
    scorer = made_up_scorer(9000, ranks=(1, 1, 2, 0))
    z, units = (part[0] for part in scorer.queries(probes(1)))
    everyone = np.arange(9000)
    np.testing.assert_array_equal(
        scores_in_parts(scorer, z, units, everyone),
        scorer.scores_of(z, units, everyone),
    )


def test_blocks_have_all_classes_in_order():
    scorer = made_up_scorer(9000, ranks=(0, 1, 3), scaled=True)
    blocks = list(scorer.class_blocks())
    assert len(blocks) > 2
    assert [b.classes.start for b in blocks[1:]] == [
        b.classes.stop for b in blocks[:-1]
    ]
    assert blocks[0].classes.start == 0
    assert blocks[-1].classes.stop == 9000
    for name in ("components", "ranks", "mean_responses", "class_scale", "means"):
        joined = np.concatenate([getattr(block, name) for block in blocks])
        np.testing.assert_array_equal(joined, getattr(scorer, name))


def test_the_fingerprint_is_another_one_for_other_numbers():
    seen = {made_up_scorer(seed=1).fingerprint, made_up_scorer(seed=2).fingerprint}
    for name in (
        "mean",
        "coefficients",
        "components",
        "ranks",
        "mean_responses",
        "means",
    ):
        scorer = made_up_scorer(seed=1)
        array = getattr(scorer, name)
        array[-1] = np.nextafter(array[-1], 9.0) if array.dtype.kind == "f" else 2
        seen.add(scorer.fingerprint)
    scorer = made_up_scorer(seed=1)
    scorer.scale.offset = 3.0
    seen.add(scorer.fingerprint)
    seen.add(made_up_scorer(seed=1, scaled=True).fingerprint)
    assert len(seen) == 10
    assert made_up_scorer(seed=1).fingerprint in seen


def test_the_cosine_needs_means():
    scorer = made_up_scorer(3)
    with pytest.raises(RecognitionError, match="no means"):
        ArrayScorer(
            mean=scorer.mean,
            coefficients=scorer.coefficients,
            components=scorer.components,
            ranks=scorer.ranks,
            mean_responses=scorer.mean_responses,
            scale=scorer.scale,
        )


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (np.ones(6), "not one of 1 dim"),
        (np.ones((2, 5)), "6 values, not 5"),
        (1.0, "not one of 0 dim"),
        (np.zeros((1, 6)), "all zeros"),
        (np.full((1, 6), np.nan), "not finite"),
    ],
)
def test_vectors_that_cannot_be_used(rows, reason):
    with pytest.raises(RecognitionError, match=reason):
        checked_vectors(rows, 6)


def test_a_score_that_is_not_finite_is_an_error():
    scorer = made_up_scorer(3)
    scorer.components[1] = np.nan
    z, units = (part[0] for part in scorer.queries(probes(1)))
    with pytest.raises(RecognitionError, match="not finite"):
        scorer.scores_of(z, units, np.arange(3))


def test_a_file_belongs_to_one_model(tmp_path):
    scorer, other = made_up_scorer(5), made_up_scorer(5, seed=1)
    strings = {"some.format": "1", MODEL_KEY: scorer.fingerprint}
    check_file_of_model(tmp_path, strings, "some.format", 1, scorer)
    with pytest.raises(ModelFileError, match="another model"):
        check_file_of_model(tmp_path, strings, "some.format", 1, other)
    with pytest.raises(ModelFileError, match="has no 'other'"):
        check_file_of_model(tmp_path, strings, "other", 1, scorer)
    with pytest.raises(ModelFileError, match="has format '1'"):
        check_file_of_model(tmp_path, strings, "some.format", 2, scorer)
