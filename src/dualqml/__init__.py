# SPDX-License-Identifier: BSD-3-Clause
"""Few-sample biometric recognition by quadratic projections."""

from dualqml.extractors import (
    DualQML,
    DualQMLClassifier,
    DualQMLClassifierCV,
    DualQMLW,
    DualQMLWCV,
    WithinMetric,
)

__all__ = [
    "DualQML",
    "DualQMLClassifier",
    "DualQMLClassifierCV",
    "DualQMLW",
    "DualQMLWCV",
    "WithinMetric",
    "__version__",
]

__version__ = "0.1.0"
