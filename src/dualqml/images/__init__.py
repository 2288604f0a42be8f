# SPDX-License-Identifier: BSD-3-Clause
"""Pixels: what is done to images before anything is learnt from them."""

from dualqml.exceptions import NoFaceError, SeveralFacesError
from dualqml.images.descriptors import LocalDescriptors
from dualqml.images.faces import Face, FaceCropper, FaceEmbedder, find_faces
from dualqml.images.geometry import align_eyes, crop, resize, to_grey
from dualqml.images.photometry import PhotometricNormaliser, Photometry
from dualqml.images.steps import Cropper, EyeAligner, GreyConverter, Resizer

__all__ = [
    "Cropper",
    "EyeAligner",
    "Face",
    "FaceCropper",
    "FaceEmbedder",
    "GreyConverter",
    "LocalDescriptors",
    "NoFaceError",
    "PhotometricNormaliser",
    "Photometry",
    "Resizer",
    "SeveralFacesError",
    "align_eyes",
    "crop",
    "find_faces",
    "resize",
    "to_grey",
]
