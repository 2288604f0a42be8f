"""Pictures of P_c, and plots of certificates."""

import sys

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import normalize

from dualqml import DualQML, DualQMLClassifierCV, DualQMLW
from dualqml.evaluation import (
    CertificateDisplay,
    CertificatePathDisplay,
    QuadraticFormDisplay,
)
from dualqml.evaluation.method_displays import SMALLEST_DRAWN
from dualqml.exceptions import MissingDependencyError, NothingToPlotError
from dualqml.extractors import NearestMean
from tests.evaluation.test_displays import draw

SHAPE = (8, 10)


@pytest.fixture
def ax():
    figure = pytest.importorskip("matplotlib.figure")
    return figure.Figure(figsize=(9.0, 4.0)).add_subplot()


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(3)
    labels = np.repeat(["Ann", "Bob", "Eve", "Zoe"], 4)
    means = rng.normal(size=(4, 80))
    rows = np.repeat(means, 4, axis=0) + 0.5 * rng.normal(size=(16, 80))
    return normalize(rows - rows.mean(axis=0)), labels


@pytest.fixture(scope="module")
def model(samples):
    return DualQML(lam=10.0).fit(*samples)


@pytest.fixture(scope="module")
def linear(samples):
    return DualQMLW(kernel="linear", image_shape=SHAPE).fit(*samples)


def rows_of(display):
    return display.pictures.reshape(len(display.pictures), -1)


