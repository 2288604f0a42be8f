# SPDX-License-Identifier: BSD-3-Clause
"""Measurements of speed and accuracy, always beside rivals in the same run."""
