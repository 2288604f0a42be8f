# SPDX-License-Identifier: BSD-3-Clause
"""The QML problem as pure functions on arrays.

Problem (5) of the paper for every class, its solvers, and a certificate of what they
return. Nothing here depends on estimators or images.
"""

from dualqml.core.certificate import Certificate, certify
from dualqml.core.newton import newton_path
from dualqml.core.problem import QMLSolution
from dualqml.core.solve import CertifiedSolution, solve, solve_certified, solve_part
from dualqml.core.spectrum import (
    ScatterSpectrum,
    SharedSpectrum,
    scatter_spectrum,
    shared_spectrum,
)
from dualqml.exceptions import (
    DualQMLError,
    FileError,
    InfeasibleError,
    MissingDependencyError,
    NotEnoughMemoryError,
    SolverError,
)

__all__ = [
    "Certificate",
    "CertifiedSolution",
    "DualQMLError",
    "FileError",
    "InfeasibleError",
    "MissingDependencyError",
    "NotEnoughMemoryError",
    "QMLSolution",
    "ScatterSpectrum",
    "SharedSpectrum",
    "SolverError",
    "certify",
    "newton_path",
    "scatter_spectrum",
    "shared_spectrum",
    "solve",
    "solve_certified",
    "solve_part",
]
