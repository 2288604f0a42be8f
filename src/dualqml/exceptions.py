# SPDX-License-Identifier: BSD-3-Clause
"""All errors that dualqml raises beyond those of Python, NumPy and scikit-learn.

Each is a :class:`DualQMLError`.
"""


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


class DatabaseError(DualQMLError, ValueError):
    """A database cannot be read: the message says what was expected and found."""


class BlockError(DatabaseError):
    """A block of rows cannot be read, or has values that cannot be used."""


class NoFaceError(DatabaseError):
    """There is no face in a photograph, or none that the detector sees."""


class SeveralFacesError(DatabaseError):
    """There are several faces in a photograph, and nobody said which to take."""


class PoorFaceError(DatabaseError):
    """A face in a photograph is too small, too blurred or too unclear."""


class NetworkError(DualQMLError, ValueError):
    """A network cannot be loaded or run, or is not the expected one."""


class MethodError(DualQMLError, ValueError):
    """A method of your own cannot be used: the message says what was expected."""


class ScoreError(DualQMLError, ValueError):
    """Scores, or what is asked of them, make no sense."""


class RecognitionError(DualQMLError, ValueError):
    """A recogniser cannot do what it was asked for."""


class UnknownSubjectError(RecognitionError, KeyError):
    """A subject was named who is not enrolled."""

    # KeyError would show the message in quotes.
    __str__ = Exception.__str__


class NoThresholdError(RecognitionError):
    """A decision was asked for before there is a threshold."""


class ModelFileError(FileError, ValueError):
    """A model cannot be saved, or a file is not a whole, known model."""


class StoreError(FileError):
    """Results cannot be read or written."""


class RunError(DualQMLError, RuntimeError):
    """An experiment ended before all its units did."""


class ClusterError(DualQMLError, RuntimeError):
    """A cluster cannot be started or reached, or its workers do not fit."""


class NothingToPlotError(DualQMLError, ValueError):
    """The results have nothing of what a plot shows."""
