# SPDX-License-Identifier: BSD-3-Clause
"""The errors that dualqml raises beyond those of scikit-learn."""


class DualQMLError(Exception):
    """Base class of all errors of this package."""


class InfeasibleError(DualQMLError, ValueError):
    """No quadratic matrix satisfies x'Px >= 1: a sample is the zero vector."""


class SolverError(DualQMLError, RuntimeError):
    """An external solver ended without a usable solution."""


class MissingDependencyError(DualQMLError, ImportError):
    """An optional dependency is needed and not installed."""


class FileError(DualQMLError, OSError):
    """A file cannot be read or written."""


class NotEnoughMemoryError(DualQMLError, MemoryError):
    """A method would need more memory than there is."""
