# SPDX-License-Identifier: BSD-3-Clause
"""What every reader returns, and the error that readers raise."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualqml.core import DualQMLError


class DatabaseError(DualQMLError, ValueError):
    """A database cannot be read: the message says what was expected and found."""


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
