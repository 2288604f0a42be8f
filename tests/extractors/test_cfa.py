import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils._param_validation import InvalidParameterError

from dualqml._linalg import span_pca, unit_rows
from dualqml.exceptions import DualQMLError
from dualqml.extractors.cfa import (
    CFA,
    oeotf_filters,
    otf_filters,
    regression_filters,
    trade_off,
)
from tests.problems import make_data

SHAPE = (5, 7)
# Positive, as pixels are, and of all norms.
X, y = make_data([3, 2, 4, 1, 3], 35, centre=False, unit=False)
X = X + 3.0
fresh = make_data([6, 6, 6, 6, 6], 35, seed=1, centre=False, unit=False)[0] + 3.0
images = unit_rows(X)
one_hot = np.eye(5)[y]


def otf(**options):
    return CFA(filter="otf", image_shape=SHAPE, **options)


def spectra_of(rows):
    return np.fft.fft2(rows.reshape(-1, *SHAPE), norm="ortho").reshape(rows.shape).T


def frequency_design(alpha, ridge):
    """Spectra, T, Gram matrix and filters by the formula, in complex numbers."""
    X_hat = spectra_of(images)
    power = np.mean(np.abs(X_hat) ** 2, axis=1)
    T = alpha * power / power.mean() + np.sqrt(1 - alpha**2)
    gram = X_hat.conj().T @ (X_hat / T[:, None])
    size = gram.shape[0]
    softened = gram + ridge * np.trace(gram) / size * np.eye(size)
    H = X_hat / T[:, None] @ np.linalg.solve(softened, one_hot)
    return X_hat, T, gram, H


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_otf_is_the_formula_of_the_frequency_domain(alpha, ridge):
    _, T, gram, H = frequency_design(alpha, ridge)
    assert np.abs(gram.imag).max() < 1e-12 * np.abs(gram).max()
    assert np.linalg.eigvalsh(gram.real).min() > 0
    spatial = np.fft.ifft2(H.T.reshape(-1, *SHAPE), norm="ortho")
    scale = np.abs(spatial).max()
    assert np.abs(spatial.imag).max() < 1e-10 * scale
    model = otf(alpha=alpha, ridge=ridge).fit(X, y)
    np.testing.assert_allclose(
        model.components_, spatial.real.reshape(5, -1), atol=1e-9 * scale
    )
    np.testing.assert_allclose(
        model.transform(fresh), (H.conj().T @ spectra_of(unit_rows(fresh))).real.T
    )
    np.testing.assert_allclose(trade_off(images, SHAPE, alpha).ravel(), T)


def test_otf_features_of_training_images_are_one_hot_without_ridge():
    model = otf(ridge=0).fit(X, y)
    np.testing.assert_allclose(model.transform(X), one_hot, atol=1e-10)
    assert np.abs(otf().fit(X, y).transform(X) - one_hot).max() > 1e-3


def test_otf_nearest_neighbour_is_the_largest_feature_without_ridge():
    model = otf(ridge=0).fit(X, y)
    features = model.transform(fresh)
    similarity = unit_rows(features) @ unit_rows(model.transform(X)).T
    nearest = y[similarity.argmax(axis=1)]
    np.testing.assert_array_equal(nearest, features.argmax(axis=1))


@pytest.mark.parametrize("alpha", [0.5, 0.9])
def test_otf_has_the_least_energy_of_the_filters_with_those_answers(alpha):
    T = trade_off(images, SHAPE, alpha).ravel()

    def cost(filters):
        return (T[:, None] * np.abs(spectra_of(filters.T)) ** 2).sum(axis=0)

    H = otf_filters(images, y, SHAPE, alpha, 0.0)
    rng = np.random.default_rng(0)
    other = rng.normal(size=(35, 5))
    other -= np.linalg.pinv(images) @ (images @ other)
    np.testing.assert_allclose(images @ (H + other), one_hot, atol=1e-10)
    for step in (1e-3, -1e-3, 1.0):
        assert (cost(H + step * other) > cost(H)).all()


def test_otf_without_energy_is_the_pseudoinverse():
    H = otf_filters(images, y, SHAPE, 0.0, 0.0)
    np.testing.assert_allclose(H, np.linalg.pinv(images) @ one_hot, atol=1e-10)


def test_otf_depends_on_the_shape_of_the_images():
    assert not np.allclose(
        otf().fit(X, y).components_,
        CFA(filter="otf", image_shape=(7, 5)).fit(X, y).components_,
    )


