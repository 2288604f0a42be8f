# SPDX-License-Identifier: BSD-3-Clause
"""Pixels: what is done to images before anything is learnt from them."""

from dualqml._lazy import lazy_names

TYPE_CHECKING = False  # as in the module typing, which takes long to import
if TYPE_CHECKING:
    from dualqml.exceptions import NoFaceError, PoorFaceError, SeveralFacesError
    from dualqml.images.descriptors import LocalDescriptors
    from dualqml.images.face_steps import FaceCropper, FaceEmbedder
    from dualqml.images.faces import Face, find_faces
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
    "PoorFaceError",
    "Resizer",
    "SeveralFacesError",
    "align_eyes",
    "crop",
    "find_faces",
    "resize",
    "to_grey",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "dualqml.exceptions": "NoFaceError PoorFaceError SeveralFacesError",
        "dualqml.images.descriptors": "LocalDescriptors",
        "dualqml.images.face_steps": "FaceCropper FaceEmbedder",
        "dualqml.images.faces": "Face find_faces",
        "dualqml.images.geometry": "align_eyes crop resize to_grey",
        "dualqml.images.photometry": "PhotometricNormaliser Photometry",
        "dualqml.images.steps": "Cropper EyeAligner GreyConverter Resizer",
    },
)
