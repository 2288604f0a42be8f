# SPDX-License-Identifier: BSD-3-Clause
"""What every reader returns."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Database:
    """Images of people and whose they are.

    Attributes
    ----------
    name : str
        Name of the database.
    images : ndarray of shape (n_images, height, width)
        Grey images, 8 bits a pixel.
    labels : ndarray of shape (n_images,)
        The person on each image.
    citation : str
        How to credit the database.
    terms : str
        Under which terms its owners give it away.
    """

    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.str_]
    citation: str
    terms: str

    @property
    def rows(self) -> NDArray[np.float64]:
        """One image a row, pixels from 0 to 1."""
        return self.images.reshape(self.images.shape[0], -1) / 255.0
