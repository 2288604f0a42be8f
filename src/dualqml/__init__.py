# SPDX-License-Identifier: BSD-3-Clause
"""Few-sample biometric recognition by quadratic projections."""

TYPE_CHECKING = False  # as in the module typing, which takes long to import
if TYPE_CHECKING:
    from typing import Any

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

__version__ = "0.1.0"

#: Rooms that an attribute of the package opens.
_ROOMS = (
    "cli",
    "core",
    "data",
    "evaluation",
    "exceptions",
    "experiments",
    "extractors",
    "images",
    "persistence",
    "recognition",
)


def __getattr__(name: str) -> "Any":
    # Imported when first used: the command and dualqml.core do without scikit-learn.
    import importlib

    if name in _ROOMS:
        return importlib.import_module(f"dualqml.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = "persistence" if name in ("load", "save") else "extractors"
    value = getattr(importlib.import_module(f"dualqml.{room}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
