# SPDX-License-Identifier: BSD-3-Clause
"""Which classes a model file may hold, and what objects of them have.

This is the whole list: a file names a class by its key here and nothing is ever
imported because a file says so. A class that gets a new fitted attribute needs it
here too, among the optional ones, so that older files still load.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from dualqml import extractors as ex
from dualqml.extractors.kernels import CentredKernel
from dualqml.extractors.mle import PatchMaps
from dualqml.extractors.tuning import RankSearchCV
from dualqml.images.faces import FaceCropper, FaceEmbedder
from dualqml.images.photometry import PhotometricNormaliser
from dualqml.images.steps import Cropper, EyeAligner, GreyConverter, Resizer
from dualqml.persistence._kinds import (
    CODES,
    COUNT,
    DICT,
    ESTIMATOR,
    JOBS,
    LABELS,
    MATRIX,
    NOTHING,
    NUMBER,
    REPORT,
    REPORT_CUBE,
    REPORT_MATRIX,
    SHAPE,
    STRINGS,
    TEXT,
    VECTOR,
    Kind,
    array_of,
    instance_of,
    one_of,
)


@dataclass(frozen=True)
class SavedClass:
    """A class that model files may hold.

    Attributes
    ----------
    type : type
        The class. Estimators and dataclasses are made from their parameters.
        Others are made without a call, and have attributes only.
    attributes : dict of str to Kind
        What an object has. An estimator that is not fitted has none of them.
    optional : dict of str to Kind
        What it may have.
    parameters : dict of str to Kind
        Parameters that are checked here. Those of a fitted estimator are also
        checked by itself.
    """

    type: type
    attributes: Mapping[str, Kind] = field(default_factory=dict)
    optional: Mapping[str, Kind] = field(default_factory=dict)
    parameters: Mapping[str, Kind] = field(default_factory=dict)


#: Attributes of the estimators of this package mean the same in all of them.
_KINDS: Mapping[str, Kind] = {
    "_maps": instance_of(PatchMaps),
    "best_estimator_": ESTIMATOR,
    "best_lam_": NUMBER,
    "best_params_": DICT,
    "best_rho_": NUMBER,
    "best_rule_": TEXT,
    "best_width_": NUMBER,
    "class_weights_": VECTOR,
    "classes_": LABELS,
    "codes_": CODES,
    "coefficients_": MATRIX,
    "column_basis_": MATRIX,
    "components_": MATRIX,
    "cv_errors_": REPORT_MATRIX,
    "cv_losses_": REPORT_CUBE | NOTHING,
    "cv_results_": DICT,
    "discriminants_": MATRIX | NOTHING,
    "dual_coef_": REPORT,
    "duality_gap_": REPORT,
    "eigenvalues_": VECTOR,
    "embedding_": MATRIX,
    "gallery_": MATRIX,
    "image_shape_": SHAPE,
    "kernel_": instance_of(CentredKernel) | NOTHING,
    "lam_": NUMBER,
    "mean_": VECTOR | NOTHING,
    "mean_responses_": VECTOR | NOTHING,
    "metric_": TEXT,
    "n_features_in_": COUNT,
    "n_iter_": COUNT,
    "n_neighbors_": COUNT,
    "n_patches_": COUNT,
    "objective_": REPORT,
    "patches_": CODES,
    "precision_": MATRIX,
    "qml_": instance_of(ex.DualQMLClassifier),
    "ranks_": CODES,
    "row_basis_": MATRIX,
    "status_": STRINGS,
    "training_codes_": CODES | NOTHING,
    "training_features_": MATRIX | NOTHING,
    "training_mean_": VECTOR | NOTHING,
    "violation_": REPORT,
    "zeta_": NUMBER,
}

#: What `set_output` leaves.
_CONTAINER = one_of(("default", "pandas", "polars"))
_OUTPUT: Mapping[str, Kind] = {
    "_sklearn_output_config": Kind(
        f"a choice of {_CONTAINER.name}",
        lambda v: (
            isinstance(v, dict)
            and set(v) <= {"transform"}
            and all(map(_CONTAINER.holds, v.values()))
        ),
    )
}

#: What any estimator of scikit-learn may have: names of columns besides.
_OF_ANY: Mapping[str, Kind] = {
    "feature_names_in_": STRINGS,
    **_OUTPUT,
}

_LINEAR = "classes_ mean_ components_"
_QML = (
    "classes_ components_ ranks_ mean_responses_ dual_coef_ duality_gap_ violation_ "
    "status_ n_iter_ lam_"
)
_RULED = f"{_QML} training_features_ training_mean_ training_codes_"
_W = {"metric_": instance_of(ex.WithinMetric)}


def _estimator(
    kind: type,
    attributes: str = "",
    *,
    own: Mapping[str, Kind] | None = None,
    parameters: Mapping[str, Kind] | None = None,
) -> SavedClass:
    names = ["n_features_in_", *attributes.split()]
    kinds = {name: _KINDS[name] for name in names} | dict(own or {})
    return SavedClass(kind, kinds, _OF_ANY, {"n_jobs": JOBS} | dict(parameters or {}))


def _are_steps(steps: object) -> bool:
    if not isinstance(steps, list) or not steps or not all(map(_is_step, steps)):
        return False
    return len({name for name, _ in steps}) == len(steps)


def _is_step(step: object) -> bool:
    if not isinstance(step, tuple) or len(step) != 2 or not isinstance(step[0], str):
        return False
    worker = step[1]
    if isinstance(worker, str):
        return worker == "passthrough"
    return worker is None or ESTIMATOR.holds(worker)


_ALL = (
    _estimator(ex.APCA, f"{_LINEAR} class_weights_ eigenvalues_ precision_"),
    _estimator(ex.CFA, _LINEAR),
    _estimator(ex.DualQML, _QML),
    _estimator(ex.DualQMLClassifier, _RULED),
    _estimator(ex.DualQMLClassifierCV, f"{_RULED} best_lam_ cv_errors_"),
    _estimator(ex.DualQMLW, "classes_ qml_", own=_W),
    _estimator(
        ex.DualQMLWCV,
        "classes_ qml_ best_lam_ best_rho_ best_rule_ best_width_ cv_losses_",
        own=_W,
    ),
    _estimator(ex.ERE, _LINEAR),
    _estimator(ex.ERKDA, "classes_ kernel_ coefficients_"),
    _estimator(ex.Fisherfaces, _LINEAR),
    _estimator(ex.GTDA, f"{_LINEAR} row_basis_ column_basis_ objective_ n_iter_ zeta_"),
    _estimator(ex.KernelLDA, "classes_ kernel_ coefficients_ eigenvalues_"),
    _estimator(ex.LPP, _LINEAR),
    _estimator(ex.LocalDescriptors, "image_shape_"),
    _estimator(ex.MFA, _LINEAR),
    _estimator(
        ex.MLE,
        f"{_LINEAR} _maps discriminants_ embedding_ n_neighbors_ n_patches_ patches_",
    ),
    _estimator(ex.NearestSample, "classes_ codes_ gallery_ metric_"),
    _estimator(ex.WithinMetric, "classes_ kernel_ mean_ coefficients_"),
    _estimator(
        RankSearchCV,
        "classes_ best_estimator_ best_params_ cv_results_",
        parameters={"estimator": ESTIMATOR},
    ),
    _estimator(PhotometricNormaliser),
    _estimator(Cropper),
    _estimator(EyeAligner),
    _estimator(GreyConverter),
    _estimator(Resizer),
    SavedClass(FaceCropper, optional=_OF_ANY),
    SavedClass(FaceEmbedder, optional=_OF_ANY),
    SavedClass(
        Pipeline,
        # The names of columns are those of its first step, and cannot be set.
        optional=_OUTPUT,
        parameters={
            "steps": Kind("steps with names", _are_steps),
            # A cache is a folder of pickles, and a file must not name one.
            "memory": NOTHING,
        },
    ),
    _estimator(Normalizer),
    _estimator(
        StandardScaler,
        own={
            "mean_": VECTOR | NOTHING,
            "var_": VECTOR | NOTHING,
            "scale_": VECTOR | NOTHING,
            "n_samples_seen_": NUMBER | array_of("a vector", "i u f", 1),
        },
    ),
    SavedClass(
        CentredKernel,
        parameters={
            "name": TEXT,
            "shape": SHAPE,
            "bandwidth": NUMBER,
            "origin": VECTOR,
            "samples": MATRIX,
            "row_means": VECTOR,
        },
    ),
    SavedClass(
        PatchMaps,
        parameters={
            "centres": MATRIX,
            "bases": MATRIX,
            "owners": CODES,
            "slopes": MATRIX,
            "offsets": MATRIX,
            "tolerance": NUMBER,
        },
    ),
)

#: All classes that a model file may hold, by the names that files use.
CLASSES: Mapping[str, SavedClass] = {saved.type.__name__: saved for saved in _ALL}
