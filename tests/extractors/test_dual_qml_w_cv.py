import numpy as np
import pytest
from scipy.linalg import fractional_matrix_power
from scipy.spatial.distance import cdist, pdist
from sklearn.datasets import load_digits

from dualqml import DualQMLW, DualQMLWCV
from dualqml.extractors import NearestSample
from dualqml.extractors.dual_qml_w import _preferred_rule
from dualqml.extractors.methods import make_method
from dualqml.extractors.tuning import recognition_folds
from tests.datasets import load_samples, split
from tests.problems import make_data

X, y = make_data([3] * 8, 12, noise=0.8, centre=False)
NEW, _ = make_data([2] * 8, 12, noise=0.8, centre=False, seed=1)

RHOS, LAMS, RULES = (0.1, 3.0), (0.1, 1.0), ("cosine", "max")
SMALL = {"rhos": RHOS, "lams": LAMS, "widths": (16.0,)}


def slow_coordinates(kernel, known, asked, bandwidth):
    """Coordinates of two sets of rows that are learnt from the first."""
    if kernel == "linear":
        centred = known - known.mean(axis=0)
        _, s, Vt = np.linalg.svd(centred, full_matrices=False)
        basis = Vt[s > 1e-7 * s[0]].T
        return centred @ basis, (asked - known.mean(axis=0)) @ basis

    def values(rows):
        return np.exp(-cdist(rows, known, "sqeuclidean") / (2.0 * bandwidth))

    J = np.eye(len(known)) - 1.0 / len(known)
    U, s, _ = np.linalg.svd(J @ values(known) @ J)
    projector = U[:, s > 1e-9 * s[0]] / np.sqrt(s[s > 1e-9 * s[0]])
    return (
        J @ values(known) @ J @ projector,
        (values(asked) - values(known).mean(axis=0)) @ J @ projector,
    )


def slow_metric(training, codes, rho):
    """S_rho^(-1/2), as a full matrix."""
    size = training.shape[1]
    S = np.zeros((size, size))
    for c in np.unique(codes):
        rows = training[codes == c] - training[codes == c].mean(axis=0)
        S += rows.T @ rows
    S = S / np.trace(S) + rho * np.eye(size) / size
    return fractional_matrix_power(S, -0.5).real


def slow_filter(Z, codes, c, lam):
    """The surrogate filter of a class, from its optimality conditions."""
    own, others = Z[codes == c], Z[codes != c]
    n_own, size = own.shape
    hessian = 2.0 * (lam * others.T @ others + np.eye(size))
    system = np.block([[hessian, -own.T], [own, np.zeros((n_own, n_own))]])
    return np.linalg.solve(system, np.append(np.zeros(size), np.ones(n_own)))[:size]


def slow_scores(rule, training, probe, codes):
    if rule == "max":
        return probe
    profiles = training.copy()
    for i, c in enumerate(codes):
        profiles[i, c] *= 0.5
    mean = profiles.mean(axis=0)
    cosines = np.array(
        [
            np.dot(row - mean, probe - mean)
            / (np.linalg.norm(row - mean) * np.linalg.norm(probe - mean))
            for row in profiles
        ]
    )
    return np.array([cosines[codes == c].max() for c in range(probe.size)])


def slow_losses(rows, codes, kernel):
    """Log rank in each gallery, by rule, rho, lam and probe, one at a time."""
    bandwidth = 16.0 * np.median(pdist(rows, "sqeuclidean"))
    losses = {}
    for fold in recognition_folds(codes, 0):
        galleries = fold.galleries
        assert len(galleries) == 2
        known, asked = slow_coordinates(
            kernel, rows[fold.train], rows[fold.held_out], bandwidth
        )
        for i, rho in enumerate(RHOS):
            metric = slow_metric(known, codes[fold.train], rho)
            whitened, probes = (
                part @ metric / np.linalg.norm(part @ metric, axis=1, keepdims=True)
                for part in (known, asked)
            )
            for g, gallery in enumerate(galleries):
                Z, own = whitened[np.isin(fold.train, gallery)], codes[gallery]
                for j, lam in enumerate(LAMS):
                    W = np.array([slow_filter(Z, own, c, lam) for c in range(8)])
                    for probe, true in zip(probes, codes[fold.held_out], strict=True):
                        for r, rule in enumerate(RULES):
                            scores = slow_scores(rule, Z @ W.T, W @ probe, own)
                            rank = 1 + np.sum(np.delete(scores, true) >= scores[true])
                            losses.setdefault((g, r, i, j), []).append(np.log(rank))
    return np.array([losses[key] for key in sorted(losses)]).reshape(2, 2, 2, 2, -1)


