# SPDX-License-Identifier: BSD-3-Clause
"""A database: what is known of it beforehand, and the samples that readers return."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dualqml.exceptions import DatabaseError


@dataclass(frozen=True)
class Source:
    """What is known of a database before it is read.

    Attributes
    ----------
    title : str
        Its name in print.
    expects : str
        The files that its reader understands, in one line.
    ask : str
        How to get it.
    citation, terms : str
        As in `Database`.
    subjects, images : int
        Number of subjects and of images that the paper used.
    training_sizes : tuple of int
        The numbers m of training images for each subject in the paper; empty if
        the paper does not use the database.
    may_be_shown : bool
        Whether its images may be shown in documents and reports.
    """

    title: str
    expects: str
    ask: str
    citation: str
    terms: str
    subjects: int
    images: int
    training_sizes: tuple[int, ...]
    may_be_shown: bool = False


class _Samples:
    """What databases of images and of vectors have in common."""

    #: The field that holds the samples.
    _field: ClassVar[str]

    labels: NDArray[np.str_]
    visits: NDArray[np.int64] | None
    views: NDArray[np.str_] | None
    files: NDArray[np.str_] | None

    @property
    def samples(self) -> NDArray[Any]:
        """The images or the vectors, as they were read."""
        samples: NDArray[Any] = getattr(self, self._field)
        return samples

    @property
    def subjects(self) -> NDArray[np.str_]:
        """The subjects, each once, sorted."""
        return np.unique(self.labels)

    @property
    def codes(self) -> NDArray[np.int64]:
        """The index in `subjects` of the subject of each sample."""
        return np.unique(self.labels, return_inverse=True)[1].astype(np.int64)

    @property
    def copies(self) -> dict[str, str]:
        """Subjects whose samples are copies, to the last bit, of an earlier subject's.

        Maps each such subject to the earlier one. Some widely shared files have
        such subjects by accident. No method can tell them apart, so the error
        rates of all methods are wrong with them.
        """
        first: dict[tuple[bytes, ...], str] = {}
        found = {}
        for subject in self.subjects.tolist():
            own = self.samples[self.labels == subject]
            key = tuple(sorted(sample.tobytes() for sample in own))
            earlier = first.setdefault(key, subject)
            if earlier != subject:
                found[subject] = earlier
        return found

    def without_copies(self) -> Self:
        """Leave out the subjects in `copies`.

        Returns
        -------
        Database or VectorDatabase
            The other subjects; the same object if there are no copies.
        """
        copies = list(self.copies)
        return self.subset(~np.isin(self.labels, copies)) if copies else self

    def subset(self, rows: NDArray[Any]) -> Self:
        """Take some of the samples.

        Parameters
        ----------
        rows : ndarray of int or bool
            Indices of the samples, or a mask.

        Returns
        -------
        Database or VectorDatabase
            These samples with their labels, visits, views and files. The name,
            citation, terms and skipped files stay the same.
        """
        chosen: dict[str, Any] = {
            self._field: self.samples[rows],
            "labels": self.labels[rows],
            "visits": None if self.visits is None else self.visits[rows],
            "views": None if self.views is None else self.views[rows],
            "files": None if self.files is None else self.files[rows],
        }
        return replace(self, **chosen)  # type: ignore[type-var]

    def _check_lengths(self, name: str, noun: str) -> None:
        n_samples = len(self.samples)
        for field in ("labels", "visits", "views", "files"):
            values = getattr(self, field)
            if values is not None and values.shape != (n_samples,):
                raise DatabaseError(
                    f"{name} has {n_samples} {noun}s and {field} of shape "
                    f"{values.shape}: one value for each {noun} is needed"
                )


@dataclass(frozen=True, eq=False)
class Database(_Samples):
    """Images and the subject on each of them.

    Attributes
    ----------
    name : str
        Name of the database.
    images : ndarray of shape (n_images, height, width)
        Grey images, with 8 bits for each pixel.
    labels : ndarray of shape (n_images,)
        The subject on each image, as text.
    citation : str
        How to credit the database.
    terms : str
        The terms under which its owners give it away.
    visits : ndarray of shape (n_images,), optional
        The visit (session) in which each image was taken, if it is known.
    views : ndarray of shape (n_images,), optional
        The code of pose, illumination or expression of each image, if it is known.
    skipped : tuple of str
        Files that could not be read and were left out at the request of the
        caller.
    files : ndarray of shape (n_images,), optional
        The file of each image, relative to the database, if each has one.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.data import Database
    >>> database = Database(
    ...     name="two people",
    ...     images=np.zeros((3, 4, 4), dtype=np.uint8),
    ...     labels=np.array(["Zoe", "Ann", "Zoe"]),
    ...     citation="",
    ...     terms="",
    ... )
    >>> database.subjects.tolist(), database.codes.tolist()
    (['Ann', 'Zoe'], [1, 0, 1])
    """

    _field: ClassVar[str] = "images"

    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.str_]
    citation: str
    terms: str
    visits: NDArray[np.int64] | None = None
    views: NDArray[np.str_] | None = None
    skipped: tuple[str, ...] = ()
    files: NDArray[np.str_] | None = None

    def __post_init__(self) -> None:
        if self.images.ndim != 3 or self.images.dtype != np.uint8:
            raise DatabaseError(
                f"The images of {self.name} must be 8-bit and of shape (n_images, "
                f"height, width), not {self.images.dtype} of shape {self.images.shape}"
            )
        self._check_lengths(self.name, "image")

    @property
    def rows(self) -> NDArray[np.float64]:
        """One row per image, with pixels from 0 to 1."""
        return self.images.reshape(self.images.shape[0], -1) / 255.0

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of the images."""
        _, height, width = self.images.shape
        return height, width


