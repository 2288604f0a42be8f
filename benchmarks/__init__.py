# SPDX-License-Identifier: BSD-3-Clause
"""Measurements of speed and accuracy, each a ratio against a rival."""
