# SPDX-License-Identifier: BSD-3-Clause
"""The types of arrays that the mathematics works on."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]