def test_otf_ignores_the_brightness_of_an_image_and_keeps_zeros():
    model = otf().fit(X, y)
    assert model.mean_ is None
    gains = np.linspace(0.1, 50, fresh.shape[0])[:, None]
    np.testing.assert_allclose(model.transform(gains * fresh), model.transform(fresh))
    dark = np.vstack([X, np.zeros(35)])
    fitted = otf().fit(dark, [*y, 0])
    np.testing.assert_array_equal(fitted.transform(np.zeros((1, 35))), np.zeros((1, 5)))
    assert np.isfinite(fitted.components_).all()


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (np.vstack([X, X[:1]]), [*y, 0]),
        (np.vstack([X, np.zeros(35)]), [*y, 0]),
        (X[:, :4], y),
    ],
    ids=["repeated", "zero", "more images than pixels"],
)
def test_otf_says_to_use_a_ridge_when_the_answers_are_impossible(rows, labels):
    with pytest.raises(DualQMLError, match="ridge > 0"):
        CFA(filter="otf", ridge=0).fit(rows, labels)
    features = CFA(filter="otf").fit(rows, labels).transform(rows)
    assert np.isfinite(features).all()


@pytest.mark.parametrize("row", range(13))
def test_otf_finds_a_repeated_image_that_rounding_hides(row):
    # Whether the factorisation notices depends on the last bit.
    with pytest.raises(DualQMLError, match="ridge > 0"):
        otf(ridge=0).fit(np.vstack([X, 3.7 * X[row]]), [*y, y[row]])


def test_otf_needs_some_power():
    with pytest.raises(DualQMLError, match="All images are zero"):
        otf().fit(np.zeros_like(X), y)
    striped = np.repeat(X[:, :5], 7, axis=1)
    with pytest.raises(DualQMLError, match="alpha below 1"):
        otf(alpha=1).fit(striped, y)


def test_one_dimensional_otf_is_a_regression_and_ignores_alpha():
    Z = span_pca(X).coordinates
    expected, *_ = np.linalg.lstsq(Z, one_hot, rcond=None)
    np.testing.assert_allclose(regression_filters(Z, y), expected, atol=1e-10)
    model = otf(mode="1d", energy=1.0).fit(X, y)
    np.testing.assert_allclose(model.transform(X), Z @ expected, atol=1e-10)
    for options in ({"alpha": 0.0}, {"alpha": 1.0}, {"ridge": 0.0}):
        other = otf(mode="1d", energy=1.0, **options).fit(X, y)
        np.testing.assert_array_equal(other.components_, model.components_)


@pytest.mark.parametrize("alpha", [0.3, 0.9])
def test_one_dimensional_otf_is_the_limit_of_a_vanishing_ridge(alpha):
    Z_hat = np.fft.fft(span_pca(X).coordinates, norm="ortho").T
    power = np.mean(np.abs(Z_hat) ** 2, axis=1)
    T = alpha * power / power.mean() + np.sqrt(1 - alpha**2)
    gram = Z_hat.conj().T @ (Z_hat / T[:, None])
    ridge = 1e-9 * np.trace(gram).real / y.size * np.eye(y.size)
    H = Z_hat / T[:, None] @ np.linalg.solve(gram + ridge, one_hot)
    model = otf(mode="1d", energy=1.0).fit(X, y)
    np.testing.assert_allclose(
        model.transform(X), (H.conj().T @ Z_hat).real.T, atol=1e-6
    )


def test_one_dimensional_otf_keeps_the_given_energy():
    ranks = [
        np.linalg.matrix_rank(otf(mode="1d", energy=e).fit(X, y).components_)
        for e in (0.3, 1.0)
    ]
    assert ranks[0] < ranks[1]


def direct_oeotf(Z, codes, alpha, transform=lambda rows: rows):
    """Every class by its own p x p matrix, from the samples of the others."""
    S = transform(Z).T
    power = np.mean(np.abs(S) ** 2)
    filters = []
    for c in range(codes.max() + 1):
        own, others = S[:, codes == c], S[:, codes != c]
        extra = others @ others.conj().T / others.shape[1]
        T = alpha * extra / power + np.sqrt(1 - alpha**2) * np.eye(S.shape[0])
        T_own = np.linalg.solve(T, own)
        answers = np.linalg.solve(own.conj().T @ T_own, np.ones(own.shape[1]))
        filters.append(T_own @ answers)
    return np.array(filters).T


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.99, 0.9999])
def test_oeotf_by_one_decomposition_is_the_direct_formula(alpha):
    Z = span_pca(X).coordinates
    fast, slow = oeotf_filters(Z, y, alpha), direct_oeotf(Z, y, alpha)
    np.testing.assert_allclose(fast, slow, atol=1e-7 * np.abs(slow).max())


