# SPDX-License-Identifier: BSD-3-Clause
"""Fitted models in files, without pickle."""

from dualqml.exceptions import ModelFileError
from dualqml.persistence.model_files import load, save
from dualqml.persistence.tensors import read_tensors, write_tensors

__all__ = ["ModelFileError", "load", "read_tensors", "save", "write_tensors"]
