# SPDX-License-Identifier: BSD-3-Clause
"""Feature extractors and classifiers as scikit-learn estimators."""

from dualqml._lazy import lazy_names

TYPE_CHECKING = False  # as in the module typing, which takes long to import
if TYPE_CHECKING:
    from dualqml.extractors.apca import APCA
    from dualqml.extractors.background import Background
    from dualqml.extractors.cfa import CFA
    from dualqml.extractors.dual_qml import (
        DualQML,
        DualQMLClassifier,
        DualQMLClassifierCV,
    )
    from dualqml.extractors.dual_qml_w import DualQMLW, DualQMLWCV
    from dualqml.extractors.ere import ERE
    from dualqml.extractors.erkda import ERKDA
    from dualqml.extractors.gtda import GTDA
    from dualqml.extractors.klda import KernelLDA
    from dualqml.extractors.lda import Fisherfaces
    from dualqml.extractors.lpp import LPP
    from dualqml.extractors.mfa import MFA
    from dualqml.extractors.mle import MLE
    from dualqml.extractors.nearest import NearestMean, NearestSample
    from dualqml.extractors.within_metric import WithinMetric
    from dualqml.images.descriptors import LocalDescriptors

__all__ = [
    "APCA",
    "CFA",
    "ERE",
    "ERKDA",
    "GTDA",
    "LPP",
    "MFA",
    "MLE",
    "Background",
    "DualQML",
    "DualQMLClassifier",
    "DualQMLClassifierCV",
    "DualQMLW",
    "DualQMLWCV",
    "Fisherfaces",
    "KernelLDA",
    "LocalDescriptors",
    "NearestMean",
    "NearestSample",
    "WithinMetric",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "dualqml.extractors.apca": "APCA",
        "dualqml.extractors.background": "Background",
        "dualqml.extractors.cfa": "CFA",
        "dualqml.extractors.dual_qml": "DualQML DualQMLClassifier DualQMLClassifierCV",
        "dualqml.extractors.dual_qml_w": "DualQMLW DualQMLWCV",
        "dualqml.extractors.ere": "ERE",
        "dualqml.extractors.erkda": "ERKDA",
        "dualqml.extractors.gtda": "GTDA",
        "dualqml.extractors.klda": "KernelLDA",
        "dualqml.extractors.lda": "Fisherfaces",
        "dualqml.extractors.lpp": "LPP",
        "dualqml.extractors.mfa": "MFA",
        "dualqml.extractors.mle": "MLE",
        "dualqml.extractors.nearest": "NearestMean NearestSample",
        "dualqml.extractors.within_metric": "WithinMetric",
        "dualqml.images.descriptors": "LocalDescriptors",
    },
)