@dataclass(frozen=True, eq=False)
class VectorDatabase(_Samples):
    """Vectors, such as the embeddings of a network, and the subject of each.

    Attributes
    ----------
    name : str
        Name of the database.
    vectors : ndarray of shape (n_vectors, n_features)
        The vectors, all of finite numbers.
    labels : ndarray of shape (n_vectors,)
        The subject of each vector, as text.
    citation : str
        How to credit the database.
    terms : str
        The terms under which its owners give it away.
    visits : ndarray of shape (n_vectors,), optional
        The visit (session) of each vector, if it is known.
    views : ndarray of shape (n_vectors,), optional
        A code of how each sample was taken, if it is known.
    skipped : tuple of str
        Files that were left out, with the reasons.
    files : ndarray of shape (n_vectors,), optional
        The photograph of each vector, relative to the database, if it comes from one.
    remarks : tuple of str
        What the user should know about photographs that were used.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.data import VectorDatabase
    >>> database = VectorDatabase("two people", np.eye(3), np.array(["B", "A", "B"]))
    >>> database.subjects.tolist(), database.codes.tolist(), database.image_shape
    (['A', 'B'], [1, 0, 1], None)
    """

    _field: ClassVar[str] = "vectors"

    name: str
    vectors: NDArray[np.floating]
    labels: NDArray[np.str_]
    citation: str = ""
    terms: str = ""
    visits: NDArray[np.int64] | None = None
    views: NDArray[np.str_] | None = None
    skipped: tuple[str, ...] = ()
    files: NDArray[np.str_] | None = None
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or self.vectors.dtype.kind != "f":
            raise DatabaseError(
                f"The vectors of {self.name} must be floating-point numbers of shape "
                f"(n_vectors, n_features), not {self.vectors.dtype} of shape "
                f"{self.vectors.shape}"
            )
        finite = np.isfinite(self.vectors).all(axis=1)
        if not finite.all():
            raise DatabaseError(
                f"{self.name}: {int((~finite).sum())} vectors have values that are not "
                f"finite, the first is row {int(finite.argmin())} (counted from 0). "
                "Leave these rows out."
            )
        self._check_lengths(self.name, "vector")

    @property
    def rows(self) -> NDArray[np.float64]:
        """One row per vector, in double precision."""
        return self.vectors.astype(np.float64)

    @property
    def image_shape(self) -> None:
        """None: vectors are not images."""
        return None


#: What splits, experiments and reports can work with.
AnyDatabase = Database | VectorDatabase
