# SPDX-License-Identifier: BSD-3-Clause
"""The parts of scikit-learn that are not public, imported in one place."""

from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

__all__ = ["Interval", "StrOptions", "_fit_context"]
