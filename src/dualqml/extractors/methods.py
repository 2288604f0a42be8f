# SPDX-License-Identifier: BSD-3-Clause
"""The methods of the tables, each as a pipeline.

`METHODS` are the paper's twelve rows and DualQML-W. `VECTOR_METHODS` are the usual
classifiers of vectors, with which a method for embeddings has to be compared. Each
method is defined by its preprocessing, its feature extractor, its decision rule, and
the parameters that are tried if it is tuned.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from sklearn.base import BaseEstimator, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import LinearSVC

from dualqml.extractors.apca import APCA
from dualqml.extractors.cfa import CFA
from dualqml.extractors.dual_qml import DualQMLClassifier, DualQMLClassifierCV
from dualqml.extractors.dual_qml_w import DualQMLW, DualQMLWCV
from dualqml.extractors.ere import ERE
from dualqml.extractors.erkda import ERKDA
from dualqml.extractors.gtda import GTDA
from dualqml.extractors.klda import KernelLDA
from dualqml.extractors.lda import Fisherfaces
from dualqml.extractors.mfa import MFA
from dualqml.extractors.mle import MLE
from dualqml.extractors.nearest import Metric, NearestMean, NearestSample
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
        Metric of the nearest training sample or mean, which decides; None if the
        estimator is a classifier. For APCA the Euclidean distance of whitened features
        is the Mahalanobis distance.
    rule : callable
        Class of the classifier that follows an extractor, given the metric.
    preprocessing : {"none", "unit-norm", "centred-unit-norm", "local"}
        Preprocessing of the images.
    grid : dict
        Values to try for each parameter if the method is tuned. The values of the
        method without tuning come first. An estimator that searches itself gets these
        values as parameters.
    searches : bool
        Whether the estimator itself chooses parameters on the training set, with
        tuning and without.
    needs_images : bool
        Whether the method learns from images as such, and cannot take vectors or
        local descriptors.
    n_seeds : int
        Number of seeds over which the tables average its errors: more than one if
        the errors differ much between seeds. See `make_trials`.
    title : str
        Its full name.
    reference : str
        Where it was published.
    """

    estimator: Callable[..., BaseEstimator]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metric: Metric | None = "cosine"
    rule: Callable[..., BaseEstimator] = NearestSample
    preprocessing: Preprocessing = "none"
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    searches: bool = False
    needs_images: bool = False
    n_seeds: int = 1
    title: str = ""
    reference: str = ""


_QML = (
    "Y. Yan, H. Wang, S. Chen, X. Cao, D. Zhang, Quadratic projection based feature "
    "extraction with its application to biometric recognition, Pattern Recognition, "
    "2016"
)
_CORRELATION_FILTERS = (
    "C. Xie, M. Savvides, B. V. K. Vijaya Kumar, Redundant class-dependence feature "
    "analysis based on correlation filters using FRGC2.0 data, CVPR Workshops, 2005; "
)


def _dual_qml(rule: str, title: str) -> Method:
    return Method(
        DualQMLClassifierCV,
        {"lams": PAPER_LAMS, "rule": rule},
        metric=None,
        # A quadratic form has no linear term, so the origin of the data matters.
        preprocessing="centred-unit-norm",
        grid={"lams": TUNED_LAMS},
        searches=True,
        title=title,
        reference=_QML,
    )