class TestQuadraticForm:
    def test_the_pictures_are_the_factors_of_p(self, model):
        for label in model.classes_:
            display = QuadraticFormDisplay.from_estimator(
                model, label, image_shape=SHAPE
            )
            matrix = model.quadratic_matrix(label)
            factors = rows_of(display)
            np.testing.assert_allclose(factors.T @ factors, matrix, atol=1e-12)
            diagonal = np.diag(matrix).reshape(SHAPE)
            np.testing.assert_allclose(display.diagonal, diagonal, atol=1e-12)

    def test_factors_are_orthogonal_in_falling_order(self, model):
        display = QuadraticFormDisplay.from_estimator(model, "Eve", image_shape=SHAPE)
        products = rows_of(display) @ rows_of(display).T
        off = products - np.diag(np.diag(products))
        assert np.abs(off).max() < 1e-12 * products.max()
        assert (np.diff(np.diag(products)) <= 0.0).all()
        assert len(display.energies) > 1
        expected = np.diag(products) / np.trace(products)
        np.testing.assert_allclose(display.energies, expected)

    def test_without_signs_the_largest_value_is_positive(self, model):
        rows = rows_of(
            QuadraticFormDisplay.from_estimator(model, "Bob", image_shape=SHAPE)
        )
        largest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
        assert (largest > 0.0).all()

    def test_signed_roots_give_the_sign_of_the_mean(self, samples):
        X, y = samples
        model = DualQML(lam=10.0, features="signed-root").fit(X, y)
        for label in model.classes_:
            rows = rows_of(
                QuadraticFormDisplay.from_estimator(model, label, image_shape=SHAPE)
            )
            responses = rows @ X[y == label].mean(axis=0)
            assert (responses > -1e-12).all()
            assert responses[0] > 0.1

    def test_a_linear_metric_is_mapped_back_to_pixels(self, linear, samples):
        X, _ = samples
        for c, label in enumerate(linear.classes_):
            display = QuadraticFormDisplay.from_estimator(linear, label)
            deviations = X - linear.metric_.mean_
            energies = np.square(deviations @ rows_of(display).T).sum(axis=1)
            lengths = np.square(deviations @ linear.metric_.coefficients_).sum(axis=1)
            expected = np.square(linear.transform(X)[:, c])
            np.testing.assert_allclose(energies / lengths, expected, atol=1e-9)

    def test_a_kernel_and_descriptors_cannot_be_mapped(self, samples):
        X, y = samples
        model = DualQMLW(image_shape=SHAPE).fit(X, y)
        with pytest.raises(NothingToPlotError, match="kernel='linear'"):
            QuadraticFormDisplay.from_estimator(model, "Ann")
        model = DualQMLW(kernel="linear", descriptor="local", image_shape=SHAPE)
        with pytest.raises(NothingToPlotError, match="descriptor=None"):
            QuadraticFormDisplay.from_estimator(model.fit(X + 1.0, y), "Ann")

    def test_what_is_wrong_is_said(self, model, samples):
        make = QuadraticFormDisplay.from_estimator
        with pytest.raises(ValueError, match="'Kim' is not a class"):
            make(model, "Kim", image_shape=SHAPE)
        with pytest.raises(ValueError, match="is not a class"):
            make(model, ["Ann", "Bob", "Eve"], image_shape=SHAPE)
        with pytest.raises(ValueError, match="is not a class"):
            make(model, ["Ann"], image_shape=SHAPE)
        with pytest.raises(ValueError, match="a row for each factor"):
            QuadraticFormDisplay(np.ones(80), image_shape=SHAPE)
        with pytest.raises(ValueError, match="80"):
            make(model, "Ann")
        with pytest.raises(ValueError, match="81 pixels"):
            make(model, "Ann", image_shape=(9, 9))
        with pytest.raises(TypeError, match="NearestMean"):
            make(NearestMean().fit(*samples), "Ann", image_shape=SHAPE)
        with pytest.raises(NothingToPlotError, match="nothing to show"):
            QuadraticFormDisplay(np.zeros((1, 80)), image_shape=SHAPE)

    def test_drawing(self, ax, model):
        display = QuadraticFormDisplay.from_estimator(model, "Zoe", image_shape=SHAPE)
        assert display.plot(ax, n_factors=2) is display
        draw(ax)
        assert display.figure_ is ax.figure
        first, *others = display.images_
        np.testing.assert_array_equal(first.get_array(), display.diagonal)
        assert first.get_clim()[0] == 0.0
        limit = np.abs(display.pictures[:2]).max()
        for image, picture in zip(others, display.pictures[:2], strict=True):
            np.testing.assert_array_equal(image.get_array(), picture)
            assert image.get_clim() == (-limit, limit)
            assert image.get_cmap().name == "RdBu_r"
        titles = [axes.get_title() for axes in display.axes_]
        assert titles[0] == "class Zoe\ndiagonal of P"
        assert titles[1] == f"factor 1, {100 * display.energies[0]:.0f} % of trace"
        # One scale of colours beside each picture.
        assert [len(axes.child_axes) for axes in display.axes_] == [1, 1, 1]

    def test_pictures_do_not_overlap(self, ax, model):
        display = QuadraticFormDisplay.from_estimator(model, "Zoe", image_shape=SHAPE)
        display.plot(ax, n_factors=2)
        draw(ax)
        renderer = ax.figure.canvas.get_renderer()
        boxes = [axes.get_tightbbox(renderer) for axes in display.axes_]
        ends = [box.x1 for box in boxes[:-1]]
        assert all(end < box.x0 for end, box in zip(ends, boxes[1:], strict=True))

    def test_the_diagonal_alone(self, ax, model):
        display = QuadraticFormDisplay.from_estimator(model, "Zoe", image_shape=SHAPE)
        display.plot(ax, n_factors=0, colour_bar=False)
        draw(ax)
        assert len(display.images_) == 1
        assert display.axes_[0].child_axes == []
        with pytest.raises(ValueError, match="n_factors"):
            display.plot(ax, n_factors=-1)


