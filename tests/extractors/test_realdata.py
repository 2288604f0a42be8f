"""Errors of the competitors on the research databases, against a reference.

The reference errors were measured with an independent implementation of the
same equations on the same splits.
"""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from dualqml.extractors import LPP, NearestSample
from dualqml.extractors.methods import make_trials
from tests.datasets import split_errors


def models_of(name):
    # LPP is no method of the paper's tables.
    return (
        [make_pipeline(LPP(), NearestSample())] if name == "LPP" else make_trials(name)
    )


CELLS = [
    ("ar", 2, 5),
    ("ar", 4, 5),
    ("feret", 2, 3),
    ("pie", 2, 3),
    ("iitd_ear", 2, 5),
    ("ar", 8, 5),
    ("feret", 4, 3),
    ("pie", 4, 3),
    ("orl", 2, 5),
    ("orl", 4, 5),
]
# Mean and standard deviation in each cell.
REFERENCE = {
    "LPP": [
        (11.8, 1.1),
        (4.7, 0.8),
        (59.0, 0.4),
        (8.2, 1.0),
        (8.8, 0.9),
        (1.2, 0.4),
        (45.3, 1.7),
        (2.0, 0.2),
        (24.7, 3.4),
        (15.4, 1.8),
    ],
    "APCA": [
        (14.6, 1.4),
        (3.5, 1.4),
        (36.8, 1.3),
        (15.9, 1.8),
        (8.4, 0.6),
        (0.8, 0.1),
        (28.0, 1.2),
        (8.3, 0.7),
        (26.1, 1.9),
        (6.7, 1.5),
    ],
    "LDA": [
        (9.4, 1.0),
        (2.4, 1.2),
        (33.0, 0.9),
        (3.4, 1.1),
        (7.5, 0.8),
        (0.6, 0.2),
        (15.7, 2.5),
        (0.5, 0.2),
        (15.8, 1.3),
        (3.9, 1.3),
    ],
    "MFA": [
        (9.6, 1.3),
        (2.3, 1.2),
        (28.4, 1.0),
        (3.0, 1.0),
        (7.5, 1.0),
        (0.5, 0.2),
        (13.3, 1.1),
        (1.2, 0.3),
        (16.2, 1.2),
        (3.9, 1.4),
    ],
    "CFA-OTF": [
        (11.3, 1.0),
        (3.8, 1.2),
        (58.1, 0.3),
        (1.5, 0.4),
        (9.8, 1.2),
        (1.3, 0.1),
        (36.1, 2.1),
        (0.1, 0.0),
        (23.8, 2.2),
        (10.3, 1.9),
    ],
    "CFA-OEOTF": [
        (9.4, 0.9),
        (2.4, 1.2),
        (49.5, 0.9),
        (14.9, 2.6),
        (8.4, 0.8),
        (0.6, 0.2),
        (25.5, 0.8),
        (13.7, 0.3),
        (18.0, 1.3),
        (6.0, 0.5),
    ],
    "GTDA": [
        (9.5, 1.3),
        (2.3, 1.2),
        (37.9, 1.8),
        (4.6, 1.2),
        (7.7, 0.8),
        (0.6, 0.2),
        (26.6, 1.7),
        (0.6, 0.2),
        (18.0, 1.5),
        (6.2, 1.1),
    ],
    "ERE": [
        (9.1, 1.1),
        (2.3, 1.1),
        (33.5, 0.6),
        (2.3, 0.7),
        (7.6, 1.0),
        (0.7, 0.1),
        (19.3, 2.1),
        (0.7, 0.2),
        (15.5, 1.5),
        (4.5, 1.2),
    ],
    "K-LDA": [
        (10.0, 1.1),
        (2.3, 1.1),
        (34.3, 1.2),
        (7.7, 1.6),
        (7.8, 0.6),
        (0.3, 0.2),
        (19.1, 1.7),
        (1.1, 0.3),
        (15.4, 2.2),
        (3.9, 1.4),
    ],
    "MLE": [
        (22.5, 2.0),
        (9.3, 1.2),
        (74.7, 1.1),
        (16.9, 1.2),
        (13.7, 1.0),
        (3.4, 0.2),
        (63.9, 0.3),
        (4.7, 0.3),
        (46.9, 5.5),
        (33.4, 3.8),
    ],
    "ER-KDA": [
        (9.6, 1.1),
        (2.2, 1.1),
        (36.2, 1.1),
        (5.8, 1.1),
        (5.4, 0.6),
        (0.4, 0.1),
        (18.6, 1.7),
        (0.9, 0.2),
        (15.9, 0.9),
        (4.4, 1.3),
    ],
}


@pytest.mark.realdata("ar", "feret", "pie", "iitd_ear")
@pytest.mark.parametrize("name", REFERENCE)
@pytest.mark.parametrize(
    "cell", range(len(CELLS)), ids=lambda i: "-m".join(map(str, CELLS[i][:2]))
)
def test_error_is_near_the_reference_or_better(name, cell):
    mean, deviation = REFERENCE[name][cell]
    # MLE starts its patches from random samples.
    allowed = 5.0 if name == "MLE" else 2.0 * deviation + 1.0
    measured = split_errors(lambda: models_of(name), *CELLS[cell])
    assert np.mean(measured) <= mean + allowed
