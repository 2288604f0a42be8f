# SPDX-License-Identifier: BSD-3-Clause
"""Few-sample biometric recognition by quadratic projections."""

from dualqml.extractors import DualQML, DualQMLClassifier, DualQMLClassifierCV

__all__ = ["DualQML", "DualQMLClassifier", "DualQMLClassifierCV", "__version__"]

__version__ = "0.1.0"
