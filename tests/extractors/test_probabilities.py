"""Probabilities against other implementations, and on data whose truth is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from scipy.stats import norm
from sklearn.calibration import calibration_curve
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dualqml import (
    Background,
    DualQMLClassifier,
    DualQMLClassifierCV,
    DualQMLW,
    DualQMLWCV,
)
from dualqml.extractors.probabilities import (
    USUAL_OFFSET,
    USUAL_SLOPE,
    ClassProbabilities,
    LogRatio,
    open_set_posterior,
)
from tests.people import make_vectors
from tests.problems import make_data

DIGITS, NUMBERS = load_digits(return_X_y=True)


class TestLogRatio:
    @pytest.mark.parametrize("distance", [1.0, 3.0])
    @pytest.mark.parametrize("n_same", [300, 3000])
    def test_it_is_the_ratio_of_two_normal_densities(self, distance, n_same):
        rng = np.random.default_rng(0)
        same, others = rng.normal(distance, size=n_same), rng.normal(size=20_000)
        found = LogRatio.fitted(same, others)
        scores = np.linspace(-1.0, distance + 1.0, 20)
        exact = norm.logpdf(scores, distance) - norm.logpdf(scores)
        tolerance = 0.6 if n_same == 300 else 0.25
        np.testing.assert_allclose(found(scores), exact, atol=tolerance * distance)

    @pytest.mark.parametrize("shares", [(4000, 4000), (4000, 1000)])
    def test_it_is_the_logistic_regression_of_scikit_learn(self, shares):
        rng = np.random.default_rng(1)
        same, others = (
            rng.normal(mean, spread, size=n)
            for mean, spread, n in zip((2.0, 0.0), (1.5, 0.8), shares, strict=True)
        )
        found = LogRatio.fitted(same, others)
        scores = np.concatenate([same, others])[:, None]
        kinds = np.arange(scores.size) < same.size
        # A tiny penalty is none.
        expected = LogisticRegression(C=1e9, class_weight="balanced", tol=1e-10).fit(
            scores, kinds
        )
        assert found.slope == pytest.approx(expected.coef_[0, 0], rel=0.01)
        assert found.offset == pytest.approx(expected.intercept_[0], rel=0.01)

    def test_very_many_other_scores_are_thinned_without_an_effect(self):
        rng = np.random.default_rng(2)
        same, others = rng.normal(3.0, size=500), rng.normal(size=5000)
        few, many = (LogRatio.fitted(same, np.tile(others, n)) for n in (1, 8))
        assert many.slope == pytest.approx(few.slope, rel=1e-2)
        assert many.offset == pytest.approx(few.offset, rel=1e-2)

    def test_the_prior_decides_if_there_are_few_scores(self):
        none = np.empty(0)
        usual = LogRatio(1.7, -2.0)
        for same, others in ((none, none), (none, np.ones(3)), (np.ones(3), none)):
            assert LogRatio.fitted(same, others, usual=usual) == usual
            assert LogRatio.fitted(same, others) == LogRatio(USUAL_SLOPE, USUAL_OFFSET)
        rng = np.random.default_rng(0)
        slopes = []
        for n in (1, 10, 2000):
            same, others = rng.normal(1.0, size=n), rng.normal(size=n)
            slopes.append(LogRatio.fitted(same, others, usual=LogRatio(4.0, 0.0)).slope)
        # The truth is 1, the prior 4.
        assert slopes[0] > slopes[1] > slopes[2]
        assert slopes[0] > 2.5
        assert slopes[2] == pytest.approx(1.0, abs=0.15)

    @pytest.mark.parametrize("gap", [0.1, 10.0, 1e4])
    @pytest.mark.parametrize("n", [1, 20, 2000])
    def test_separable_scores_do_not_diverge(self, gap, n):
        same, others = gap + np.linspace(0, 1, n), -np.linspace(0, 1, n)
        found = LogRatio.fitted(same, others)
        assert 0.0 < found.slope < 20.0 * USUAL_SLOPE
        assert abs(found.offset) < 100.0

    def test_a_larger_score_is_never_less_likely(self):
        rng = np.random.default_rng(0)
        found = LogRatio.fitted(rng.normal(-3.0, size=900), rng.normal(size=900))
        assert found.slope > 0.0

    @settings(max_examples=60, deadline=None)
    @given(
        same=st.lists(st.floats(-1e3, 1e3), max_size=8),
        others=st.lists(st.floats(-1e3, 1e3), max_size=8),
    )
    def test_any_scores_have_a_finite_ratio(self, same, others):
        found = LogRatio.fitted(np.array(same), np.array(others))
        assert np.isfinite([found.slope, found.offset]).all()
        assert found.slope > 0.0


class TestPosterior:
    @settings(max_examples=60, deadline=None)
    @given(
        ratios=st.lists(st.floats(-30, 30), min_size=1, max_size=6),
        prior=st.floats(0.01, 0.99),
    )
    def test_it_is_the_rule_of_bayes(self, ratios, prior):
        people, unknown = open_set_posterior(np.array([ratios]), prior=prior)
        likelihoods = [np.exp(ratio) for ratio in ratios]
        joint = [prior / len(ratios) * one for one in likelihoods] + [1.0 - prior]
        expected = np.array(joint) / sum(joint)
        np.testing.assert_allclose(people[0], expected[:-1], rtol=1e-9, atol=1e-300)
        assert unknown[0] == pytest.approx(expected[-1], rel=1e-9)
        assert people.sum() + unknown.sum() == pytest.approx(1.0)

    @pytest.mark.parametrize("size", [1e4, 1e300])
    def test_extreme_ratios_are_certain(self, size):
        with np.errstate(over="raise", invalid="raise"):
            people, unknown = open_set_posterior(np.array([[size, -size], [-size] * 2]))
        np.testing.assert_array_equal(people, [[1.0, 0.0], [0.0, 0.0]])
        np.testing.assert_array_equal(unknown, [0.0, 1.0])


def softmax_data(rng, n_samples, n_classes, slope):
    """Scores, and classes drawn from the softmax of ``slope * scores``."""
    scores = rng.normal(size=(n_samples, n_classes))
    chances = softmax(slope * scores, axis=1)
    classes = np.array([rng.choice(n_classes, p=row) for row in chances])
    return scores, classes


class TestClassProbabilities:
    @pytest.mark.parametrize("slope", [0.7, 3.0])
    def test_the_true_temperature_is_found(self, slope):
        rng = np.random.default_rng(0)
        scores, classes = softmax_data(rng, 4000, 5, slope)
        strangers = rng.normal(size=(400, 5))
        found = ClassProbabilities.fitted(scores, classes, strangers)
        assert found.slope == pytest.approx(slope, rel=0.08)

        def loss(slope):
            chances = log_softmax(slope[0] * scores, axis=1)
            return -chances[np.arange(classes.size), classes].mean()

        best = minimize(loss, [1.0], method="Nelder-Mead").x[0]
        assert found.slope == pytest.approx(best, rel=0.01)
        fresh, truth = softmax_data(np.random.default_rng(1), 4000, 5, slope)
        chances = found.of_classes(fresh)
        right = (chances.argmax(axis=1) == truth).astype(int)
        true_rate, stated = calibration_curve(
            right, chances.max(axis=1), n_bins=5, strategy="quantile"
        )
        np.testing.assert_allclose(true_rate, stated, atol=0.08)

    def test_the_scale_of_the_scores_does_not_matter(self):
        rng = np.random.default_rng(0)
        scores, classes = softmax_data(rng, 200, 5, 1.0)
        strangers = rng.normal(size=(100, 5))
        one, other = (
            ClassProbabilities.fitted(k * scores, classes, k * strangers)
            for k in (1.0, 1e-3)
        )
        np.testing.assert_allclose(
            one.of_classes(scores), other.of_classes(1e-3 * scores), atol=1e-4
        )
        np.testing.assert_allclose(
            one.of_unknown(scores, 0.5), other.of_unknown(1e-3 * scores, 0.5), atol=1e-6
        )

    def test_one_sample_does_not_make_it_certain(self):
        found = ClassProbabilities.fitted(
            np.array([[9.0, 0.0]]), np.array([0]), np.array([[-np.inf, 0.0], [1.0, 0]])
        )
        chances = found.of_classes(np.array([[1.0, 0.0]]))
        assert 0.5 < chances[0, 0] < 1.0 - 1e-9

    def test_the_unknown_follow_the_largest_score(self):
        rng = np.random.default_rng(0)
        scores = rng.normal(size=(500, 4))
        scores[:, 0] += 6.0
        strangers = rng.normal(size=(500, 4))
        strangers[np.arange(500), rng.integers(4, size=500)] = -np.inf
        found = ClassProbabilities.fitted(scores, np.zeros(500, int), strangers)
        known, unknown = (found.of_unknown(rows, 0.5) for rows in (scores, strangers))
        assert known.mean() < 0.1
        assert unknown.mean() > 0.9
        # Odds grow with those of the prior.
        odds = [p / (1 - p) for p in (found.of_unknown(scores, q) for q in (0.5, 0.9))]
        np.testing.assert_allclose(odds[1], 9.0 * odds[0], rtol=1e-6)

    @settings(max_examples=60, deadline=None)
    @given(
        n_samples=st.integers(0, 6),
        n_classes=st.integers(1, 5),
        size=st.sampled_from([0.0, 1e-8, 1.0, 1e4]),
        seed=st.integers(0, 999),
    )
    def test_any_scores_have_probabilities(self, n_samples, n_classes, size, seed):
        rng = np.random.default_rng(seed)
        scores = size * rng.normal(size=(n_samples, n_classes))
        classes = rng.integers(n_classes, size=n_samples)
        strangers = scores.copy()
        strangers[np.arange(n_samples), classes] = -np.inf
        if n_classes == 1:
            strangers = strangers[:0]
        found = ClassProbabilities.fitted(scores, classes, strangers)
        assert found.slope > 0.0
        assert found.unknown_slope > 0.0
        for extreme in (scores, np.full((1, n_classes), 1e9), -1e9 * np.eye(n_classes)):
            chances = found.of_classes(extreme)
            unknown = found.of_unknown(extreme, 0.3)
            np.testing.assert_allclose(chances.sum(axis=1), 1.0)
            assert ((chances >= 0.0) & (chances <= 1.0)).all()
            assert ((unknown >= 0.0) & (unknown <= 1.0)).all()


SIZES = {
    "equal": [4] * 6,
    "two each": [2] * 8,
    "unequal": [1, 7, 2, 1, 4, 3],
    "one each": [1] * 5,
    "two classes": [4, 3],
    "two samples": [1, 1],
}


@pytest.mark.parametrize("rule", ["max", "cosine"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_probabilities_add_up_and_agree_with_the_decision(sizes, rule):
    # Two centred samples would be x and -x, which have the same quadratic features.
    X, y = make_data(sizes, 20, noise=0.8, centre=False)
    new, _ = make_data([5] * len(sizes), 20, noise=0.8, centre=False, seed=1)
    grid = {"rhos": [0.5], "lams": [0.1], "widths": [16.0]}
    models = [
        DualQMLW(rule=rule),
        DualQMLWCV(rules=[rule], random_state=0, **grid),
        DualQMLClassifier(rule=rule, probability=True, lam_scale="auto"),
    ]
    for model in models:
        model.fit(X, y)
        chances = model.predict_proba(new)
        assert chances.shape == (len(new), len(sizes))
        np.testing.assert_allclose(chances.sum(axis=1), 1.0)
        assert (chances >= 0.0).all()
        np.testing.assert_array_equal(
            model.classes_[chances.argmax(axis=1)], model.predict(new)
        )
        scores = model.class_scores(new)
        np.testing.assert_array_equal(np.argsort(scores), np.argsort(chances))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("rule", "kind"), [("max", "equal"), ("max", "unequal"), ("cosine", "equal")]
)
def test_probabilities_of_digits_are_calibrated(rule, kind, seed):
    rng = np.random.default_rng(seed)
    counts = np.full(10, 6) if kind == "equal" else rng.permutation([2] * 5 + [10] * 5)
    order = rng.permutation(NUMBERS.size)
    train = np.concatenate(
        [order[NUMBERS[order] == c][:n] for c, n in enumerate(counts)]
    )
    test = np.setdiff1d(order, train)
    model = DualQMLW(rho=1.0, rule=rule).fit(DIGITS[train], NUMBERS[train])
    chances = model.predict_proba(DIGITS[test])
    right = chances.argmax(axis=1) == NUMBERS[test]
    # On average, as sure as it is right.
    assert abs(chances.max(axis=1).mean() - right.mean()) < 0.12
    loss = log_loss(NUMBERS[test], chances)
    # To be more sure, or less, would be worse.
    sharp = model.probabilities_.slope * model.class_scores(DIGITS[test])
    for factor in (0.3, 4.0):
        assert log_loss(NUMBERS[test], softmax(factor * sharp, axis=1)) > 1.3 * loss
    brier = np.mean(np.sum((chances - np.eye(10)[NUMBERS[test]]) ** 2, axis=1))
    assert brier < 0.35


def test_two_samples_each_are_as_sure_as_right():
    """A left-out sample leaves one, with which nobody could be as sure."""
    sure, right = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        centres = rng.normal(size=(40, 60))
        y, y_new = np.repeat(np.arange(40), 2), np.repeat(np.arange(40), 20)
        X, new = (
            centres[codes] + 1.4 * rng.normal(size=(codes.size, 60))
            for codes in (y, y_new)
        )
        model = DualQMLW(rho=2.0, rule="max", kernel="linear").fit(X, y)
        sure.append(model.predict_proba(new).max(axis=1).mean())
        right.append(model.score(new, y_new))
    assert np.mean(sure) == pytest.approx(np.mean(right), abs=0.09)


@pytest.mark.parametrize("rule", ["max", "cosine"])
def test_digits_that_were_not_seen_are_unknown_more_often(rule):
    known = NUMBERS < 8
    train = np.flatnonzero(known)[:160]
    test = np.flatnonzero(known)[160:600]
    model = DualQMLW(rho=1.0, rule=rule).fit(DIGITS[train], NUMBERS[train])
    of_known = model.predict_unknown_proba(DIGITS[test])
    of_others = model.predict_unknown_proba(DIGITS[~known])
    # The chance that a stranger is more unknown than an acquaintance.
    pairs = of_others[:, None] > of_known
    assert pairs.mean() > (0.85 if rule == "max" else 0.75)
    assert of_others.mean() > of_known.mean() + 0.2
    rare = model.predict_unknown_proba(DIGITS[test], prior=0.01)
    assert (rare < of_known).all()


@pytest.mark.parametrize("prior", [0.0, 1.0, -0.1, 1.5, np.nan])
def test_a_prior_is_between_zero_and_one(prior):
    X, y = make_data([3] * 4, 10)
    model = DualQMLW().fit(X, y)
    with pytest.raises(ValueError, match="prior must be between 0 and 1"):
        model.predict_unknown_proba(X, prior=prior)


@pytest.mark.parametrize(
    "model",
    [
        DualQMLClassifier(lam_scale="auto"),
        DualQMLClassifierCV(lams=[1.0], cv=2, lam_scale="auto"),
    ],
)
def test_without_probability_there_is_no_predict_proba(model):
    X, y = make_data([3] * 4, 10)
    model.fit(X, y)
    assert not hasattr(model, "predict_proba")
    assert model.probabilities_ is None
    model.set_params(probability=True)
    with pytest.raises(AttributeError, match="when the model was fitted"):
        model.predict_proba(X)
    model.fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    decided = model.classes_[model.predict_proba(X).argmax(axis=1)]
    np.testing.assert_array_equal(decided, model.predict(X))


def test_probabilities_change_no_decision():
    X, y = make_data([3] * 6, 20, noise=1.0)
    plain, with_probability = (
        DualQMLClassifier(2.0, probability=chosen).fit(X, y) for chosen in (False, True)
    )
    assert plain.decision_function(X).tobytes() == (
        with_probability.decision_function(X).tobytes()
    )


def test_one_class_and_a_background_have_a_stranger():
    others = Background.from_samples(*make_vectors(30, 4, size=20, noise=0.4, seed=5))
    X, y = make_vectors(2, 4, size=20, noise=0.4)
    model = DualQMLW(rule="max", rho=1.0, background=others).fit(X[:3], y[:3])
    np.testing.assert_array_equal(model.predict_proba(X), np.ones((8, 1)))
    unknown = model.predict_unknown_proba(X)
    assert unknown[3] < unknown[4:].min()
