"""The choice of a recogniser's parameters, against a loop and on made-up data."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml._linalg import class_means, unit_rows
from dualqml.extractors import Background, WithinMetric
from dualqml.extractors._leave_one_out import make_contest
from dualqml.extractors.open_set_search import (
    CosineScale,
    LeftOutScores,
    OpenSetGrid,
    OpenSetParameters,
    _Search,
    _system_of_samples,
    search_open_set,
)
from dualqml.extractors.prepared_samples import PreparedSamples
from tests.problems import make_data

USUAL = OpenSetParameters(2.5, 0.2, 1.0)
WIDE = OpenSetGrid(
    rhos=(0.5, 2.5, 12.5),
    lams=(0.1, 0.4),
    cosine_weights=(0.0, 0.3, 1.0, 2.5, 6.0),
    background_weights=(0.0,),
    usual=USUAL,
)
METRIC = WithinMetric(kernel="linear")


def grid_of(rho, lam, cosine_weight, background_weight=0.0):
    only = OpenSetParameters(rho, lam, cosine_weight, background_weight)
    return OpenSetGrid((rho,), (lam,), (cosine_weight,), (background_weight,), only)


def search(X, y, grid=WIDE, metric=METRIC):
    samples = PreparedSamples(unit_rows(X), None, X.shape[1])
    return search_open_set(metric, samples, y, grid)


def left_out_scores(X, y, rho, lam, weight):
    """Scores as candidates are compared, without the corrections of the final ones."""
    samples = PreparedSamples(unit_rows(X), None, X.shape[1])
    system_of = partial(_system_of_samples, METRIC, samples, y)
    found = _Search(METRIC, samples, y, make_contest(y, None), system_of)
    return found.parts(0.0, rho, lam).joined(weight)


def metric_of(inputs, codes, left_out, scale, rho, n_directions, extra=None):
    """S_w of all samples but some, in the scale of that of all, plus the prior."""
    S = rho / n_directions * np.eye(inputs.shape[1])
    for c in np.unique(codes):
        own = inputs[(codes == c) & ~left_out]
        if len(own):
            deviations = own - own.mean(axis=0)
            S += scale**2 * deviations.T @ deviations
    return S


def slow_scores(X, codes, rho, lam, weight):
    """Scores of all left-out samples and people, with dense matrices.

    As the closed form does, filters of other classes keep the weights that they have
    with everyone. The mean of the gallery stays. What it would change is added.
    """
    inputs = unit_rows(X)
    A = inputs - inputs.mean(axis=0)
    _, s, Vt = np.linalg.svd(A, full_matrices=False)
    A = A @ Vt[s > 1e-9 * s[0]].T
    n, d = A.shape
    everyone = np.zeros(n, dtype=bool)
    n_classes = codes.max() + 1
    within = metric_of(A, codes, everyone, 1.0, 0.0, d)
    scale = 1.0 / np.sqrt(np.trace(within))
    S = metric_of(A, codes, everyone, scale, rho, d)
    lengths = np.sqrt(np.einsum("ij,ij->i", A @ np.linalg.inv(S), A))
    Z = A / lengths[:, None]

    def inverse(metric, gallery):
        return np.linalg.inv(Z[gallery].T @ Z[gallery] + metric / lam)

    R = inverse(S, ~everyone)
    weights = []
    for c in range(n_classes):
        own = Z[codes == c]
        weights.append(np.linalg.solve(own @ R @ own.T, np.ones(len(own))) @ own)
    means = np.array([unit_rows(inputs[codes == c].sum(axis=0)[None])[0]
                      for c in range(n_classes)])  # fmt: skip
    pairs = np.array([inputs[i] @ means[c] for i in range(n) for c in range(n_classes)
                      if c != codes[i]])  # fmt: skip

    def cosine(value):
        # Five people are few: at least the spread of any directions.
        least = (1.0 - pairs.mean()) / np.sqrt(inputs.shape[1])
        return (value - pairs.mean()) / max(pairs.std(), least)

    samples, people = [], []
    for i in range(n):
        c = codes[i]
        # The person is left out: a stranger.
        gone = codes == c
        M = metric_of(A, codes, gone, scale, rho, d)
        Q = inverse(M, ~gone)
        norm = np.sqrt(Z[i] @ np.linalg.solve(M, Z[i]))
        share = gone.sum() / (n - gone.sum())
        shift = share * (0.5 + 0.5 / gone.sum())
        row = [w @ Q @ Z[i] / norm + shift for w in weights]
        row[c] = -np.inf
        people.append((row, [cosine(inputs[i] @ mean) for mean in means]))
        # The sample is left out.
        gone = np.arange(n) == i
        M = metric_of(A, codes, gone, scale, rho, d)
        Q = inverse(M, ~gone)
        norms = np.sqrt(np.einsum("ij,ij->i", Z @ np.linalg.inv(M), Z))
        row = [w @ Q @ Z[i] / norms[i] for w in weights]
        own = (codes == c) & ~gone
        solved = np.linalg.solve(Z[own] @ Q @ Z[own].T, norms[own])
        row[c] = solved @ Z[own] @ Q @ Z[i] / norms[i]
        cosines = [cosine(inputs[i] @ mean) for mean in means]
        rest = unit_rows(inputs[own].sum(axis=0)[None])[0]
        cosines[c] = cosine(inputs[i] @ rest)
        samples.append((row, cosines))
    responses = np.array([row for row, _ in people])
    # Five people are few: at least the spread of any directions.
    spread = max(responses[np.isfinite(responses)].std(), X.shape[1] ** -0.5)
    sums = [
        np.array([np.array(r) / spread + weight * np.array(q) for r, q in trials])
        for trials in (samples, people)
    ]
    of_strangers = sums[1][np.isfinite(sums[1])]
    mean, scale = max(of_strangers.mean(), 0.0), max(of_strangers.std(), 1.0)
    return spread, *((scores - mean) / scale for scores in sums)


@pytest.mark.parametrize("weight", [0.0, 0.7])
@pytest.mark.parametrize(("rho", "lam"), [(0.5, 0.1), (5.0, 1.0)])
def test_scores_are_those_of_a_loop(rho, lam, weight):
    # Four samples each: no fair galleries.
    X, y = make_data([4] * 5, 12, noise=0.4, centre=False, unit=False)
    found = left_out_scores(X, y, rho, lam, weight)
    spread, mated, strangers = slow_scores(X, y, rho, lam, weight)
    assert found.spread == pytest.approx(spread, rel=1e-6)
    # Samples come slot after slot, and people one after the other.
    order = np.arange(20).reshape(5, 4).T.ravel()
    own = mated[np.arange(20), y]
    np.testing.assert_allclose(found.own, own[order], atol=1e-5)
    mated[np.arange(20), y] = -np.inf
    np.testing.assert_allclose(found.others, mated.max(axis=1)[order], atol=1e-5)
    np.testing.assert_allclose(found.strangers, strangers, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    n_samples=st.integers(1, 8),
    n_strangers=st.integers(1, 8),
    seed=st.integers(0, 999),
)
def test_losses_are_rates_of_a_loop(n_samples, n_strangers, seed):
    rng = np.random.default_rng(seed)
    own, others = rng.integers(0, 6, size=(2, n_samples)).astype(float)
    strangers = rng.integers(0, 6, size=(n_strangers, 3)).astype(float)
    strangers[:, 0] = -np.inf
    found = LeftOutScores(own, others, strangers, 1.0, 0.0, 1.0).losses
    for k in range(n_samples):
        alarms = sum(max(row) >= own[k] for row in strangers)
        rate = (1 + alarms) / (1 + n_strangers)
        expected = np.log(rate) if own[k] > others[k] else 0.0
        assert found[k] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("each", [2, 3, 5])
def test_the_choice_does_not_depend_on_the_names(each):
    X, y = make_data([each] * 9, 20, noise=1.0, unit=False)
    first, again = search(X, y), search(X, y)
    assert first.parameters == again.parameters
    scores = first.scores(0.0)
    assert scores.strangers.tobytes() == again.scores(0.0).strangers.tobytes()
    names = np.random.default_rng(0).permutation(9)
    renamed = search(X, names[y])
    for name, value in vars(first.parameters).items():
        other = getattr(renamed.parameters, name)
        assert other == pytest.approx(value, rel=1e-6, abs=1e-6), name
    assert np.sort(renamed.scores(0.0).own) == pytest.approx(np.sort(scores.own))


@pytest.mark.parametrize("sizes", [[3] * 6, [1, 4, 2, 3, 1, 5], [2] * 8])
def test_a_single_candidate_is_the_choice(sizes):
    X, y = make_data(sizes, 20, unit=False)
    found = search(X, y, grid_of(0.7, 0.3, 1.5))
    for name, value in vars(OpenSetParameters(0.7, 0.3, 1.5, 0.0)).items():
        assert getattr(found.parameters, name) == pytest.approx(value, rel=1e-12)
    scores = found.scores(0.0)
    assert np.isfinite(scores.own).all()
    assert scores.strangers.shape[1] == len(sizes)


def test_if_nothing_can_be_left_out_the_usual_is_chosen():
    X, y = make_data([1] * 6, 20, unit=False)
    found = search(X, y)
    assert found.parameters == USUAL
    scores = found.scores(0.0)
    assert scores.own.size == 0
    assert scores.strangers.shape == (6, 6)
    assert (np.diag(scores.strangers) == -np.inf).all()
    X, y = make_data([3, 3], 20, unit=False)
    two = search(X, y)
    assert two.parameters == USUAL
    assert two.scores is None


def test_fair_galleries_have_one_sample_less_of_each():
    """With two samples each, every score is that of single samples."""
    assert make_contest(np.repeat(np.arange(6), 2), None).has_fair_gallery
    X, y = make_data([2] * 6, 20, unit=False)
    found = left_out_scores(X, y, 1.0, 0.2, 0.0)
    # Both slots are left out: each sample once, and each stranger twice.
    assert found.own.shape == (12,)
    assert found.strangers.shape == (24, 6)
    # The final scores are those of the whole gallery.
    final = search(X, y, grid_of(1.0, 0.2, 0.0)).scores(0.0)
    assert final.own.shape == (12,)
    assert final.strangers.shape == (12, 6)


def test_the_energy_of_further_directions_is_added():
    X, y = make_data([3] * 8, 20, unit=False)
    scores = search(X, y, grid_of(1.0, 0.2, 0.0)).scores
    # Matrices of rank one have about the energy of filters, and others more.
    assert scores(0.0).spread == pytest.approx(scores(1e-9).spread)
    assert scores(0.5).spread > 1.5 * scores(0.0).spread


def people_with_common_mean(rng, mean):
    """People whose raw cosines are all near 1, as their common mean is large."""
    codes = np.repeat(np.arange(30), 4)
    nuisance = rng.normal(size=(3, 40))
    X = rng.normal(size=(30, 40))[codes] + 0.5 * rng.normal(size=(120, 40))
    # What varies most within people is not about them.
    return X + 4.0 * rng.normal(size=(120, 3)) @ nuisance + mean, codes


def strangers_like_nobody(rng):
    """People whose cosines say all that there is about them."""
    codes = np.repeat(np.arange(30), 4)
    return rng.normal(size=(30, 30))[codes] + 0.9 * rng.normal(size=(120, 30)), codes


def test_the_weight_of_the_cosine_follows_its_use():
    useless, useful = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y = people_with_common_mean(rng, 5.0 * rng.normal(size=40))
        useless.append(search(X, y).parameters.cosine_weight)
        X, y = strangers_like_nobody(rng)
        useful.append(search(X, y).parameters.cosine_weight)
    assert max(useless) < 0.35
    assert min(useful) > 0.6


def made_up_people(rng, n_people, each, *, people_in, nuisance_in):
    """People who differ in some directions, and whose samples vary in others."""
    codes = np.repeat(np.arange(n_people), each)
    X = 0.3 * rng.normal(size=(codes.size, 60))
    X[:, people_in] += rng.normal(size=(n_people, 20))[codes]
    X[:, nuisance_in] += 1.5 * rng.normal(size=(codes.size, 20))
    return X + 0.5, codes


HERE, THERE = slice(0, 20), slice(20, 40)


@pytest.mark.parametrize("true", [True, False])
def test_a_background_is_used_if_it_is_about_such_people(true):
    chosen = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y = made_up_people(rng, 30, 3, people_in=HERE, nuisance_in=THERE)
        # A misleading one says that what tells people apart is not about them.
        sides = (HERE, THERE) if true else (THERE, HERE)
        others = Background.from_samples(
            *made_up_people(rng, 80, 4, people_in=sides[0], nuisance_in=sides[1])
        )
        metric = WithinMetric(kernel="linear", background=others)
        usual = OpenSetParameters(others.rho, others.lam, others.cosine_weight, 1.0)
        grid = OpenSetGrid(WIDE.rhos, WIDE.lams, WIDE.cosine_weights, (0.0, 1.0), usual)
        found = search(X, y, grid, metric).parameters
        chosen.append(found.background_weight)
    assert chosen == [1.0 if true else 0.0] * 3


@pytest.mark.parametrize("bounded", [False, True])
def test_cosines_from_sums_are_those_of_the_samples(bounded):
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(20), 3)
    units = unit_rows(0.5 + rng.normal(size=(60, 9)))
    means = unit_rows(class_means(units, codes)[0])
    cosines = units @ means.T
    others = cosines[codes[:, None] != np.arange(20)]
    found = CosineScale.of_sums(
        float(others.sum()),
        float(others @ others),
        n_samples=60,
        n_means=20,
        n_inputs=9,
        bounded=bounded,
    )
    expected = CosineScale.fitted(units, means, codes, bounded=bounded)
    assert found.mean == pytest.approx(expected.mean, rel=1e-12)
    assert found.spread == pytest.approx(expected.spread, rel=1e-10)
    assert found.mean == pytest.approx(others.mean(), rel=1e-12)
