# SPDX-License-Identifier: BSD-3-Clause
"""The twelve methods of the paper's tables and DualQML-W, each as a pipeline.

This module defines each method: its preprocessing, its feature extractor, its decision
rule, and the parameters that are tried if it is tuned.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from dualqml.extractors.apca import APCA
from dualqml.extractors.cfa import CFA
from dualqml.extractors.dual_qml import DualQMLClassifierCV
from dualqml.extractors.dual_qml_w import DualQMLWCV
from dualqml.extractors.ere import ERE
from dualqml.extractors.erkda import ERKDA
from dualqml.extractors.gtda import GTDA
from dualqml.extractors.klda import KernelLDA
from dualqml.extractors.lda import Fisherfaces
from dualqml.extractors.mfa import MFA
from dualqml.extractors.mle import MLE
from dualqml.extractors.nearest import Metric, NearestSample
from dualqml.extractors.tuning import RankSearchCV
from dualqml.images.descriptors import LocalDescriptors
from dualqml.images.shapes import SizeLike

Preprocessing = Literal["none", "unit-norm", "centred-unit-norm", "local"]

#: The paper's range of lambda, over which it cross-validates.
PAPER_LAMS = (0.1, 0.32, 1.0, 3.2, 10.0)

#: A wider range of lambda, in half decades.
TUNED_LAMS = (0.1, 0.32, 1.0, 3.2, 10.0, 32.0, 100.0, 320.0, 1000.0)

_SHRINKAGE = (0.1, 0.01, 1.0)
_TANGENTS = (0.0, 0.3)


@dataclass(frozen=True)
class Method:
    """A method: one row of the tables.

    Attributes
    ----------
    estimator : callable
        Class of the feature extractor, or of the classifier if the method has its
        own decision rule.
    parameters : dict
        Parameters that differ from the defaults of that class.
    metric : {"cosine", "euclidean"} or None
        Metric of the nearest training sample, which decides; None if the estimator
        is a classifier. For APCA the Euclidean distance of whitened features is the
        Mahalanobis distance.
    preprocessing : {"none", "unit-norm", "centred-unit-norm", "local"}
        Preprocessing of the images.
    grid : dict
        Values to try for each parameter if the method is tuned. The values of the
        method without tuning come first. An estimator that is a classifier does its
        own cross-validation, and gets these values as parameters.
    n_seeds : int
        Number of seeds over which the tables average its errors: more than one if
        the errors differ much between seeds. See `make_trials`.
    """

    estimator: Callable[..., BaseEstimator]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metric: Metric | None = "cosine"
    preprocessing: Preprocessing = "none"
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    n_seeds: int = 1


def _dual_qml(rule: str) -> Method:
    return Method(
        DualQMLClassifierCV,
        {"lams": PAPER_LAMS, "rule": rule},
        metric=None,
        # A quadratic form has no linear term, so the origin of the data matters.
        preprocessing="centred-unit-norm",
        grid={"lams": TUNED_LAMS},
    )


#: The methods of the paper's tables, in the paper's order, and DualQML-W.
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "APCA": Method(
            APCA,
            metric="euclidean",
            grid={"ridge": (1e-3, 1e-2, 1e-1), "tangents": _TANGENTS},
        ),
        "LDA": Method(
            Fisherfaces, grid={"shrinkage": _SHRINKAGE, "tangents": _TANGENTS}
        ),
        "MFA": Method(MFA, grid={"shrinkage": _SHRINKAGE, "tangents": _TANGENTS}),
        "CFA-OTF": Method(
            CFA, {"filter": "otf"}, grid={"alpha": (None, 0.0, 0.3, 0.6, 0.98)}
        ),
        "CFA-OEOTF": Method(
            CFA, {"filter": "oeotf"}, grid={"alpha": (None, 0.5, 0.9, 0.97, 0.999)}
        ),
        "GTDA": Method(GTDA, grid={"shrinkage": _SHRINKAGE}),
        # Errors hardly depend on mu, so there is a third weight of the motions instead.
        "ERE": Method(ERE, grid={"mu": (1.0, 3.0), "tangents": (0.0, 0.1, 0.3)}),
        "K-LDA": Method(
            KernelLDA,
            grid={
                "regularisation": (1e-3, 1e-2),
                "width": (4.0, 16.0),
                "tangents": _TANGENTS,
            },
        ),
        # Its errors depend on the samples that patches start from, by several points.
        "MLE": Method(MLE, grid={"energy": (0.98, 0.95, 0.9)}, n_seeds=5),
        "ER-KDA": Method(
            ERKDA, grid={"width": (4.0, 1.0, 16.0), "tangents": _TANGENTS}
        ),
        "DualQML (max)": _dual_qml("max"),
        "DualQML": _dual_qml("cosine"),
        "DualQML-W": Method(
            DualQMLWCV, {"descriptor": None}, metric=None, preprocessing="unit-norm"
        ),
    }
)


def make_method(
    name: str,
    *,
    tune: bool = False,
    preprocessing: Preprocessing | None = None,
    image_shape: SizeLike | None = None,
    **overrides: Any,
) -> Pipeline | RankSearchCV:
    """Make a method of the paper's tables as a scikit-learn pipeline.

    Parameters
    ----------
    name : str
        A key of `METHODS`.
    tune : bool, default=False
        Whether to choose parameters on the training set: by the ranks of the true
        classes over the grid of the method, or for DualQML by its own
        cross-validation over a wider range of lambda. Tangents of the images are
        tried only if `image_shape` is given.
    preprocessing : {"none", "unit-norm", "centred-unit-norm", "local"}, optional
        Preprocessing of the images; None means that of the method. Use the same for
        all methods of a table. "local" replaces images by their
        :class:`~dualqml.images.LocalDescriptors`. Then methods cannot use motions of
        images, except DualQML-W, which computes how motions change the descriptors.
    image_shape : tuple of int, optional
        Height and width of the images in the rows. None means square images of at
        least 8 x 8 pixels for methods that need images. For DualQML-W it means that
        the rows are not images.
    **overrides : dict
        Parameters of the method's extractor or classifier. They are not tuned.
        `random_state` is 0 unless it is given.

    Returns
    -------
    Pipeline or RankSearchCV
        The model, not fitted, with `fit`, `predict` and `score`. With `tune` it is a
        search over pipelines, except for DualQML and DualQML-W, which search
        themselves.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml.extractors.methods import METHODS, make_method
    >>> list(METHODS)[:3]
    ['APCA', 'LDA', 'MFA']
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_method("ERE", mu=1.0).fit(X[:200], y[:200])
    >>> model.predict(X[:3])
    array([0, 1, 2])
    >>> tuned = make_method("LDA", tune=True).fit(X[:200], y[:200])
    >>> tuned.best_params_
    {'extract__shrinkage': 1.0}
    """
    if name not in METHODS:
        raise ValueError(f"{name!r} is not a method; choose from {', '.join(METHODS)}")
    method = METHODS[name]
    estimator = method.estimator(**method.parameters)
    known = estimator.get_params(deep=False)
    unknown = sorted(set(overrides) - set(known))
    if unknown:
        raise ValueError(
            f"{name} has no parameter {unknown[0]!r}; its parameters are "
            f"{', '.join(sorted(known))}"
        )
    chosen = preprocessing or method.preprocessing
    grid = {key: method.grid[key] for key in method.grid if key not in overrides}
    if image_shape is None or chosen == "local":
        grid.pop("tangents", None)
    steps: list[tuple[str, Any]] = []
    if chosen == "local" and "descriptor" in known:
        overrides["descriptor"] = "local"
    elif chosen == "local":
        steps.append(("describe", LocalDescriptors(image_shape=image_shape)))
        # For the steps after it, descriptors are a single row of pixels.
        image_shape = None
    if image_shape is not None and "image_shape" in known:
        overrides["image_shape"] = image_shape
    if tune and method.metric is None:
        overrides |= grid
    # Tables can be repeated: the default seed is 0.
    if "random_state" in known:
        overrides.setdefault("random_state", 0)
    estimator.set_params(**overrides)
    if chosen == "centred-unit-norm":
        steps.append(("centre", StandardScaler(with_std=False)))
    if chosen != "none" and "descriptor" not in overrides:
        steps.append(("normalise", Normalizer()))
    if method.metric is None:
        steps.append(("classify", estimator))
    else:
        steps.append(("extract", estimator))
        steps.append(("classify", NearestSample(metric=method.metric)))
    model = Pipeline(steps)
    if tune and method.metric is not None:
        named = {f"extract__{key}": list(values) for key, values in grid.items()}
        return RankSearchCV(model, named, random_state=0)
    return model


def make_trials(name: str, **options: Any) -> list[Pipeline | RankSearchCV]:
    """Make the models whose mean error the tables print for a method.

    Parameters
    ----------
    name : str
        A key of `METHODS`.
    **options : dict
        Options of `make_method`.

    Returns
    -------
    list of Pipeline or RankSearchCV
        One model, or one per seed if the method has several seeds.

    Examples
    --------
    >>> from dualqml.extractors.methods import make_trials
    >>> len(make_trials("LDA"))
    1
    >>> [model["extract"].random_state for model in make_trials("MLE")]
    [0, 1, 2, 3, 4]
    """
    if name not in METHODS or METHODS[name].n_seeds == 1:
        return [make_method(name, **options)]
    seeds = range(METHODS[name].n_seeds)
    return [make_method(name, random_state=seed, **options) for seed in seeds]
