# SPDX-License-Identifier: BSD-3-Clause
"""What must hold between the arrays of a model, beyond equal lengths.

Codes point at what is there, and what an object holds fits the object. One function a
class; `dualqml.persistence._shapes` says whose.

No check takes memory by a number that a file merely states: it may be any number.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin
from sklearn.pipeline import Pipeline

from dualqml.extractors import WithinMetric
from dualqml.extractors.kernels import CentredKernel
from dualqml.extractors.mle import PatchMaps
from dualqml.images.shapes import ImageShape
from dualqml.persistence._problems import Path, ValueProblem

#: Pixels of the longest side of images of which the descriptors are counted, which
#: takes memory for every pixel of a side.
_LONGEST_SIDE = 10_000


def n_inputs(metric: WithinMetric) -> int:
    """Number of inputs of a metric, after its descriptor.

    Parameters
    ----------
    metric : WithinMetric
        The metric, fitted.

    Returns
    -------
    int
        What its arrays are made for.
    """
    if metric.kernel_ is not None:
        return _n_kernel_inputs(metric.kernel_)
    assert metric.mean_ is not None
    return int(metric.mean_.size)


def expect(holds: bool, path: Path, name: str, what: str) -> None:
    """Refuse an attribute unless something holds."""
    if not holds:
        raise ValueProblem((*path, name), what)


def _expect_equal(
    found: int, wanted: int, path: Path, name: str, unit: str, source: str
) -> None:
    what = f"has {found} {unit}, but for {source} it needs {wanted}"
    expect(found == wanted, path, name, what)


def _expect_codes(codes: NDArray[Any], size: int, path: Path, name: str) -> None:
    """Refuse codes unless they are 0 to size - 1, each of them used."""
    # In this order: counting takes memory by the largest code and by nothing stated.
    holds = (
        0 < size <= codes.size
        and codes.min() == 0
        and codes.max() == size - 1
        and bool(np.bincount(codes, minlength=size).all())
    )
    what = f"does not have the whole numbers from 0 to {size - 1}, each at least once"
    expect(holds, path, name, what)


def _fitted(holder: Any, name: str, path: Path) -> Any:
    """An estimator that another holds, which uses it."""
    part = getattr(holder, name)
    expect(hasattr(part, "n_features_in_"), path, name, "is not fitted")
    return part


def check_ranks(made: Any, path: Path) -> None:
    """DualQML: the factors are dealt out to the classes, none left or missing."""
    ranks, n_rows = made.ranks_, made.components_.shape[0]
    expect(ranks.min() >= 0, path, "ranks_", "has a rank below zero")
    # Each by itself first, or a sum of forged ones could overflow to the right one.
    right = ranks.max() <= n_rows and ranks.sum() == n_rows
    what = f"does not add up to the {n_rows} rows of components_"
    expect(bool(right), path, "ranks_", what)


def check_training(made: Any, path: Path) -> None:
    """Rule "cosine": each training sample is of a class, and no class has none."""
    codes = made.training_codes_
    both = (codes is None) == (made.training_features_ is None)
    what = "and training_features_ are not both there, or both not"
    expect(both, path, "training_codes_", what)
    if codes is not None:
        _expect_codes(codes, made.classes_.size, path, "training_codes_")


def check_gallery(made: Any, path: Path) -> None:
    """The same for the samples of a nearest-sample classifier."""
    _expect_codes(made.codes_, made.classes_.size, path, "codes_")


def _n_kernel_inputs(kernel: CentredKernel) -> int:
    """Number of features that a kernel takes."""
    return _n_pixels(kernel.shape) if kernel.name == "igo" else kernel.origin.size


def _n_pixels(shape: ImageShape) -> int:
    """As Python computes it, which does not overflow."""
    return math.prod(map(int, shape))


def check_kernel(made: CentredKernel, path: Path) -> None:
    """Orientations of images: two values for every pixel."""
    if made.name == "igo":
        # The sine and the cosine of a direction at each pixel.
        wanted = 2 * _n_pixels(made.shape)
        _expect_equal(made.origin.size, wanted, path, "origin", "values", "shape")


def _check_kernel_use(made: Any, path: Path) -> None:
    """Coefficients for every training sample of the kernel."""
    kernel, n_rows = made.kernel_, made.coefficients_.shape[0]
    expect(kernel is not None, path, "kernel_", "is None")
    n_samples = kernel.samples.shape[0]
    _expect_equal(n_rows, n_samples, path, "coefficients_", "rows", "kernel_")


def check_kernel_extractor(made: Any, path: Path) -> None:
    """Extractors that are linear in a kernel of their inputs."""
    _check_kernel_use(made, path)
    found, wanted = _n_kernel_inputs(made.kernel_), made.n_features_in_
    _expect_equal(found, wanted, path, "kernel_", "inputs", "n_features_in_")


def check_metric(made: Any, path: Path) -> None:
    """The metric: linear or by a kernel, of inputs as the descriptor makes them."""
    kernel, mean = made.kernel_, made.mean_
    one = (kernel is None) != (mean is None)
    expect(one, path, "kernel_", "and mean_ are both there, or both not")
    if kernel is not None:
        _check_kernel_use(made, path)
    found = n_inputs(made)
    wanted, source = made.n_features_in_, "n_features_in_"
    # Pixels are among the descriptors: where there are more, they need no count.
    if made.descriptor is not None and wanted <= found:
        nobody = np.empty((0, wanted))
        wanted = _asked(lambda: made._inputs(nobody).shape[1], path)
        source = "descriptor"
    name = "mean_" if kernel is None else "kernel_"
    _expect_equal(found, wanted, path, name, "inputs", source)


def check_lead(made: Any, path: Path) -> None:
    """DualQML-W: the metric takes the samples, and QML what the metric makes."""
    metric, qml = (_fitted(made, name, path) for name in ("metric_", "qml_"))
    found, wanted = metric.n_features_in_, made.n_features_in_
    _expect_equal(found, wanted, path, "metric_", "features", "n_features_in_")
    found, wanted = qml.n_features_in_, metric.coefficients_.shape[1]
    _expect_equal(found, wanted, path, "qml_", "features", "metric_")
    for name, part in (("metric_", metric), ("qml_", qml)):
        same = np.array_equal(part.classes_, made.classes_)
        expect(same, path, name, "has other classes than classes_")
    if metric.kernel_ is not None:
        found, wanted = qml.dual_coef_.size, metric.kernel_.samples.shape[0]
        _expect_equal(found, wanted, path, "qml_", "training samples", "metric_")


def check_bases(made: Any, path: Path) -> None:
    """GTDA: bases of the rows and columns of the images, found in turn."""
    n_pixels = made.row_basis_.shape[0] * made.column_basis_.shape[0]
    wanted = made.n_features_in_
    what = "pixels together with column_basis_"
    _expect_equal(n_pixels, wanted, path, "row_basis_", what, "n_features_in_")
    wanted = 2 * int(made.n_iter_)
    _expect_equal(made.objective_.size, wanted, path, "objective_", "values", "n_iter_")


def check_image(made: Any, path: Path) -> None:
    """Local descriptors: images of as many pixels as there are features."""
    found, wanted = _n_pixels(made.image_shape_), made.n_features_in_
    _expect_equal(found, wanted, path, "image_shape_", "pixels", "n_features_in_")


def check_owners(made: PatchMaps, path: Path) -> None:
    """Rows of a patch follow each other, and every patch has some."""
    owners = made.owners
    _expect_codes(owners, made.centres.shape[0], path, "owners")
    in_order = bool((owners[1:] >= owners[:-1]).all())
    expect(in_order, path, "owners", "is not in rising order")


def check_patches(made: Any, path: Path) -> None:
    """MLE: maps from the principal components to the embedding, one a patch."""
    maps, n_patches = made._maps, made.n_patches_
    expect(made.mean_ is not None, path, "mean_", "is None")
    _expect_codes(made.patches_, n_patches, path, "patches_")
    found = maps.centres.shape[0]
    _expect_equal(found, n_patches, path, "_maps", "patches", "n_patches_")
    found, wanted = maps.centres.shape[1], made.components_.shape[0]
    _expect_equal(found, wanted, path, "_maps", "inputs", "components_")
    found, wanted = maps.offsets.shape[1], made.embedding_.shape[1]
    _expect_equal(found, wanted, path, "_maps", "features", "embedding_")


def check_search(made: Any, path: Path) -> None:
    """The best estimator knows the features and classes of the search."""
    best = made.best_estimator_
    found, wanted = getattr(best, "n_features_in_", None), made.n_features_in_
    if found is not None:
        source = "n_features_in_"
        _expect_equal(found, wanted, path, "best_estimator_", "features", source)
    classes, wanted = getattr(best, "classes_", None), made.classes_.size
    if classes is not None:
        found = classes.size
        _expect_equal(found, wanted, path, "best_estimator_", "classes", "classes_")
    candidates, losses = (made.cv_results_.get(name) for name in ("params", "loss"))
    each = isinstance(candidates, list) and isinstance(losses, np.ndarray)
    each = each and losses.shape == (len(candidates),)
    expect(each, path, "cv_results_", "does not have a loss for each candidate")


def check_steps(made: Pipeline, path: Path) -> None:
    """A pipeline: each step takes what the step before makes."""
    made_before: int | None = None
    for place, (_, step) in enumerate(made.steps):
        # "passthrough" makes what it takes.
        if step is None or isinstance(step, str):
            continue
        own = (*path, "steps", str(place))
        taken = getattr(step, "n_features_in_", None)
        if taken is not None and made_before is not None:
            source = "the step before"
            _expect_equal(taken, made_before, own, "1", "features", source)
        made_before = _n_features_out(step, (*own, "1"))


def _n_features_out(step: Any, path: Path) -> int | None:
    """What a step makes; None where it is not fitted or cannot tell."""
    taken: int | None = getattr(step, "n_features_in_", None)
    if taken is None or isinstance(step, OneToOneFeatureMixin):
        return taken
    if max(getattr(step, "image_shape_", (0,))) > _LONGEST_SIDE:
        return None
    found: int | None = _asked(lambda: getattr(step, "_n_features_out", None), path)
    return found


def _asked(question: Callable[[], Any], path: Path) -> Any:
    """An answer that depends on parameters, which may be anything."""
    try:
        return question()
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        what = f"has parameters that do not fit: {error}"
        raise ValueProblem(path, what) from error