# Problems at which another way to choose would choose something else.
@pytest.mark.parametrize(
    ("kernel", "seed", "other_way"),
    [
        ("linear", 1, "cell by the first"),
        ("rbf", 36, "cell by the first"),
        ("linear", 12, "cell by the second"),
        ("rbf", 18, "cell by the second"),
    ],
)
def test_the_choice_is_that_of_a_slow_loop(kernel, seed, other_way):
    rows, codes = make_data([3] * 8, 12, noise=0.8, centre=False, seed=seed)
    by_probe = slow_losses(rows, codes, kernel)
    losses = by_probe.mean(axis=-1)
    both = losses.mean(axis=0)
    # The rule by the first galleries, rho and lam by both. "max" unless "cosine"
    # is better by more than a standard error.
    cosine, largest = (
        by_probe[0, r].reshape(4, -1)[losses[0, r].argmin()] for r in range(2)
    )
    gain = largest - cosine
    rule = 0 if gain.mean() > gain.std() / np.sqrt(gain.size) else 1
    cell = both[rule].argmin()
    others = {
        "cell by the first": losses[0, rule].argmin() != cell,
        "cell by the second": losses[1, rule].argmin() != cell,
    }
    assert others[other_way]
    model = DualQMLWCV(random_state=0, **SMALL, kernel=kernel).fit(rows, codes)
    assert model.cv_losses_.shape == (2, 2, 2)
    np.testing.assert_allclose(model.cv_losses_, both, atol=1e-12)
    assert model.best_rule_ == RULES[rule]
    i, j = divmod(int(cell), 2)
    assert (model.best_rho_, model.best_lam_) == (RHOS[i], LAMS[j])


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_the_best_parameters_give_the_same_classifier(kernel):
    model = DualQMLWCV(random_state=0, **SMALL, kernel=kernel).fit(X, y)
    assert model.best_params_ == {
        "rule": model.best_rule_,
        "rho": model.best_rho_,
        "lam": model.best_lam_,
        "width": model.best_width_,
    }
    exact = DualQMLW(**model.best_params_, kernel=kernel).fit(X, y)
    np.testing.assert_array_equal(
        model.decision_function(NEW), exact.decision_function(NEW)
    )
    assert set(model.qml_.status_) == {"optimal"}


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "linear", "own_weight": 1.0, "tol": 1e-8},
        {"image_shape": (3, 4), "kappa": 0.5},
        {"descriptor": "local", "image_shape": (3, 4)},
    ],
)
def test_options_reach_the_final_model(options):
    model = DualQMLWCV(random_state=0, **SMALL, **options).fit(X, y)
    exact = DualQMLW(
        rho=model.best_rho_, lam=model.best_lam_, rule=model.best_rule_, **options
    )
    np.testing.assert_array_equal(
        model.decision_function(NEW), exact.fit(X, y).decision_function(NEW)
    )


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_folds_know_the_motions_of_images(kernel):
    rows, still, moving, wider = (
        DualQMLWCV(random_state=0, **SMALL, kernel=kernel, **options)
        .fit(X, y)
        .cv_losses_
        for options in (
            {},
            {"image_shape": (3, 4), "kappa": 0.0},
            {"image_shape": (3, 4), "kappa": 0.8},
            {"image_shape": (2, 6), "kappa": 0.8},
        )
    )
    np.testing.assert_array_equal(rows, still)
    assert (moving != still).any()
    assert (moving != wider).any()


