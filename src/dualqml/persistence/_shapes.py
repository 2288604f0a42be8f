# SPDX-License-Identifier: BSD-3-Clause
"""Which arrays of a model must fit together, and how.

A checksum finds damage, but whoever forges a file writes one that fits. With shapes
that do not fit, a model would be loaded and would fail when it is used, or answer
from the wrong rows. Here stands, class by class, what its computations rely on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from dualqml import extractors as ex
from dualqml.extractors.kernels import CentredKernel
from dualqml.extractors.mle import PatchMaps
from dualqml.extractors.tuning import RankSearchCV
from dualqml.persistence import _relations as rel
from dualqml.persistence._problems import Path

#: A relation that is not one of equal lengths.
Check = Callable[[Any, Path], None]


@dataclass(frozen=True)
class Shapes:
    """What is known of the arrays of a class.

    Attributes
    ----------
    arrays : dict of str to tuple of str
        The shape of each array that an object may have. A letter stands for a
        number that is the same wherever it stands in the object: "p" is
        `n_features_in_`, "c" the number of classes, and others are what the first
        array says. A letter that stands once is free.
    checks : tuple of callable
        What else must hold.
    """

    arrays: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()


def check_shapes(made: Any, path: Path) -> None:
    """Refuse an object whose arrays do not fit together.

    Parameters
    ----------
    made : object
        A fitted estimator or a dataclass of a model file, with attributes of the
        right kinds. What it holds has been checked.
    path : tuple of str
        Where it is, for messages.

    Raises
    ------
    ValueProblem
        An array has another shape than the others ask for, or numbers that point
        nowhere.
    """
    values = vars(made)
    known: dict[str, tuple[int, str]] = {}
    if "n_features_in_" in values:
        known["p"] = values["n_features_in_"], "n_features_in_"
        rel.expect(known["p"][0] > 0, path, "n_features_in_", "is zero")
    shapes = SHAPES.get(type(made), Shapes())
    for name, letters in {**shapes.arrays, **_NAMES}.items():
        array = values.get(name)
        # Many may be None, and StandardScaler counts in a number or an array.
        if not isinstance(array, np.ndarray):
            continue
        for axis, (letter, size) in enumerate(zip(letters, array.shape, strict=True)):
            wanted, source = known.setdefault(letter, (size, name))
            what = (
                f"has the shape {array.shape}, but for {source} it needs {wanted} "
                f"along axis {axis}"
            )
            rel.expect(size == wanted, path, name, what)
    if "c" in known:
        rel.expect(known["c"][0] > 0, path, "classes_", "is empty")
    for check in shapes.checks:
        check(made, path)


_NAMES = {"feature_names_in_": ("p",)}
_CLASSES = {"classes_": ("c",)}
_LINEAR = _CLASSES | {"components_": ("k", "p"), "mean_": ("p",)}
_KERNEL = _CLASSES | {"coefficients_": ("n", "k")}
_QML = _CLASSES | {
    "components_": ("r", "p"),
    "ranks_": ("c",),
    "mean_responses_": ("r",),
    "dual_coef_": ("n",),
    "duality_gap_": ("c",),
    "violation_": ("c",),
    "status_": ("c",),
}
_RULED = _QML | {
    "training_features_": ("n", "c"),
    "training_mean_": ("c",),
    "training_codes_": ("n",),
}

#: All classes of model files that have arrays or hold others that have.
SHAPES: Mapping[type, Shapes] = {
    ex.APCA: Shapes(
        _LINEAR
        | {"class_weights_": ("c",), "eigenvalues_": ("k",), "precision_": ("k", "k")}
    ),
    ex.CFA: Shapes(_LINEAR | {"components_": ("c", "p")}),
    ex.DualQML: Shapes(_QML, (rel.check_ranks,)),
    ex.DualQMLClassifier: Shapes(_RULED, (rel.check_ranks, rel.check_training)),
    ex.DualQMLClassifierCV: Shapes(
        _RULED | {"cv_errors_": ("folds", "lams")},
        (rel.check_ranks, rel.check_training),
    ),
    ex.DualQMLW: Shapes(_CLASSES, (rel.check_lead,)),
    ex.DualQMLWCV: Shapes(
        _CLASSES | {"cv_losses_": ("rules", "rhos", "lams")}, (rel.check_lead,)
    ),
    ex.ERE: Shapes(_LINEAR),
    ex.ERKDA: Shapes(_KERNEL, (rel.check_kernel_extractor,)),
    ex.Fisherfaces: Shapes(_LINEAR),
    ex.GTDA: Shapes(
        _LINEAR
        | {
            "row_basis_": ("height", "rows"),
            "column_basis_": ("width", "columns"),
            "objective_": ("updates",),
        },
        (rel.check_bases,),
    ),
    ex.KernelLDA: Shapes(
        _KERNEL | {"eigenvalues_": ("k",)}, (rel.check_kernel_extractor,)
    ),
    ex.LPP: Shapes(_LINEAR),
    ex.LocalDescriptors: Shapes(checks=(rel.check_image,)),
    ex.MFA: Shapes(_LINEAR),
    ex.MLE: Shapes(
        _CLASSES
        | {
            "mean_": ("p",),
            "components_": ("d", "p"),
            "patches_": ("n",),
            "embedding_": ("n", "e"),
            "discriminants_": ("e", "k"),
        },
        (rel.check_patches,),
    ),
    ex.NearestSample: Shapes(
        _CLASSES | {"gallery_": ("n", "p"), "codes_": ("n",)}, (rel.check_gallery,)
    ),
    ex.WithinMetric: Shapes(
        _CLASSES | {"coefficients_": ("d", "k"), "mean_": ("d",)}, (rel.check_metric,)
    ),
    RankSearchCV: Shapes(_CLASSES, (rel.check_search,)),
    Pipeline: Shapes(checks=(rel.check_steps,)),
    StandardScaler: Shapes(
        {
            "mean_": ("p",),
            "var_": ("p",),
            "scale_": ("p",),
            "n_samples_seen_": ("p",),
        }
    ),
    CentredKernel: Shapes(
        {"origin": ("d",), "samples": ("n", "d"), "row_means": ("n",)},
        (rel.check_kernel,),
    ),
    PatchMaps: Shapes(
        {
            "centres": ("patches", "d"),
            "bases": ("r", "d"),
            "owners": ("r",),
            "slopes": ("r", "e"),
            "offsets": ("patches", "e"),
        },
        (rel.check_owners,),
    ),
}
