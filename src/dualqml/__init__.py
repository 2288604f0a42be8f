# SPDX-License-Identifier: BSD-3-Clause
"""Few-sample biometric recognition by quadratic projections."""

from dualqml._lazy import lazy_names

TYPE_CHECKING = False  # as in the module typing, which takes long to import
if TYPE_CHECKING:
    from dualqml.extractors import (
        Background,
        DualQML,
        DualQMLClassifier,
        DualQMLClassifierCV,
        DualQMLW,
        DualQMLWCV,
        WithinMetric,
    )
    from dualqml.persistence import load, save

__all__ = [
    "Background",
    "DualQML",
    "DualQMLClassifier",
    "DualQMLClassifierCV",
    "DualQMLW",
    "DualQMLWCV",
    "WithinMetric",
    "__version__",
    "load",
    "save",
]

__version__ = "0.2.0"

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "dualqml.extractors": (
            "Background DualQML DualQMLClassifier DualQMLClassifierCV DualQMLW "
            "DualQMLWCV WithinMetric"
        ),
        "dualqml.persistence": "load save",
    },
)
