# SPDX-License-Identifier: BSD-3-Clause
"""Recognition of people, and files of recognisers and models."""

from dualqml.exceptions import (
    ModelFileError,
    NoThresholdError,
    RecognitionError,
    UnknownSubjectError,
)
from dualqml.persistence.model_files import load, save
from dualqml.persistence.tensors import read_tensors, write_tensors
from dualqml.recognition.recognizer import Recognizer
from dualqml.recognition.results import (
    Calibration,
    Candidate,
    Identification,
    Template,
    Verification,
)

__all__ = [
    "Calibration",
    "Candidate",
    "Identification",
    "ModelFileError",
    "NoThresholdError",
    "RecognitionError",
    "Recognizer",
    "Template",
    "UnknownSubjectError",
    "Verification",
    "load",
    "read_tensors",
    "save",
    "write_tensors",
]
