# SPDX-License-Identifier: BSD-3-Clause
"""A database: what is known of it beforehand, and the images that readers return."""

from dataclasses import dataclass, replace
from typing import Any, Self

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


@dataclass(frozen=True, eq=False)
class Database:
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

    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.str_]
    citation: str
    terms: str
    visits: NDArray[np.int64] | None = None
    views: NDArray[np.str_] | None = None
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.images.ndim != 3 or self.images.dtype != np.uint8:
            raise DatabaseError(
                f"The images of {self.name} must be 8-bit and of shape (n_images, "
                f"height, width), not {self.images.dtype} of shape {self.images.shape}"
            )
        for field in ("labels", "visits", "views"):
            values = getattr(self, field)
            if values is not None and values.shape != (self.images.shape[0],):
                raise DatabaseError(
                    f"{self.name} has {self.images.shape[0]} images and {field} of "
                    f"shape {values.shape}: one value for each image is needed"
                )

    @property
    def rows(self) -> NDArray[np.float64]:
        """One row per image, with pixels from 0 to 1."""
        return self.images.reshape(self.images.shape[0], -1) / 255.0

    @property
    def subjects(self) -> NDArray[np.str_]:
        """The subjects, each once, sorted."""
        return np.unique(self.labels)

    @property
    def codes(self) -> NDArray[np.int64]:
        """The index in `subjects` of the subject on each image."""
        return np.unique(self.labels, return_inverse=True)[1].astype(np.int64)

    @property
    def copies(self) -> dict[str, str]:
        """Subjects whose images are copies, pixel by pixel, of an earlier subject's.

        Maps each such subject to the earlier one. Some widely shared files have
        such subjects by accident. No method can tell them apart, so the error
        rates of all methods are wrong with them.
        """
        first: dict[tuple[bytes, ...], str] = {}
        found = {}
        for subject in self.subjects.tolist():
            own = self.images[self.labels == subject]
            key = tuple(sorted(image.tobytes() for image in own))
            earlier = first.setdefault(key, subject)
            if earlier != subject:
                found[subject] = earlier
        return found

    def without_copies(self) -> Self:
        """Leave out the subjects in `copies`.

        Returns
        -------
        Database
            The other subjects; the same object if there are no copies.
        """
        copies = list(self.copies)
        return self.subset(~np.isin(self.labels, copies)) if copies else self

    def subset(self, rows: NDArray[Any]) -> Self:
        """Take some of the images.

        Parameters
        ----------
        rows : ndarray of int or bool
            Indices of the images, or a mask.

        Returns
        -------
        Database
            These images with their labels, visits and views. The name, citation,
            terms and skipped files stay the same.
        """
        return replace(
            self,
            images=self.images[rows],
            labels=self.labels[rows],
            visits=None if self.visits is None else self.visits[rows],
            views=None if self.views is None else self.views[rows],
        )