#: The methods of the paper's tables, in the paper's order, and DualQML-W.
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "APCA": Method(
            APCA,
            metric="euclidean",
            grid={"ridge": (1e-3, 1e-2, 1e-1), "tangents": _TANGENTS},
            title="asymmetric principal component analysis",
            reference=(
                "X. Jiang, Asymmetric principal component and discriminant analyses "
                "for pattern classification, IEEE PAMI, 2009"
            ),
        ),
        "LDA": Method(
            Fisherfaces,
            grid={"shrinkage": _SHRINKAGE, "tangents": _TANGENTS},
            title="linear discriminant analysis (Fisherfaces)",
            reference=(
                "P. Belhumeur, J. Hespanha, D. Kriegman, Eigenfaces vs. Fisherfaces: "
                "recognition using class specific linear projection, IEEE PAMI, 1997"
            ),
        ),
        "MFA": Method(
            MFA,
            grid={"shrinkage": _SHRINKAGE, "tangents": _TANGENTS},
            title="marginal Fisher analysis",
            reference=(
                "S. Yan, D. Xu, B. Zhang, H. Zhang, Q. Yang, S. Lin, Graph embedding "
                "and extensions: a general framework for dimensionality reduction, "
                "IEEE PAMI, 2007"
            ),
        ),
        "CFA-OTF": Method(
            CFA,
            {"filter": "otf"},
            grid={"alpha": (None, 0.0, 0.3, 0.6, 0.98)},
            needs_images=True,
            title="class-dependence feature analysis with optimal trade-off filters",
            reference=(
                _CORRELATION_FILTERS
                + "B. V. K. Vijaya Kumar, M. Savvides, C. Xie, Correlation pattern "
                "recognition for face recognition, Proceedings of the IEEE, 2006"
            ),
        ),
        "CFA-OEOTF": Method(
            CFA,
            {"filter": "oeotf"},
            grid={"alpha": (None, 0.5, 0.9, 0.97, 0.999)},
            needs_images=True,
            title=(
                "class-dependence feature analysis with optimal extra-class "
                "origin-output trade-off filters"
            ),
            reference=(
                _CORRELATION_FILTERS
                + "Y. Yan, Y.-J. Zhang, 1D correlation filter based class-dependence "
                "feature analysis for face recognition, Pattern Recognition, 2008"
            ),
        ),
        "GTDA": Method(
            GTDA,
            grid={"shrinkage": _SHRINKAGE},
            needs_images=True,
            title="general tensor discriminant analysis",
            reference=(
                "D. Tao, X. Li, X. Wu, S. Maybank, General tensor discriminant "
                "analysis and Gabor features for gait recognition, IEEE PAMI, 2007"
            ),
        ),
        # Errors hardly depend on mu, so there is a third weight of the motions instead.
        "ERE": Method(
            ERE,
            grid={"mu": (1.0, 3.0), "tangents": (0.0, 0.1, 0.3)},
            title="eigenfeature regularisation and extraction",
            reference=(
                "X. Jiang, B. Mandal, A. Kot, Eigenfeature regularization and "
                "extraction in face recognition, IEEE PAMI, 2008"
            ),
        ),
        "K-LDA": Method(
            KernelLDA,
            grid={
                "regularisation": (1e-3, 1e-2),
                "width": (4.0, 16.0),
                "tangents": _TANGENTS,
            },
            title="kernel linear discriminant analysis",
            reference=(
                "K.-R. Mueller, S. Mika, G. Raetsch, K. Tsuda, B. Schoelkopf, An "
                "introduction to kernel-based learning algorithms, IEEE Transactions "
                "on Neural Networks, 2001"
            ),
        ),
        # Its errors depend on the samples that patches start from, by several points.
        "MLE": Method(
            MLE,
            grid={"energy": (0.98, 0.95, 0.9)},
            needs_images=True,
            n_seeds=5,
            title="maximal linear embedding",
            reference=(
                "R. Wang, S. Shan, X. Chen, J. Chen, W. Gao, Maximal linear embedding "
                "for dimensionality reduction, IEEE PAMI, 2011"
            ),
        ),
        "ER-KDA": Method(
            ERKDA,
            grid={"width": (4.0, 1.0, 16.0), "tangents": _TANGENTS},
            title="kernel discriminant analysis with a regularised eigenspectrum",
            reference=(
                "S. Zafeiriou, G. Tzimiropoulos, M. Petrou, T. Stathaki, Regularized "
                "kernel discriminant analysis with a robust kernel for face "
                "recognition and verification, IEEE Transactions on Neural Networks "
                "and Learning Systems, 2012"
            ),
        ),
        "DualQML (max)": _dual_qml(
            "max", "dual quadratic matrix learning; the largest response decides"
        ),
        "DualQML": _dual_qml(
            "cosine", "dual quadratic matrix learning; the cosine of responses decides"
        ),
        "DualQML-W": Method(
            DualQMLWCV,
            # The input is that of the other methods of a table.
            {"descriptor": None},
            metric=None,
            preprocessing="unit-norm",
            searches=True,
            title="dual quadratic matrix learning in a within-class metric",
            reference=(
                "this package; not in the paper. Its quadratic forms are those of "
                "DualQML"
            ),
        ),
    }
)

#: The usual classifiers of vectors. They run on images too.
VECTOR_METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "NN-cosine": Method(
            NearestSample,
            metric=None,
            title="nearest training sample by cosine similarity",
            reference=(
                "T. Cover, P. Hart, Nearest neighbor pattern classification, IEEE "
                "Transactions on Information Theory, 1967"
            ),
        ),
        "Mean-cosine": Method(
            NearestMean,
            metric=None,
            title="nearest mean of a class by cosine similarity",
            reference="textbook method",
        ),
        "Linear-SVM": Method(
            LinearSVC,
            {"C": 10.0},
            metric=None,
            preprocessing="centred-unit-norm",
            grid={"C": (10.0, 0.1, 1.0, 100.0)},
            title="linear support vector machine, one class against all others",
            reference=(
                "C. Cortes, V. Vapnik, Support-vector networks, Machine Learning, 1995"
            ),
        ),
        "Logistic": Method(
            LogisticRegression,
            {"C": 100.0, "max_iter": 1000},
            metric=None,
            preprocessing="centred-unit-norm",
            grid={"C": (100.0, 1.0, 10.0, 1000.0)},
            title="multinomial logistic regression",
            reference=(
                "D. R. Cox, The regression analysis of binary sequences, Journal of "
                "the Royal Statistical Society B, 1958"
            ),
        ),
        # The nearest mean of its features is what LDA itself decides with equal priors,
        # if there are more classes than features. Unlike LDA it also takes a gallery
        # with one sample of each class, on which tuned methods are judged.
        "LDA-shrunk": Method(
            LinearDiscriminantAnalysis,
            {"solver": "eigen", "shrinkage": 0.5},
            metric="euclidean",
            rule=NearestMean,
            preprocessing="unit-norm",
            grid={"shrinkage": (0.5, 0.1, 0.9)},
            title="linear discriminant analysis with a shrunk covariance",
            reference=(
                "J. H. Friedman, Regularized discriminant analysis, Journal of the "
                "American Statistical Association, 1989"
            ),
        ),
    }
)

