# SPDX-License-Identifier: BSD-3-Clause
"""Errors as answers: problem+json (RFC 9457) with codes that do not change."""

from typing import TYPE_CHECKING, Any

from dualqml._text import printable
from dualqml.exceptions import (
    DatabaseError,
    DualQMLError,
    MissingDependencyError,
    NetworkError,
    NoFaceError,
    NoThresholdError,
    PoorFaceError,
    RecognitionError,
    SeveralFacesError,
)

if TYPE_CHECKING:
    from fastapi.responses import JSONResponse

#: Every code: its status and its title.
CODES: dict[str, tuple[int, str]] = {
    "bad-request": (400, "The request cannot be read"),
    "unauthorized": (401, "A valid key is needed"),
    "forbidden": (403, "This key may not do that"),
    "csrf": (403, "The token of the page is missing"),
    "not-found": (404, "There is no such thing"),
    "no-image": (404, "No picture is kept"),
    "method-not-allowed": (405, "This address does not take that method"),
    "too-slow": (408, "The request took too long to arrive"),
    "conflict": (409, "That contradicts what is there"),
    "no-threshold": (409, "There is no threshold yet"),
    "no-model": (409, "There is no model yet"),
    "erased": (410, "Somebody was erased in the meantime"),
    "precondition-failed": (412, "It has changed since you read it"),
    "too-large": (413, "The request is too large"),
    "wrong-type": (415, "The body is not of a known type"),
    "invalid": (422, "A value is not valid"),
    "bad-image": (422, "The image cannot be read"),
    "too-many-pixels": (422, "The image has too many pixels"),
    "no-face": (422, "No face was found"),
    "several-faces": (422, "Several faces were found"),
    "poor-face": (422, "The face is not good enough"),
    "wrong-kind": (422, "The gallery takes another kind of samples"),
    "nothing-enrolled": (422, "No sample could be enrolled"),
    "bad-file": (422, "The file cannot be imported"),
    "rate-limited": (429, "Too many requests"),
    "internal": (500, "The service has failed"),
    "not-ready": (503, "The service is not ready"),
    "missing-package": (503, "An optional package is not installed"),
}


class Problem(DualQMLError, ValueError):
    """A request that cannot be answered as asked.

    Parameters
    ----------
    code : str
        A key of `CODES`.
    detail : str
        What is wrong, and what to do.
    headers : dict of str to str, optional
        Headers of the answer.
    **members : dict
        More members of the answer.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        headers: dict[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = printable(detail, 1000)
        self.headers = headers
        self.members = members

    @property
    def status(self) -> int:
        """The status of the answer."""
        return CODES[self.code][0]

    def body(self) -> dict[str, Any]:
        """The members of the answer.

        Returns
        -------
        dict
            Plain values.
        """
        status, title = CODES[self.code]
        return {
            "type": f"/problems#{self.code}",
            "title": title,
            "status": status,
            "detail": self.detail,
            "code": self.code,
            **self.members,
        }

    def answer(self) -> "JSONResponse":
        """The answer.

        Returns
        -------
        JSONResponse
            problem+json.
        """
        # The process that builds models has problems, and no answers.
        from fastapi.responses import JSONResponse

        return JSONResponse(
            self.body(),
            status_code=self.status,
            media_type="application/problem+json",
            headers=self.headers,
        )


def not_found() -> Problem:
    """The one answer for what does not exist and for what a key may not see."""
    return Problem("not-found", "There is no such thing, or this key may not see it.")


def code_of(error: DualQMLError) -> str:
    """The code for an error of the library.

    Parameters
    ----------
    error : DualQMLError
        The error.

    Returns
    -------
    str
        A key of `CODES`.
    """
    if isinstance(error, Problem):
        return error.code
    known: tuple[tuple[type[DualQMLError], str], ...] = (
        (NoFaceError, "no-face"),
        (SeveralFacesError, "several-faces"),
        (PoorFaceError, "poor-face"),
        (DatabaseError, "bad-image"),
        (NoThresholdError, "no-threshold"),
        (RecognitionError, "invalid"),
        (MissingDependencyError, "missing-package"),
        (NetworkError, "missing-package"),
    )
    return next((code for kind, code in known if isinstance(error, kind)), "internal")


def as_problem(error: DualQMLError) -> Problem:
    """An error of the library as a problem.

    Parameters
    ----------
    error : DualQMLError
        The error.

    Returns
    -------
    Problem
        The problem. What is no fault of the request is not told.
    """
    if isinstance(error, Problem):
        return error
    code = code_of(error)
    if code == "internal":
        return Problem(code, "The service has failed: its log tells more.")
    return Problem(code, str(error))
