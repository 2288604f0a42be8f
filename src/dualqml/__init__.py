# SPDX-License-Identifier: BSD-3-Clause
"""Few-sample biometric recognition by quadratic projections."""

from typing import TYPE_CHECKING, Any

from dualqml.extractors import (
    DualQML,
    DualQMLClassifier,
    DualQMLClassifierCV,
    DualQMLW,
    DualQMLWCV,
    WithinMetric,
)

if TYPE_CHECKING:
    from dualqml.recognition.model_files import load, save

__all__ = [
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

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Model files need every class that they may hold, and most programs none.
    if name in ("load", "save"):
        from dualqml.recognition import model_files

        return getattr(model_files, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