#: All methods that are known by name.
ALL_METHODS: Mapping[str, Method] = MappingProxyType({**METHODS, **VECTOR_METHODS})

#: Estimators that choose parameters, and those that take them.
_WITHOUT_SEARCH: Mapping[type, type[BaseEstimator]] = {
    DualQMLClassifierCV: DualQMLClassifier,
    DualQMLWCV: DualQMLW,
}


def make_method(
    name: str,
    *,
    tune: bool = False,
    preprocessing: Preprocessing | None = None,
    image_shape: SizeLike | None = None,
    **overrides: Any,
) -> Pipeline | RankSearchCV:
    """Make a method of the tables as a scikit-learn pipeline.

    Parameters
    ----------
    name : str
        A key of `METHODS` or of `VECTOR_METHODS`.
    tune : bool, default=False
        Whether to choose parameters on the training set: by the ranks of the true
        classes over the grid of the method, or for DualQML by its own
        cross-validation over a wider range of lambda. Tangents of the images are
        tried only if `image_shape` is given.
    preprocessing : {"none", "unit-norm", "centred-unit-norm", "local"}, optional
        Preprocessing of the images; None means that of the method. Use the same for
        all methods of a table. "local" replaces images by their
        :class:`~dualqml.images.LocalDescriptors`, which are centred if the method
        centres images. Then methods cannot use motions of images, except DualQML-W,
        which computes how motions change the descriptors.
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
        themselves, and for methods that have nothing to choose.

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
    if name not in ALL_METHODS:
        raise ValueError(
            f"{name!r} is not a method; choose from {', '.join(ALL_METHODS)}"
        )
    method = ALL_METHODS[name]
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
    if tune and method.searches:
        overrides |= grid
    # Tables can be repeated: the default seed is 0.
    if "random_state" in known:
        overrides.setdefault("random_state", 0)
    estimator.set_params(**overrides)
    centred = "centred-unit-norm"
    if chosen == centred or (chosen == "local" and method.preprocessing == centred):
        steps.append(("centre", StandardScaler(with_std=False)))
    if chosen != "none" and "descriptor" not in overrides:
        steps.append(("normalise", Normalizer()))
    if method.metric is None:
        steps.append(("classify", estimator))
    else:
        steps.append(("extract", estimator))
        steps.append(("classify", method.rule(metric=method.metric)))
    model = Pipeline(steps)
    if tune and method.grid and not method.searches:
        step = "classify" if method.metric is None else "extract"
        named = {f"{step}__{key}": list(values) for key, values in grid.items()}
        return RankSearchCV(model, named, random_state=0)
    return model


def make_trials(name: str, **options: Any) -> list[Pipeline | RankSearchCV]:
    """Make the models whose mean error the tables print for a method.

    Parameters
    ----------
    name : str
        A key of `METHODS` or of `VECTOR_METHODS`.
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
    if name not in ALL_METHODS or ALL_METHODS[name].n_seeds == 1:
        return [make_method(name, **options)]
    seeds = range(ALL_METHODS[name].n_seeds)
    return [make_method(name, random_state=seed, **options) for seed in seeds]


def without_search(model: Any) -> Any:
    """Make the model that a fitted search ends with, with its parameters fixed.

    Fitted to the same samples it is the same model, so its time is that of training
    without the choice of parameters.

    Parameters
    ----------
    model : estimator
        A fitted classifier: a search, a pipeline that ends with one, or another.

    Returns
    -------
    estimator or None
        Not fitted; None if the model does not choose parameters, or if it cannot be
        told how to fix them.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualqml.extractors.methods import make_method, without_search
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_method("DualQML").fit(X[:60], y[:60])
    >>> without_search(model)["classify"].lam == model["classify"].best_lam_
    True
    >>> without_search(make_method("LDA").fit(X[:60], y[:60])) is None
    True
    """
    if hasattr(model, "best_estimator_"):
        return clone(model.best_estimator_)
    if isinstance(model, Pipeline):
        fixed = without_search(model[-1])
        if fixed is None:
            return None
        before = [(name, clone(step)) for name, step in model.steps[:-1]]
        return Pipeline([*before, (model.steps[-1][0], fixed)])
    kind = _WITHOUT_SEARCH.get(type(model))
    if kind is None:
        return None
    fixed = kind()
    known = fixed.get_params(deep=False)
    values = model.get_params(deep=False) | model.best_params_
    return fixed.set_params(**{name: values[name] for name in known if name in values})