class TestCertificate:
    def test_it_shows_the_certificates_of_all_classes(self, ax, model):
        display = CertificateDisplay.from_estimator(model)
        np.testing.assert_array_equal(display.gap, model.duality_gap_)
        np.testing.assert_array_equal(display.violation, model.violation_)
        assert display.tol == model.tol
        assert display.n_optimal == 4
        assert display.plot(ax, name="mine") is display
        draw(ax)
        assert display.ax_ is ax
        assert ax.get_yscale() == "log"
        assert ax.get_title() == "4 of 4 classes proven optimal"
        assert display.gaps_.get_xdata().tolist() == [1, 2, 3, 4]
        gaps = np.maximum(np.sort(model.duality_gap_), SMALLEST_DRAWN)
        assert display.gaps_.get_ydata().tolist() == gaps.tolist()
        assert set(display.tolerance_.get_ydata()) == {model.tol}
        assert display.gaps_.get_label() == "mine, duality gap"

    def test_the_legend_leaves_the_tolerance_in_sight(self, ax):
        # As of forty people: there is room nowhere but above.
        gap = np.geomspace(1e-8, 1e-7, 40)
        violation = np.repeat([3e-10, 0.0], [22, 18])
        ax.figure.set_size_inches(6.4, 4.8)
        display = CertificateDisplay(gap, violation, tol=1e-6, name="mine").plot(ax)
        draw(ax)
        renderer = ax.figure.canvas.get_renderer()
        legend = ax.get_legend().get_window_extent(renderer)
        line = ax.transData.transform((1.0, display.tol))[1]
        assert not legend.y0 <= line <= legend.y1

    def test_violations_are_at_the_gaps_of_their_classes(self, ax):
        display = CertificateDisplay([1e-7, 1e-9, 1e-3], [0.0, 1e-8, 1e-2], tol=1e-6)
        display.plot(ax)
        draw(ax)
        assert display.n_optimal == 2
        assert display.gaps_.get_ydata().tolist() == [1e-9, 1e-7, 1e-3]
        found = display.violations_.get_ydata().tolist()
        assert found == [1e-8, SMALLEST_DRAWN, 1e-2]
        label = "constraint violation (1 below 1e-12)"
        assert display.violations_.get_label() == label

    def test_what_is_not_proven_is_not_counted(self, ax):
        display = CertificateDisplay([np.inf, np.nan, 1e-9], np.zeros(3), tol=1e-6)
        assert display.n_optimal == 1
        display.plot(ax)
        draw(ax)

    def test_estimators_with_a_search_and_a_metric(self, linear, samples):
        display = CertificateDisplay.from_estimator(linear)
        np.testing.assert_array_equal(display.gap, linear.qml_.duality_gap_)
        model = DualQMLClassifierCV(lams=[1.0, 10.0], cv=2).fit(*samples)
        assert CertificateDisplay.from_estimator(model).n_optimal == 4

    def test_what_is_wrong_is_said(self):
        with pytest.raises(TypeError, match="NearestMean"):
            CertificateDisplay.from_estimator(NearestMean())
        with pytest.raises(ValueError, match="one value per class"):
            CertificateDisplay([1.0], [1.0, 2.0], tol=1.0)


