# SPDX-License-Identifier: BSD-3-Clause
"""Recognition of people, and files of recognisers and models."""

from dualqml._lazy import lazy_names

TYPE_CHECKING = False  # as in the module typing, which takes long to import
if TYPE_CHECKING:
    from dualqml.exceptions import (
        ModelFileError,
        NoThresholdError,
        RecognitionError,
        UnknownSubjectError,
    )
    from dualqml.persistence.model_files import load, save
    from dualqml.persistence.tensors import read_tensors, write_tensors
    from dualqml.recognition.calibration import Trials
    from dualqml.recognition.deferred_refit import RefitDue
    from dualqml.recognition.explanation import EnrolledSample, Explanation, ScorePart
    from dualqml.recognition.gallery_check import (
        Finding,
        GalleryCheck,
        SampleScore,
        check_gallery,
    )
    from dualqml.recognition.recognizer import Recognizer
    from dualqml.recognition.results import (
        Calibration,
        Candidate,
        Identification,
        Template,
        Verification,
    )
    from dualqml.recognition.threshold_curves import ThresholdCurve, threshold_curve
    from dualqml.recognition.why_display import WhyDisplay

__all__ = [
    "Calibration",
    "Candidate",
    "EnrolledSample",
    "Explanation",
    "Finding",
    "GalleryCheck",
    "Identification",
    "ModelFileError",
    "NoThresholdError",
    "RecognitionError",
    "Recognizer",
    "RefitDue",
    "SampleScore",
    "ScorePart",
    "Template",
    "ThresholdCurve",
    "Trials",
    "UnknownSubjectError",
    "Verification",
    "WhyDisplay",
    "check_gallery",
    "load",
    "read_tensors",
    "save",
    "threshold_curve",
    "write_tensors",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "dualqml.exceptions": (
            "ModelFileError NoThresholdError RecognitionError UnknownSubjectError"
        ),
        "dualqml.persistence.model_files": "load save",
        "dualqml.persistence.tensors": "read_tensors write_tensors",
        "dualqml.recognition.calibration": "Trials",
        "dualqml.recognition.deferred_refit": "RefitDue",
        "dualqml.recognition.explanation": "EnrolledSample Explanation ScorePart",
        "dualqml.recognition.gallery_check": (
            "Finding GalleryCheck SampleScore check_gallery"
        ),
        "dualqml.recognition.recognizer": "Recognizer",
        "dualqml.recognition.results": (
            "Calibration Candidate Identification Template Verification"
        ),
        "dualqml.recognition.threshold_curves": "ThresholdCurve threshold_curve",
        "dualqml.recognition.why_display": "WhyDisplay",
    },
)
