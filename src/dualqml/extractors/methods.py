# SPDX-License-Identifier: BSD-3-Clause
"""The twelve methods of the paper's tables, each as a ready pipeline.

One place says what "the paper's method X" is: its preprocessing, its feature
extractor and its decision rule.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from dualqml.extractors._images import ImageShape
from dualqml.extractors._neighbours import Metric
from dualqml.extractors.apca import APCA
from dualqml.extractors.cfa import CFA
from dualqml.extractors.dual_qml_classifier_cv import DualQMLClassifierCV
from dualqml.extractors.ere import ERE
from dualqml.extractors.erkda import ERKDA
from dualqml.extractors.gtda import GTDA
from dualqml.extractors.klda import KernelLDA
from dualqml.extractors.lda import Fisherfaces
from dualqml.extractors.mfa import MFA
from dualqml.extractors.mle import MLE
from dualqml.extractors.nearest import NearestSample

Preprocessing = Literal["none", "unit-norm", "centred-unit-norm"]

#: The paper's range of lambda, over which it cross-validates.
PAPER_LAMS = (0.1, 0.32, 1.0, 3.2, 10.0)


@dataclass(frozen=True)
class Method:
    """What a row of the paper's tables stands for.

    Attributes
    ----------
    estimator : callable
        Class of the feature extractor, or of the classifier where the method
        has its own decision rule.
    parameters : dict
        Parameters that differ from the defaults of that class.
    metric : {"cosine", "euclidean"} or None
        Decision by the nearest training sample in this sense; None where the
        estimator decides. For APCA the Euclidean distance of whitened
        features is the Mahalanobis distance.
    preprocessing : {"none", "unit-norm", "centred-unit-norm"}
        What is done to the images before.
    """

    estimator: Callable[..., BaseEstimator]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metric: Metric | None = "cosine"
    preprocessing: Preprocessing = "none"


def _dual_qml(rule: str) -> Method:
    return Method(
        DualQMLClassifierCV,
        {"lams": PAPER_LAMS, "rule": rule},
        metric=None,
        # A quadratic form has no linear term: where zero lies matters.
        preprocessing="centred-unit-norm",
    )


#: The rows of the paper's tables, in its order.
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "APCA": Method(APCA, metric="euclidean"),
        "LDA": Method(Fisherfaces),
        "MFA": Method(MFA),
        "CFA-OTF": Method(CFA, {"filter": "otf"}),
        "CFA-OEOTF": Method(CFA, {"filter": "oeotf"}),
        "GTDA": Method(GTDA),
        "ERE": Method(ERE),
        "K-LDA": Method(KernelLDA),
        "MLE": Method(MLE),
        "ER-KDA": Method(ERKDA),
        "DualQML (max)": _dual_qml("max"),
        "DualQML": _dual_qml("cosine"),
    }
)


def make_method(
    name: str,
    *,
    preprocessing: Preprocessing | None = None,
    image_shape: ImageShape | None = None,
    **overrides: Any,
) -> Pipeline:
    """Make a method of the paper's tables as a scikit-learn pipeline.

    Parameters
    ----------
    name : str
        A key of `METHODS`.
    preprocessing : {"none", "unit-norm", "centred-unit-norm"}, optional
        What to do to the images before; None means the method's own. Use the
        same for all methods of a table.
    image_shape : tuple of int, optional
        Height and width of the images in the rows, for the methods that need
        it; None means square images.
    **overrides : dict
        Parameters of the method's extractor or classifier.

    Returns
    -------
    Pipeline
        Not fitted; with `fit`, `predict` and `score`.

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
    if image_shape is not None and "image_shape" in known:
        overrides["image_shape"] = image_shape
    estimator.set_params(**overrides)
    steps: list[tuple[str, Any]] = []
    chosen = preprocessing or method.preprocessing
    if chosen == "centred-unit-norm":
        steps.append(("centre", StandardScaler(with_std=False)))
    if chosen != "none":
        steps.append(("normalise", Normalizer()))
    if method.metric is None:
        steps.append(("classify", estimator))
    else:
        steps.append(("extract", estimator))
        steps.append(("classify", NearestSample(metric=method.metric)))
    return Pipeline(steps)
