# SPDX-License-Identifier: BSD-3-Clause
"""Recognition of people, and files that keep what was learnt."""

from dualqml.recognition.model_files import load, save
from dualqml.recognition.recognizer import Recognizer
from dualqml.recognition.results import (
    Calibration,
    Candidate,
    Identification,
    NoThresholdError,
    RecognitionError,
    Template,
    UnknownSubjectError,
    Verification,
)
from dualqml.recognition.tensors import (
    ModelFileError,
    read_tensors,
    write_tensors,
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
