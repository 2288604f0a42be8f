# SPDX-License-Identifier: BSD-3-Clause
"""Feature extractors and classifiers as scikit-learn estimators."""

from dualqml.extractors.dual_qml import DualQML
from dualqml.extractors.dual_qml_classifier import DualQMLClassifier
from dualqml.extractors.dual_qml_classifier_cv import DualQMLClassifierCV

__all__ = ["DualQML", "DualQMLClassifier", "DualQMLClassifierCV"]
