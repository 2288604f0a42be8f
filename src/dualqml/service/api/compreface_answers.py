# SPDX-License-Identifier: BSD-3-Clause
"""Answers as CompreFace gives them: faces, similarities and errors.

CompreFace is the service whose routes `dualqml.service.api.compreface` has too.
"""

import math
from typing import Any

from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from dualqml.service.problems import Problem

#: The similarity of a score at the threshold. Clients take 0.6 for a match by default.
MATCH = 0.6
#: The highest similarity below the threshold. Clients round to two digits of per cent.
_BELOW = 0.5999
#: How much steeper or flatter similarities are than probabilities. With 0.3, a score of
#: 10 above the threshold, which is a factor of 22,000 in likelihood, has 0.97.
_SLOPE = 0.3
#: Digits of similarities, as CompreFace rounds them.
_DIGITS = 5

#: Its codes for our problems; 0 means any other.
_CODES = {
    "no-face": 28,
    "several-faces": 31,
    "invalid": 26,
    "bad-image": 21,
    "too-many-pixels": 21,
    "wrong-type": 21,
    "not-found": 42,
    "no-image": 11,
    "conflict": 43,
    "unauthorized": 10,
    "method-not-allowed": 32,
}
#: Its statuses, where they are not ours: what is wrong with a request is always 400.
_STATUSES = {422: 400, 409: 400}


def similarity(score: float, threshold: float) -> float:
    """A score on the scale of CompreFace.

    Scores are logarithms of likelihood ratios, from minus to plus infinity, and each
    gallery has its own threshold. Clients of CompreFace expect numbers from 0 to 1, and
    have a limit of their own. Here the threshold is always at 0.6, which is the usual
    limit. The rest follows a logistic curve, so the order stays the same.

    Parameters
    ----------
    score, threshold : float
        The score, and the smallest score of a match.

    Returns
    -------
    float
        From 0 to 1. It is at least 0.6 if the score reaches the threshold, and at most
        0.5999 if it does not.

    Examples
    --------
    >>> from dualqml.service.api.compreface_answers import similarity
    >>> similarity(2.5, 2.5), similarity(12.5, 2.5), similarity(-7.5, 2.5)
    (0.6, 0.96787, 0.06949)
    """
    odds_against = (1.0 - MATCH) / MATCH
    # Beyond these exponents all is 0 or 1.
    exponent = min(max(-_SLOPE * (score - threshold), -700.0), 700.0)
    found = round(1.0 / (1.0 + odds_against * math.exp(exponent)), _DIGITS)
    return max(found, MATCH) if score >= threshold else min(found, _BELOW)


def error_answer(problem: Problem) -> Response:
    """A problem as CompreFace tells it.

    Parameters
    ----------
    problem : Problem
        The problem.

    Returns
    -------
    Response
        JSON with a message, and a number that clients know: 28 means no face.
    """
    return JSONResponse(
        {"message": problem.detail, "code": _CODES.get(problem.code, 0)},
        status_code=_STATUSES.get(problem.status, problem.status),
        headers=problem.headers,
    )


class ErrorBody(BaseModel):
    """What went wrong."""

    message: str
    code: int = Field(
        description="A number of CompreFace: 28 means that no face is there."
    )


#: Errors that any route may give, for the OpenAPI document.
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody, "description": "The request cannot be answered"},
    503: {"model": ErrorBody, "description": "The service is not ready"},
}


class FaceBox(BaseModel):
    """Where a face is, in pixels of the upright photograph."""

    probability: float
    x_min: int
    y_min: int
    x_max: int
    y_max: int


class SubjectBody(BaseModel):
    """The name of a subject."""

    subject: str


class SubjectSimilarity(SubjectBody):
    """How similar a subject is; from 0.6 on it is a match."""

    similarity: float


class SeenFace(BaseModel):
    """A face."""

    box: FaceBox
    landmarks: list[tuple[int, int]] | None = None
    embedding: list[float] | None = None
    execution_time: dict[str, float] | None = None


class RecognisedFace(SeenFace):
    """A face, and who it is. Nobody, if it is unknown."""

    subjects: list[SubjectSimilarity]


class ComparedFace(SeenFace):
    """A face that was compared with another one."""

    similarity: float


class _Versions(BaseModel):
    plugins_versions: dict[str, str] | None = None


class RecogniseAnswer(_Versions):
    """All faces of a photograph, the largest first."""

    result: list[RecognisedFace]


class CompareAnswer(_Versions):
    """All faces of a photograph, compared with an enrolled person."""

    result: list[ComparedFace]


class DetectAnswer(_Versions):
    """Where faces are."""

    result: list[SeenFace]


class ComparedPhotographs(_Versions):
    """The face of one photograph, and the faces of the other."""

    source_image_face: SeenFace
    face_matches: list[ComparedFace]


class VerifyPhotographsAnswer(BaseModel):
    """Two photographs, compared."""

    result: list[ComparedPhotographs]


class ImageAnswer(SubjectBody):
    """A sample."""

    image_id: str


class FacesAnswer(BaseModel):
    """A page of samples."""

    faces: list[ImageAnswer]
    page_number: int
    page_size: int
    total_pages: int
    total_elements: int


class DeletedAnswer(BaseModel):
    """How many samples were erased."""

    deleted: int


class UpdatedAnswer(BaseModel):
    """That a subject was renamed, or merged."""

    updated: bool


class SubjectsAnswer(BaseModel):
    """All subjects."""

    subjects: list[str]


class EmbeddingsBody(BaseModel):
    """Vectors of faces."""

    embeddings: list[list[float]] = Field(min_length=1, max_length=1000)


class EmbeddingPair(BaseModel):
    """The vector of a face, and those to compare it with."""

    source: list[float]
    targets: list[list[float]] = Field(min_length=1, max_length=1000)


class RecognisedVector(BaseModel):
    """A vector, and who it is. Nobody, if it is unknown."""

    embedding: list[float]
    similarities: list[SubjectSimilarity]


class RecogniseVectorsAnswer(BaseModel):
    """Vectors, and who they are."""

    result: list[RecognisedVector]


class ComparedVector(BaseModel):
    """A vector that was compared."""

    embedding: list[float]
    similarity: float


class CompareVectorsAnswer(BaseModel):
    """Vectors that were compared."""

    result: list[ComparedVector]
