# SPDX-License-Identifier: BSD-3-Clause
"""Fitted models in files, without pickle."""

from dualqml._lazy import lazy_names

TYPE_CHECKING = False  # as in the module typing, which takes long to import
if TYPE_CHECKING:
    from dualqml.exceptions import ModelFileError
    from dualqml.persistence.model_files import load, save
    from dualqml.persistence.tensors import read_tensors, write_tensors

__all__ = ["ModelFileError", "load", "read_tensors", "save", "write_tensors"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "dualqml.exceptions": "ModelFileError",
        "dualqml.persistence.model_files": "load save",
        "dualqml.persistence.tensors": "read_tensors write_tensors",
    },
)