def test_oeotf_of_spectra_has_the_same_features():
    pca = span_pca(X)
    fourier = lambda rows: np.fft.fft(rows, norm="ortho")  # noqa: E731
    H = direct_oeotf(pca.coordinates, y, 0.99, fourier)
    expected = (fourier((fresh - pca.mean) @ pca.basis) @ H.conj()).real
    np.testing.assert_allclose(CFA().fit(X, y).transform(fresh), expected, atol=1e-7)


@pytest.mark.parametrize("alpha", [0.0, 0.9, None])
def test_oeotf_answers_one_to_its_own_class(alpha):
    features = CFA(alpha=alpha).fit(X, y).transform(X)
    np.testing.assert_allclose(features[np.arange(y.size), y], 1.0, atol=1e-7)


def test_oeotf_answers_less_to_other_classes_the_larger_alpha():
    others = one_hot == 0
    energies = [
        np.square(CFA(alpha=alpha).fit(X, y).transform(X)[others]).sum()
        for alpha in (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999)
    ]
    assert (np.diff(energies) < 0).all()


def test_oeotf_without_energy_projects_on_the_own_samples():
    Z = span_pca(X).coordinates
    H = oeotf_filters(Z, y, 0.0)
    for c in range(5):
        own = Z[y == c]
        expected = own.T @ np.linalg.solve(own @ own.T, np.ones(len(own)))
        np.testing.assert_allclose(H[:, c], expected, atol=1e-8)


def test_oeotf_of_a_single_image_is_a_beamformer():
    Z = span_pca(X).coordinates
    alone = np.flatnonzero(y == 3)
    assert alone.size == 1
    x = Z[alone[0]]
    others = np.delete(Z, alone, axis=0)
    extra = others.T @ others / len(others) / np.mean(Z**2)
    T = 0.99 * extra + np.sqrt(1 - 0.99**2) * np.eye(x.size)
    weighted = np.linalg.solve(T, x)
    np.testing.assert_allclose(
        oeotf_filters(Z, y, 0.99)[:, 3], weighted / (x @ weighted), atol=1e-8
    )


def test_oeotf_takes_repeated_images():
    repeated, labels = np.vstack([X, X[y == 0]]), [*y, 0, 0, 0]
    features = CFA().fit(repeated, labels).transform(X[y == 0])
    np.testing.assert_allclose(features[:, 0], 1.0, atol=1e-7)


def test_oeotf_filter_of_a_class_at_the_mean_is_zero():
    rows = np.vstack([X[:4], X[:4].mean(axis=0)])
    model = CFA().fit(rows, [0, 0, 1, 1, 2])
    np.testing.assert_array_equal(model.components_[2], 0.0)
    assert (np.abs(model.components_[:2]).max(axis=1) > 0).all()


@pytest.mark.parametrize(("kind", "alpha"), [("otf", 0.9), ("oeotf", 0.99)])
def test_alpha_has_its_own_default_for_each_filter(kind, alpha):
    model = CFA(filter=kind).fit(X, y)
    np.testing.assert_array_equal(
        model.components_, CFA(filter=kind, alpha=alpha).fit(X, y).components_
    )
    other = CFA(filter=kind, alpha=0.7).fit(X, y)
    assert not np.allclose(model.components_, other.components_)


def test_attributes_have_the_promised_shapes():
    for model in (CFA(), otf(), otf(mode="1d")):
        fitted = clone(model).fit(X, y)
        assert fitted.components_.shape == (5, 35)
        assert fitted.transform(fresh).shape == (30, 5)
    np.testing.assert_allclose(CFA().fit(X, y).mean_, X.mean(axis=0))


def test_single_precision_stays_and_bright_pixels_do_not_overflow():
    model = otf().fit(X, y)
    single = model.transform(fresh.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, model.transform(fresh), atol=1e-5)
    bright = model.transform(fresh.astype(np.float32) * np.float32(1e30))
    np.testing.assert_allclose(bright, single, atol=1e-5)


def test_wrong_shape_of_images_is_an_error():
    with pytest.raises(ValueError, match="image_shape"):
        CFA(filter="otf", image_shape=(6, 6)).fit(X, y)


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": -0.1},
        {"alpha": 1.1},
        {"ridge": -1e-3},
        {"energy": 0.0},
        {"filter": "mace"},
        {"mode": "3d"},
        {"image_shape": 35},
    ],
)
def test_parameters_out_of_range_are_errors(options):
    with pytest.raises(InvalidParameterError, match=next(iter(options))):
        CFA(**options).fit(X, y)


def test_oeotf_forbids_alpha_of_one():
    with pytest.raises(ValueError, match="alpha below 1"):
        CFA(alpha=1).fit(X, y)


def test_oeotf_of_equal_images_is_an_error():
    with pytest.raises(DualQMLError, match="All samples are equal"):
        CFA().fit(np.ones((4, 6)), [0, 0, 1, 1])
