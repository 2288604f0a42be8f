# SPDX-License-Identifier: BSD-3-Clause
"""Image databases."""

from dualqml.data.database import Database
from dualqml.data.orl import load_orl

__all__ = ["Database", "load_orl"]
