# SPDX-License-Identifier: BSD-3-Clause
"""Who is enrolled, and with which samples."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualqml.exceptions import RecognitionError, UnknownSubjectError

#: Most characters of a name.
_LONGEST_NAME = 200


class Gallery:
    """Samples of subjects, independent of the order of enrolment.

    Subjects are sorted by name. Subjects that were enrolled and then removed leave no
    trace.
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
        """Samples of a subject, one per row."""
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
        """Samples of all subjects, one per row, subject after subject."""
        return np.concatenate([self._samples[subject] for subject in self])

    @property
    def codes(self) -> NDArray[np.int64]:
        """The number of the subject of each row."""
        counts = [len(self._samples[subject]) for subject in self]
        return np.repeat(np.arange(len(counts)), counts)

    def add(self, subject: str, rows: NDArray[Any]) -> None:
        """Add samples of a subject, new or known.

        Parameters
        ----------
        subject : str
            The name.
        rows : ndarray of shape (n_samples, n_features)
            The samples.

        Raises
        ------
        RecognitionError
            The name is empty, too long or not printable, or the samples do not have the
            size and type of the other samples.
        """
        subject = self.checked(subject, rows)
        if subject in self._samples:
            rows = np.concatenate([self._samples[subject], rows])
        self._samples[subject] = np.array(rows)

    def checked(self, subject: str, rows: NDArray[Any]) -> str:
        """The name if `add` would accept it with these samples; else raise."""
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
        """Add samples of a file as they are, without a copy."""
        self._samples[checked_name(subject)] = rows

    def remove(self, subject: str) -> None:
        """Remove a subject.

        Raises
        ------
        UnknownSubjectError
            The subject is not enrolled.
        """
        own = self[subject]
        if own.flags.owndata:
            del self._samples[subject]
            # The freed memory must not contain the samples.
            own.fill(0)
        else:
            # The other samples are views of the same file, and would keep it in memory.
            self._samples = {
                other: np.array(rows)
                for other, rows in self._samples.items()
                if other != subject
            }


def checked_name(subject: object) -> str:
    """Check the name of a subject.

    Parameters
    ----------
    subject : object
        The name.

    Returns
    -------
    str
        The same name.

    Raises
    ------
    RecognitionError
        It is not text, is blank or too long, or has characters that cannot be printed.
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