@pytest.mark.parametrize("image_shape", [None, (3, 4)])
def test_n_jobs_does_not_change_a_bit(image_shape):
    alone, together = (
        DualQMLWCV(random_state=0, **SMALL, image_shape=image_shape, n_jobs=n_jobs).fit(
            X, y
        )
        for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(alone.cv_losses_, together.cv_losses_)
    np.testing.assert_array_equal(
        alone.decision_function(NEW), together.decision_function(NEW)
    )


def test_the_folds_depend_on_the_random_state_only():
    first, again, other = (
        DualQMLWCV(**SMALL, random_state=seed).fit(X, y).cv_losses_
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    state = DualQMLWCV(**SMALL, random_state=np.random.RandomState(3)).fit(X, y)
    np.testing.assert_array_equal(state.cv_losses_, first)


@pytest.mark.parametrize("rule", RULES)
def test_a_single_rule_is_respected(rule):
    both = DualQMLWCV(random_state=0, **SMALL).fit(X, y)
    model = DualQMLWCV(random_state=0, **SMALL, rules=(rule,)).fit(X, y)
    assert model.best_rule_ == model.qml_.rule == rule
    np.testing.assert_array_equal(
        model.cv_losses_[0], both.cv_losses_[RULES.index(rule)]
    )


def test_the_last_rule_is_taken_unless_another_is_clearly_better():
    rng = np.random.default_rng(0)
    losses = np.ones((2, 2, 3, 200)) + 0.1 * rng.normal(size=(2, 2, 3, 200))
    assert _preferred_rule(losses) == 1
    losses[0, 1, 2] -= 0.2
    assert _preferred_rule(losses) == 0
    losses[1, 0, 0] -= 0.2
    assert _preferred_rule(losses) == 1


def test_other_widths_are_tried_about_the_choice():
    rhos = (0.01, 0.1, 1.0, 10.0)
    first = DualQMLWCV(random_state=0, rhos=rhos, lams=LAMS, widths=(16.0,)).fit(X, y)
    second = DualQMLWCV(random_state=0, rhos=rhos, lams=LAMS, widths=(0.2,)).fit(X, y)
    model = DualQMLWCV(random_state=0, rhos=rhos, lams=LAMS, widths=(16.0, 0.2)).fit(
        X, y
    )
    rule = RULES.index(first.best_rule_)
    i, j = rhos.index(first.best_rho_), LAMS.index(first.best_lam_)
    nearby = second.cv_losses_[rule, max(i - 1, 0) : i + 2, j]
    np.testing.assert_array_equal(model.cv_losses_, first.cv_losses_)
    assert (model.best_rule_, model.best_lam_) == (first.best_rule_, first.best_lam_)
    if nearby.min() < first.cv_losses_[rule, i, j]:
        chosen = (0.2, rhos[max(i - 1, 0) + nearby.argmin()])
    else:
        chosen = (16.0, first.best_rho_)
    assert (model.best_width_, model.best_rho_) == chosen


def test_results_list_all_candidates_with_minus_their_loss():
    model = DualQMLWCV(random_state=0, **SMALL).fit(X, y)
    results = model.cv_results_
    assert results["params"] == [
        {"rule": rule, "rho": rho, "lam": lam, "width": 16.0}
        for rule in RULES
        for rho in RHOS
        for lam in LAMS
    ]
    np.testing.assert_array_equal(results["mean_test_score"], -model.cv_losses_.ravel())
    # Equal losses share a rank, as in scikit-learn.
    losses = model.cv_losses_.ravel()
    ranks = [1 + np.sum(losses < loss) for loss in losses]
    np.testing.assert_array_equal(results["rank_test_score"], ranks)


def test_the_best_score_is_minus_the_lowest_loss_of_the_best_rule():
    rhos = (0.01, 0.1, 1.0, 10.0)
    for widths in ((16.0,), (16.0, 0.2), (0.2, 16.0)):
        model = DualQMLWCV(random_state=0, rhos=rhos, lams=LAMS, widths=widths)
        results = model.fit(X, y).cv_results_
        scores = [
            score
            for params, score in zip(
                results["params"], results["mean_test_score"], strict=True
            )
            if params["rule"] == model.best_rule_
        ]
        assert model.best_score_ == max(scores)
        chosen = results["params"].index(model.best_params_)
        assert results["mean_test_score"][chosen] == model.best_score_
        # With other widths only values of rho next to the chosen one are tried.
        others = [p for p in results["params"] if p["width"] != widths[0]]
        assert len(others) in ({0} if len(widths) == 1 else {2, 3})


def test_the_order_of_the_grids_is_that_of_the_losses():
    forward = DualQMLWCV(random_state=0, **SMALL).fit(X, y)
    backward = DualQMLWCV(
        random_state=0,
        rhos=list(RHOS[::-1]),
        lams=np.array(LAMS[::-1]),
        rules=["max", "cosine"],
    ).fit(X, y)
    np.testing.assert_allclose(
        backward.cv_losses_, forward.cv_losses_[::-1, ::-1, ::-1], atol=1e-12
    )


def test_labels_of_any_type_come_back():
    names = np.array([f"person {i}" for i in range(8)])
    model = DualQMLWCV(random_state=0, **SMALL).fit(X, names[y])
    np.testing.assert_array_equal(model.classes_, names)
    np.testing.assert_array_equal(
        model.predict(NEW),
        names[DualQMLWCV(random_state=0, **SMALL).fit(X, y).predict(NEW)],
    )


def test_two_classes_have_one_score():
    rows, labels = make_data([4, 4], 12, centre=False)
    model = DualQMLWCV(random_state=0, **SMALL).fit(rows, labels)
    scores = model.decision_function(rows)
    assert scores.shape == (8,)
    np.testing.assert_array_equal(model.predict(rows), (scores > 0).astype(int))
    np.testing.assert_array_equal(model.predict(rows), labels)


@pytest.mark.parametrize("rules", [("cosine", "max"), ("max", "cosine")])
def test_one_sample_per_class_takes_the_defaults_and_has_no_score(rules):
    rows, labels = make_data([1] * 6, 12, centre=False)
    model = DualQMLWCV(
        random_state=0, rhos=(0.3, 0.1), lams=(0.7, 0.1), rules=rules
    ).fit(rows, labels)
    assert model.cv_losses_ is None
    assert model.best_rule_ == rules[-1]
    assert model.best_lam_ == 0.7
    assert np.isnan(model.best_score_)
    assert model.cv_results_["params"] == [model.best_params_]
    np.testing.assert_array_equal(model.cv_results_["mean_test_score"], [np.nan])
    np.testing.assert_array_equal(model.cv_results_["rank_test_score"], [1])
    np.testing.assert_array_equal(model.predict(rows), labels)
    assert set(model.qml_.status_) == {"optimal"}


@pytest.mark.parametrize("sizes", [[1, 1, 2, 1], [2] * 5, [1, 7, 2, 3], [30, 30]])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_classes_of_all_sizes(sizes, kernel):
    rows, labels = make_data(sizes, 20, centre=False)
    model = DualQMLWCV(random_state=0, **SMALL, kernel=kernel).fit(rows, labels)
    assert np.isfinite(model.cv_losses_).all()
    assert set(model.qml_.status_) == {"optimal"}
    np.testing.assert_array_equal(model.predict(rows), labels)


@pytest.mark.parametrize(
    "values", [(), (1.0, 0.0), (-1.0,), ((1.0, 2.0),), (np.nan,), 0.1, (np.inf,), ["a"]]
)
@pytest.mark.parametrize("name", ["rhos", "lams", "widths"])
def test_invalid_grids_are_errors_that_name_them(name, values):
    with pytest.raises(ValueError, match=name):
        DualQMLWCV(random_state=0, **{name: values}).fit(X, y)


@pytest.mark.parametrize("rules", [(), ("min",), ("max", "min"), [["max"]], "max"])
def test_invalid_rules_are_errors_that_name_them(rules):
    with pytest.raises(ValueError, match="rules"):
        DualQMLWCV(random_state=0, rules=rules).fit(X, y)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("image_shape", [None, (3, 4)])
def test_a_row_of_zeros_does_no_harm(kernel, image_shape):
    rows = X.copy()
    rows[4] = 0.0
    model = DualQMLWCV(
        random_state=0, **SMALL, kernel=kernel, image_shape=image_shape
    ).fit(rows, y)
    assert np.isfinite(model.cv_losses_).all()
    assert np.isfinite(model.decision_function(rows)).all()
    assert set(model.qml_.status_) == {"optimal"}


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_copies_within_and_across_classes_do_no_harm(kernel):
    rows = X.copy()
    rows[1] = rows[0]
    rows[10] = rows[11] = rows[9]  # a class of copies only
    rows[6] = rows[3]
    model = DualQMLWCV(random_state=0, **SMALL, kernel=kernel).fit(rows, y)
    assert np.isfinite(model.cv_losses_).all()
    assert set(model.qml_.status_) == {"optimal"}
    apart = ~np.isin(y, [1, 2])
    np.testing.assert_array_equal(model.predict(rows)[apart], y[apart])


def test_digits_are_read_about_as_well_as_by_the_nearest_sample():
    # Not better: over eight splits both are right in 91.2 %.
    digits, labels = load_digits(return_X_y=True)
    ours, nearest = [], []
    for seed in range(4):
        known, asked = split(labels, 10, seed)
        model = DualQMLWCV(random_state=0, image_shape=(8, 8)).fit(
            digits[known], labels[known]
        )
        assert set(model.qml_.status_) == {"optimal"}
        ours.append(model.score(digits[asked], labels[asked]))
        simple = NearestSample().fit(digits[known], labels[known])
        nearest.append(simple.score(digits[asked], labels[asked]))
    assert np.mean(ours) > 0.9
    assert np.mean(ours) > np.mean(nearest) - 0.01


def test_embeddings_of_many_samples_and_few_features():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 10)
    centres = rng.normal(size=(40, 16))
    rows, new = (centres[labels] + 0.35 * rng.normal(size=(400, 16)) for _ in range(2))
    model = DualQMLWCV(random_state=0, **SMALL, kernel="linear", n_jobs=1).fit(
        rows, labels
    )
    assert model.metric_.transform(rows).shape == (400, 16)
    assert set(model.qml_.status_) == {"optimal"}
    assert model.score(new, labels) > 0.95


@pytest.mark.realdata("ar")
def test_the_error_on_ar_is_well_below_that_of_the_paper():
    pixels, labels = load_samples("ar")
    train, test = split(labels, 2, seed=7000)

    def error(name, **options):
        model = make_method(name, **options).fit(pixels[train], labels[train])
        return 100.0 * (1.0 - model.score(pixels[test], labels[test]))

    ours = error("DualQML-W", image_shape=(32, 32))
    assert ours <= 9.5
    assert ours < error("DualQML")
