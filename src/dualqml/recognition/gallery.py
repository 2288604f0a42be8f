# SPDX-License-Identifier: BSD-3-Clause
"""Who is enrolled, and with which samples."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualqml._text import printable
from dualqml.exceptions import RecognitionError, UnknownSubjectError

#: Most characters of a name.
LONGEST_NAME = 200


class _Own(NamedTuple):
    """The samples of a subject, and a name for each."""

    rows: NDArray[Any]
    names: tuple[str, ...]


class Gallery:
    """Samples of subjects, independent of the order of enrolment.

    Subjects are sorted by name. Subjects that were enrolled and then removed leave no
    trace.
    """

    def __init__(self) -> None:
        self._people: dict[str, _Own] = {}
        #: Digests of people that have been asked for.
        self._digests: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._people)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._people))

    def __contains__(self, subject: object) -> bool:
        return subject in self._people

    def __getitem__(self, subject: str) -> NDArray[Any]:
        """Samples of a subject, one per row."""
        return self._own(subject).rows

    def _own(self, subject: str) -> _Own:
        try:
            return self._people[subject]
        except KeyError:
            raise UnknownSubjectError(
                f"{subject!r} is not enrolled; {len(self)} subjects are"
            ) from None

    @property
    def n_samples(self) -> int:
        """Number of samples of all subjects."""
        return sum(len(own.rows) for own in self._people.values())

    @property
    def rows(self) -> NDArray[Any]:
        """Samples of all subjects, one per row, subject after subject."""
        return np.concatenate([self[subject] for subject in self])

    @property
    def codes(self) -> NDArray[np.int64]:
        """The number of the subject of each row."""
        counts = [len(self[subject]) for subject in self]
        return np.repeat(np.arange(len(counts)), counts)

    def digest(self, subject: str) -> bytes:
        """The SHA-256 of the samples of a subject and their names.

        Parameters
        ----------
        subject : str
            The name.

        Returns
        -------
        bytes
            It is computed once.
        """
        if subject not in self._digests:
            rows, names = self._own(subject)
            text = json.dumps([rows.shape, rows.dtype.str, names])
            found = hashlib.sha256(text.encode())
            found.update(np.ascontiguousarray(rows).data)
            self._digests[subject] = found.digest()
        return self._digests[subject]

    def names(self, subject: str) -> tuple[str, ...]:
        """The names of the samples of a subject; "" for those without a name."""
        return self._own(subject).names

    @property
    def has_names(self) -> bool:
        """Whether any sample has a name."""
        return any(map(any, (own.names for own in self._people.values())))

    def add(
        self, subject: str, rows: NDArray[Any], names: Sequence[str] | None = None
    ) -> None:
        """Add samples of a subject, new or known.

        Parameters
        ----------
        subject : str
            The name.
        rows : ndarray of shape (n_samples, n_features)
            The samples.
        names : sequence of str, optional
            A name for each sample. None means that they have no names.

        Raises
        ------
        RecognitionError
            The name is empty, too long or not printable, or the samples do not have the
            size and type of the other samples.
        """
        subject = self.checked(subject, rows)
        own = _named(rows, names)
        self._digests.pop(subject, None)
        if subject in self._people:
            before = self._people[subject]
            rows = np.concatenate([before.rows, rows])
            own = _Own(rows, before.names + own.names)
        self._people[subject] = _Own(np.array(rows), own.names)

    def checked(self, subject: str, rows: NDArray[Any]) -> str:
        """The name if `add` would accept it with these samples; else raise."""
        subject = checked_name(subject)
        for other, _ in self._people.values():
            if (other.shape[1], other.dtype) != (rows.shape[1], rows.dtype):
                raise RecognitionError(
                    f"The samples of {subject!r} have {rows.shape[1]} values of type "
                    f"{rows.dtype}, those enrolled {other.shape[1]} of {other.dtype}"
                )
            break
        return subject

    def restore(
        self, subject: str, rows: NDArray[Any], names: Sequence[str] | None = None
    ) -> None:
        """Add samples of a file as they are, without a copy."""
        self._digests.pop(subject, None)
        self._people[checked_name(subject)] = _named(rows, names)

    def remove(self, subject: str, index: int | None = None) -> None:
        """Remove a subject, or one of its samples. With the last one it is gone too.

        Parameters
        ----------
        subject : str
            The name.
        index : int, optional
            The number of the sample, from 0. None means all samples.

        Raises
        ------
        UnknownSubjectError
            The subject is not enrolled.
        RecognitionError
            It has no such sample.
        """
        if index is not None:
            self.check_sample(subject, index)
        rows, names = self._own(subject)
        self._digests.pop(subject, None)
        left = np.arange(len(rows)) != index
        kept = {}
        if index is not None and left.any():
            kept[subject] = _Own(rows[left], names[:index] + names[index + 1 :])
        if rows.flags.owndata:
            del self._people[subject]
            self._people |= kept
            # The freed memory must not contain the samples.
            rows.fill(0)
        else:
            # The other samples are views of the same file, and would keep it in memory.
            self._people = kept | {
                other: _Own(np.array(own.rows), own.names)
                for other, own in self._people.items()
                if other != subject
            }

    def check_sample(self, subject: str, index: int) -> None:
        """Raise if a subject is not enrolled, or has no sample of this number."""
        n_samples = len(self[subject])
        whole = isinstance(index, int | np.integer) and not isinstance(index, bool)
        if not whole or not 0 <= index < n_samples:
            raise RecognitionError(
                f"{subject!r} has no sample {index!r}: they are numbered from 0, and "
                f"the last one is {n_samples - 1}"
            )


def _named(rows: NDArray[Any], names: Sequence[str] | None) -> _Own:
    """Samples with their names; raise if there is not one for each."""
    names = ("",) * len(rows) if names is None else tuple(names)
    if len(names) != len(rows):
        raise RecognitionError(
            f"{len(rows)} samples need as many names, got {len(names)}"
        )
    return _Own(rows, tuple(map(checked_sample_name, names)))


def checked_sample_name(name: object) -> str:
    """Check the name of a sample.

    Parameters
    ----------
    name : object
        The name.

    Returns
    -------
    str
        The same name.

    Raises
    ------
    RecognitionError
        It is not text, is too long, or has characters that cannot be printed.
    """
    if not isinstance(name, str):
        raise RecognitionError(f"A sample is named by text, not by {name!r}")
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise RecognitionError(
            f"{printable(name, 80)!r} cannot name a sample: a name has at most "
            f"{LONGEST_NAME} characters, and all are printable"
        )
    return str(name)


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
    if len(subject) > LONGEST_NAME:
        raise RecognitionError(
            f"The name of a subject may have {LONGEST_NAME} characters, this one has "
            f"{len(subject)}"
        )
    return str(subject)
