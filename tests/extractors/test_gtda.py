import numpy as np
import pytest
from scipy.linalg import eigh
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import InvalidParameterError

from dualqml._linalg import unit_rows
from dualqml.exceptions import DualQMLError
from dualqml.extractors.gtda import GTDA, alternate, deviation_images, largest_ratio
from dualqml.extractors.lda import Fisherfaces
from tests.problems import make_data

SHAPE = (6, 8)
X, y = make_data([4, 3, 5, 2, 4], 48, centre=False, unit=False)
fresh = make_data([3, 3, 3, 3, 3], 48, seed=1, centre=False, unit=False)[0]
between, within = deviation_images(X, y, SHAPE)


def gtda(**options):
    return GTDA(**{"image_shape": SHAPE, "tol": 1e-4, "max_iter": 300, **options})


def gram(features):
    return features @ features.T


def assert_close(actual, expected, tolerance=1e-8):
    np.testing.assert_allclose(
        actual, expected, atol=tolerance * np.abs(expected).max()
    )


def naive_scatters(other, *, turned):
    """Both scatters of a side, one image at a time."""
    sums = []
    for images in (between, within):
        total = 0.0
        for A in images:
            reduced = (A.T if turned else A) @ other
            total = total + reduced @ reduced.T
        sums.append(total)
    return sums


def naive_objective(rows, columns, zeta):
    def power(images):
        return sum(np.square(rows.T @ A @ columns).sum() for A in images)

    return power(between) - zeta * power(within)


def test_deviation_images_hold_the_scatters():
    np.testing.assert_allclose(
        gram(between.reshape(5, -1).T) + gram(within.reshape(y.size, -1).T),
        gram((X - X.mean(axis=0)).T),
        atol=1e-10,
    )
    A = X[y == 3].reshape(-1, *SHAPE)
    np.testing.assert_allclose(within[y == 3], A - A.mean(axis=0))


@pytest.mark.parametrize("order", ["svd", "eig"])
@pytest.mark.parametrize("zeta", [None, 0.0, 0.1])
def test_bases_are_orthonormal_and_of_the_given_size(order, zeta):
    model = gtda(order=order, zeta=zeta, n_dims=(3, 5)).fit(X, y)
    assert model.row_basis_.shape == (6, 3)
    assert model.column_basis_.shape == (8, 5)
    for basis in (model.row_basis_, model.column_basis_):
        np.testing.assert_allclose(gram(basis.T), np.eye(basis.shape[1]), atol=1e-12)


