# SPDX-License-Identifier: BSD-3-Clause
"""Who is enrolled, and with which samples."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualqml.exceptions import RecognitionError, UnknownSubjectError

#: Names longer than this are taken for a mistake.
_LONGEST_NAME = 200


class Gallery:
    """Samples of subjects, kept so that the order of enrolment leaves no trace.

    Subjects are in the order of their names; whoever was enrolled and removed in
    between, and when, does not show.
    """

    def __init__(self) -> None:
        self._samples: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._samples))

    def __contains__(self, subject: object) -> bool:
        return subject in self._samples

    def __getitem__(self, subject: str) -> NDArray[Any]:
        """Samples of a subject, one a row."""
        try:
            return self._samples[subject]
        except KeyError:
            raise UnknownSubjectError(
                f"{subject!r} is not enrolled; {len(self)} subjects are"
            ) from None

    @property
    def n_samples(self) -> int:
        """Number of samples of all subjects."""
        return sum(len(own) for own in self._samples.values())

    @property
    def rows(self) -> NDArray[Any]:
        """Samples of all subjects, one a row, subject after subject."""
        return np.concatenate([self._samples[subject] for subject in self])

    @property
    def codes(self) -> NDArray[np.int64]:
        """The place of each row's subject in the order of subjects."""
        counts = [len(self._samples[subject]) for subject in self]
        return np.repeat(np.arange(len(counts)), counts)

    def add(self, subject: str, rows: NDArray[Any]) -> None:
        """Add samples of a subject, new or known.

        Parameters
        ----------
        subject : str
            Who.
        rows : ndarray of shape (n_samples, n_features)
            The samples.

        Raises
        ------
        RecognitionError
            The name is empty, too long or not printable, or the samples are not
            like those of the others.
        """
        subject = self.checked(subject, rows)
        if subject in self._samples:
            rows = np.concatenate([self._samples[subject], rows])
        self._samples[subject] = np.array(rows)

    def checked(self, subject: str, rows: NDArray[Any]) -> str:
        """The name, if `add` would take it with these samples; else its error."""
        subject = checked_name(subject)
        for other in self._samples.values():
            if (other.shape[1], other.dtype) != (rows.shape[1], rows.dtype):
                raise RecognitionError(
                    f"The samples of {subject!r} have {rows.shape[1]} values of type "
                    f"{rows.dtype}, those enrolled {other.shape[1]} of {other.dtype}"
                )
            break
        return subject

    def restore(self, subject: str, rows: NDArray[Any]) -> None:
        """Take samples from a file as they are, without a copy."""
        self._samples[checked_name(subject)] = rows

    def remove(self, subject: str) -> None:
        """Forget a subject.

        Raises
        ------
        UnknownSubjectError
            It is not enrolled.
        """
        own = self[subject]
        if own.flags.owndata:
            del self._samples[subject]
            # Not left in memory for whoever gets it next.
            own.fill(0)
        else:
            # The others are views of the same file, and would keep all of it.
            self._samples = {
                other: np.array(rows)
                for other, rows in self._samples.items()
                if other != subject
            }


def checked_name(subject: object) -> str:
    """A subject's name, if it is one.

    Parameters
    ----------
    subject : object
        What the caller gave.

    Returns
    -------
    str
        The same.

    Raises
    ------
    RecognitionError
        It is not text, empty, too long, or has characters that do not print.
    """
    if not isinstance(subject, str):
        raise RecognitionError(f"A subject is named by text, not by {subject!r}")
    if not subject.strip() or not subject.isprintable():
        raise RecognitionError(
            f"{subject!r} cannot name a subject: a name has printable characters and "
            "is not blank"
        )
    if len(subject) > _LONGEST_NAME:
        raise RecognitionError(
            f"The name of a subject may have {_LONGEST_NAME} characters, this one has "
            f"{len(subject)}"
        )
    return str(subject)