class TestCertificatePath:
    @pytest.mark.parametrize("which", ["model", "linear"])
    def test_it_ends_at_the_certificate_of_the_estimator(self, which, request, samples):
        estimator = request.getfixturevalue(which)
        display = CertificatePathDisplay.from_estimator(estimator, *samples, max_iter=6)
        assert display.steps.tolist() == [1, 2, 3, 4, 5, 6]
        assert display.worst.shape == (6, 4)
        qml = getattr(estimator, "qml_", estimator)
        expected = np.maximum(qml.duality_gap_, qml.violation_)
        np.testing.assert_allclose(display.worst[-1], expected, rtol=1e-2, atol=1e-9)
        assert display.n_optimal[-1] == 4

    def test_one_step_is_not_enough(self, ax, samples):
        model = DualQML(lam=10.0, solver="lbfgs").fit(*samples)
        display = CertificatePathDisplay.from_estimator(model, *samples, max_iter=25)
        assert display.worst[0].min() > 1e3 * model.tol
        assert display.n_optimal[[0, -1]].tolist() == [0, 4]
        assert display.plot(ax) is display
        draw(ax)
        assert display.worst_.get_ydata().tolist() == display.worst.max(axis=1).tolist()
        middle = np.median(display.worst, axis=1).tolist()
        assert display.median_.get_ydata().tolist() == middle
        assert ax.get_yscale() == "log"
        assert ax.get_xlabel() == "iterations allowed"
        assert ax.get_title() == "4 of 4 classes proven optimal at last"

    def test_the_scale_of_the_samples_does_not_matter(self, samples, model):
        X, y = samples
        large = DualQML(lam=10.0 / 2.0**40).fit(2.0**10 * X, y)
        found = CertificatePathDisplay.from_estimator(large, 2.0**10 * X, y)
        expected = CertificatePathDisplay.from_estimator(model, X, y)
        np.testing.assert_allclose(found.worst, expected.worst)

    def test_zero_samples_have_no_constraint(self, samples):
        X, y = samples
        X = X.copy()
        X[0] = 0.0
        model = DualQML(lam=10.0, zero_samples="ignore").fit(X, y)
        display = CertificatePathDisplay.from_estimator(model, X, y)
        assert display.n_optimal[-1] == 4

    def test_what_is_wrong_is_said(self, samples, model):
        X, y = samples
        make = CertificatePathDisplay.from_estimator
        with pytest.raises(ValueError, match="not what the estimator was fitted to"):
            make(model, X[:12], y[:12])
        with pytest.raises(ValueError, match="not what the estimator was fitted to"):
            make(model, X[1:], y[1:])
        for rows, labels in ((X[:, 1:], y), (X[0], y), (X, y[:, None])):
            with pytest.raises(ValueError, match="not what the estimator was fitted"):
                make(model, rows, labels)
        with pytest.raises(ValueError, match="max_iter must be at least 1"):
            make(model, X, y, max_iter=0)
        with pytest.raises(ValueError, match="a row for each of the steps"):
            CertificatePathDisplay([1, 2], [[1.0]], tol=1.0)

    def test_two_on_logarithmic_axes_share_the_tolerance(self, ax):
        ax.set_xscale("log")
        for name in ("one", "two"):
            display = CertificatePathDisplay([1, 9], [[1.0], [0.1]], tol=0.5, name=name)
            display.plot(ax)
        found = [text.get_text() for text in ax.get_legend().get_texts()]
        assert found.count("tolerance, 0.5") == 1
        assert len(found) == 5


def displays(model, samples):
    yield QuadraticFormDisplay.from_estimator(model, "Ann", image_shape=SHAPE)
    yield CertificateDisplay.from_estimator(model)
    yield CertificatePathDisplay.from_estimator(model, *samples, max_iter=1)


def test_on_given_axes_pyplot_keeps_nothing(model, samples):
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    before = pyplot.get_fignums()
    for display in displays(model, samples):
        ax = Figure().add_subplot()
        assert display.plot(ax) is display
        assert display.ax_ is ax
        assert display.figure_ is ax.figure
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize("estimator", [DualQML(), DualQMLW()])
def test_estimators_must_be_fitted(estimator, samples):
    with pytest.raises(NotFittedError):
        QuadraticFormDisplay.from_estimator(estimator, "Ann")
    with pytest.raises(NotFittedError):
        CertificateDisplay.from_estimator(estimator)
    with pytest.raises(NotFittedError):
        CertificatePathDisplay.from_estimator(estimator, *samples)


def test_without_axes_new_ones_are_made(model, samples, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.setitem(matplotlib.rcParams, "backend", "agg")
    from matplotlib import pyplot

    for display in displays(model, samples):
        before = set(pyplot.get_fignums())
        display.plot()
        (new,) = set(pyplot.get_fignums()) - before
        pyplot.close(new)


def test_without_matplotlib_it_is_said_what_to_install(model, samples, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for display in displays(model, samples):
        with pytest.raises(MissingDependencyError, match=r"install dualqml\[plot\]"):
            display.plot()