@pytest.mark.parametrize("zeta", [None, 0.0, 0.1, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_objective_never_falls_with_the_largest_eigenvalues(zeta, seed):
    data, labels = make_data([4, 3, 5, 2, 4], 48, seed=seed, centre=False, unit=False)
    options = {"n_dims": (2, 3), "tol": 1e-10, "max_iter": 2000}
    model = gtda(order="eig", zeta=zeta, **options).fit(data, labels)
    values = model.objective_
    assert values.size == 2 * model.n_iter_ > 2
    assert np.diff(values[1:]).min() >= -1e-12 * np.abs(values).max()
    assert values[-1] > values[1]


@pytest.mark.parametrize("order", ["svd", "eig"])
def test_objective_is_that_of_the_reduced_images(order):
    model = gtda(order=order).fit(X, y)
    assert_close(
        model.objective_[-1],
        naive_objective(model.row_basis_, model.column_basis_, model.zeta_),
    )


@pytest.mark.parametrize("order", ["svd", "eig"])
def test_first_sweep_starts_from_the_identity_and_keeps_the_right_directions(order):
    zeta = largest_ratio(between, within)
    bases = alternate(between, within, (3, 4), zeta, order=order, max_iter=1)
    assert not bases.converged
    other = np.eye(8)
    for basis, turned in ((bases.rows, False), (bases.columns, True)):
        B, W = naive_scatters(other, turned=turned)
        values, vectors = np.linalg.eigh(B - zeta * W)
        ranks = np.argsort(np.abs(values) if order == "svd" else values)
        kept = vectors[:, ranks[-basis.shape[1] :]]
        np.testing.assert_allclose(gram(basis), gram(kept), atol=1e-10)
        other = basis


def test_the_two_orders_keep_opposite_ends():
    zeta = largest_ratio(between, within)
    values = [
        alternate(between, within, (3, 4), zeta, order=order, max_iter=1).objective
        for order in ("svd", "eig")
    ]
    assert values[0][0] < values[1][0] <= 0.0


def test_default_zeta_is_the_largest_generalised_eigenvalue_of_both_sides():
    rows = eigh(*naive_scatters(np.eye(8), turned=False), eigvals_only=True)[-1]
    columns = eigh(*naive_scatters(np.eye(6), turned=True), eigvals_only=True)[-1]
    assert rows != pytest.approx(columns)
    assert gtda().fit(X, y).zeta_ == pytest.approx(max(rows, columns))
    assert gtda(zeta=0.3).fit(X, y).zeta_ == 0.3


def test_pixels_that_never_change_do_not_matter_to_zeta():
    framed = np.pad(X.reshape(-1, *SHAPE), ((0, 0), (1, 1), (1, 1)))
    parts = deviation_images(framed.reshape(y.size, -1), y, (8, 10))
    assert largest_ratio(*parts) == pytest.approx(largest_ratio(between, within))


def structured():
    """Images of a clear best subspace of rows and columns."""
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    right, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    sides = np.outer(0.4 ** np.arange(6), 0.4 ** np.arange(8))
    images = left @ (X.reshape(-1, *SHAPE) * sides) @ right.T
    return images


@pytest.mark.parametrize("lda", [True, False])
def test_transposed_images_give_the_same_features(lda):
    images = structured()
    flat, turned = (A.reshape(y.size, -1) for A in (images, images.transpose(0, 2, 1)))
    options = {"lda": lda, "tol": 1e-14, "max_iter": 1000}
    here = gtda(n_dims=(2, 3), **options).fit(flat, y)
    there = gtda(image_shape=(8, 6), n_dims=(3, 2), **options).fit(turned, y)
    assert here.zeta_ == pytest.approx(there.zeta_)
    np.testing.assert_allclose(
        gram(here.row_basis_), gram(there.column_basis_), atol=1e-5
    )
    assert_close(gram(there.transform(turned)), gram(here.transform(flat)), 1e-5)


@pytest.mark.parametrize("order", ["svd", "eig"])
def test_all_dimensions_are_no_reduction(order):
    model = gtda(n_dims=SHAPE, order=order).fit(X, y)
    plain = Fisherfaces().fit(X, y)
    assert model.n_iter_ == 2
    assert_close(gram(model.transform(fresh)), gram(plain.transform(fresh)))
    raw = gtda(n_dims=SHAPE, order=order, lda=False).fit(X, y)
    assert_close(gram(raw.transform(fresh)), gram(fresh - X.mean(axis=0)))
    half = gtda(order=order).fit(X, y)
    cosines = [gram(unit_rows(m.transform(fresh))) for m in (half, plain)]
    assert np.abs(cosines[0] - cosines[1]).max() > 1e-2


def test_without_lda_the_features_are_the_reduced_images():
    model = gtda(lda=False, n_dims=(3, 4)).fit(X, y)
    centred = (fresh - X.mean(axis=0)).reshape(-1, *SHAPE)
    reduced = model.row_basis_.T @ centred @ model.column_basis_
    assert_close(model.transform(fresh), reduced.reshape(fresh.shape[0], -1))
    assert_close(gram(model.components_), np.eye(12))


def test_with_lda_the_features_are_fisherfaces_of_the_reduced_images():
    model = gtda(shrinkage=0.3, n_components=2).fit(X, y)
    reduced, reduced_fresh = (
        (model.row_basis_.T @ rows.reshape(-1, *SHAPE) @ model.column_basis_).reshape(
            rows.shape[0], -1
        )
        for rows in (X, fresh)
    )
    plain = Fisherfaces(shrinkage=0.3, n_components=2).fit(reduced, y)
    assert_close(gram(model.transform(fresh)), gram(plain.transform(reduced_fresh)))
    assert model.components_.shape == (2, 48)
    assert gtda().fit(X, y).components_.shape == (4, 48)


@pytest.mark.parametrize("order", ["svd", "eig"])
def test_one_sample_per_class_has_no_weight_and_principal_components(order):
    rows = X[[0, 4, 7, 12, 14]]
    model = gtda(order=order).fit(rows, range(5))
    assert model.zeta_ == 0.0
    assert model.components_.shape == (4, 48)
    assert_close(gram(model.components_), np.eye(4))
    assert (model.objective_ > 0).all()
    assert gtda(n_components=2).fit(rows, range(5)).components_.shape == (2, 48)


def test_half_of_each_side_is_rounded_up():
    data, labels = make_data([4, 4, 4], 35)
    model = GTDA(image_shape=(5, 7)).fit(data, labels)
    assert model.row_basis_.shape == (5, 3)
    assert model.column_basis_.shape == (7, 4)


def test_sweeps_stop_at_the_tolerance_or_the_limit():
    with pytest.warns(ConvergenceWarning, match="max_iter=1 "):
        model = gtda(max_iter=1).fit(X, y)
    assert model.n_iter_ == 1
    assert isinstance(model.n_iter_, int)
    for tol in (1e-2, 1e-3, 1e-4):
        values = gtda(tol=tol, order="eig", n_dims=(2, 3)).fit(X, y).objective_[1::2]
        changes = np.abs(np.diff(values) / values[1:])
        assert changes[-1] <= tol
        assert (changes[:-1] > tol).all()
    loose = gtda(tol=1e-1).fit(X, y)
    assert loose.n_iter_ < gtda(tol=1e-9, max_iter=5000).fit(X, y).n_iter_


def test_single_precision_stays():
    model = gtda().fit(X, y)
    single = model.transform(fresh.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, model.transform(fresh), atol=1e-4)


def test_wrong_shape_of_images_is_an_error():
    with pytest.raises(ValueError, match="image_shape"):
        GTDA(image_shape=(7, 7)).fit(X, y)


@pytest.mark.parametrize("n_dims", [(0, 3), (7, 3), (3, 9)])
def test_impossible_sizes_of_the_reduced_images_are_errors(n_dims):
    with pytest.raises(ValueError, match="n_dims"):
        gtda(n_dims=n_dims).fit(X, y)


@pytest.mark.parametrize(
    "options",
    [
        {"order": "qr"},
        {"shrinkage": -0.1},
        {"n_components": 0},
        {"max_iter": 0},
        {"tol": -1.0},
        {"zeta": -1.0},
        {"lda": "yes"},
        {"n_dims": 3},
    ],
)
def test_parameters_out_of_range_are_errors(options):
    with pytest.raises(InvalidParameterError, match=next(iter(options))):
        gtda(**options).fit(X, y)


def test_equal_images_are_an_error():
    with pytest.raises(DualQMLError, match="All samples are equal"):
        GTDA().fit(np.ones((4, 9)), [0, 0, 1, 1])
