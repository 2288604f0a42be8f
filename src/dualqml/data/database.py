# SPDX-License-Identifier: BSD-3-Clause
"""What every reader returns, and the error that readers raise."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dualqml.exceptions import DatabaseError


@dataclass(frozen=True, eq=False)
class Database:
    """Images of people and whose they are.

    Attributes
    ----------
    name : str
        Name of the database.
    images : ndarray of shape (n_images, height, width)
        Grey images, 8 bits a pixel.
    labels : ndarray of shape (n_images,)
        The subject on each image, as text.
    citation : str
        How to credit the database.
    terms : str
        Under which terms its owners give it away.
    visits : ndarray of shape (n_images,), optional
        The visit (session) in which each image was taken, where it is known.
    views : ndarray of shape (n_images,), optional
        The code of pose, illumination or expression of each image, where it is
        known.
    skipped : tuple of str
        Files that could not be read and were left out because the caller asked
        for it.

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
        """One image a row, pixels from 0 to 1."""
        return self.images.reshape(self.images.shape[0], -1) / 255.0

    @property
    def subjects(self) -> NDArray[np.str_]:
        """The subjects, each once, sorted."""
        return np.unique(self.labels)

    @property
    def codes(self) -> NDArray[np.int64]:
        """The place of each image's subject in `subjects`, from 0."""
        return np.unique(self.labels, return_inverse=True)[1].astype(np.int64)

    @property
    def copies(self) -> dict[str, str]:
        """Subjects whose images are pixel copies of an earlier subject's, and whose.

        Widely shared files have such subjects by accident. No method can tell them
        apart, and they flatter or spoil the error of all.
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
            The others; the same object if there are no copies.
        """
        copies = list(self.copies)
        return self.subset(~np.isin(self.labels, copies)) if copies else self

    def subset(self, rows: NDArray[Any]) -> Self:
        """The images of some rows.

        Parameters
        ----------
        rows : ndarray of int or bool
            Which.

        Returns
        -------
        Database
            All else is kept.
        """
        return replace(
            self,
            images=self.images[rows],
            labels=self.labels[rows],
            visits=None if self.visits is None else self.visits[rows],
            views=None if self.views is None else self.views[rows],
        )
