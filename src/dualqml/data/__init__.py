# SPDX-License-Identifier: BSD-3-Clause
"""Databases of images and of vectors: their readers, and splits."""

from dualqml._lazy import lazy_names

TYPE_CHECKING = False  # as in the module typing, which takes long to import
if TYPE_CHECKING:
    from dualqml.data.database import AnyDatabase, Database, VectorDatabase
    from dualqml.data.orl import load_orl
    from dualqml.data.own_data import load_csv, load_folder, load_mat, load_npz
    from dualqml.data.photographs import load_photographs
    from dualqml.data.registry import DATABASES, DatabaseInfo, load_database, locate
    from dualqml.data.research_databases import (
        load_ar,
        load_casia_palm,
        load_feret,
        load_frgc,
        load_iitd_ear,
        load_pie,
        load_polyu_palm,
    )
    from dualqml.data.splits import Split, fixed_split, random_split, visit_split
    from dualqml.data.vectors import holds_vectors, load_vectors
    from dualqml.exceptions import (
        DatabaseError,
        NoFaceError,
        PoorFaceError,
        SeveralFacesError,
    )
    from dualqml.images.face_steps import FaceCropper, FaceEmbedder
    from dualqml.images.faces import Face, find_faces
    from dualqml.images.geometry import align_eyes, crop, resize, to_grey
    from dualqml.images.photometry import PhotometricNormaliser, Photometry
    from dualqml.images.steps import Cropper, EyeAligner, GreyConverter, Resizer

__all__ = [
    "DATABASES",
    "AnyDatabase",
    "Cropper",
    "Database",
    "DatabaseError",
    "DatabaseInfo",
    "EyeAligner",
    "Face",
    "FaceCropper",
    "FaceEmbedder",
    "GreyConverter",
    "NoFaceError",
    "PhotometricNormaliser",
    "Photometry",
    "PoorFaceError",
    "Resizer",
    "SeveralFacesError",
    "Split",
    "VectorDatabase",
    "align_eyes",
    "crop",
    "find_faces",
    "fixed_split",
    "holds_vectors",
    "load_ar",
    "load_casia_palm",
    "load_csv",
    "load_database",
    "load_feret",
    "load_folder",
    "load_frgc",
    "load_iitd_ear",
    "load_mat",
    "load_npz",
    "load_orl",
    "load_photographs",
    "load_pie",
    "load_polyu_palm",
    "load_vectors",
    "locate",
    "random_split",
    "resize",
    "to_grey",
    "visit_split",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "dualqml.data.database": "AnyDatabase Database VectorDatabase",
        "dualqml.data.orl": "load_orl",
        "dualqml.data.own_data": "load_csv load_folder load_mat load_npz",
        "dualqml.data.photographs": "load_photographs",
        "dualqml.data.registry": "DATABASES DatabaseInfo load_database locate",
        "dualqml.data.research_databases": (
            "load_ar load_casia_palm load_feret load_frgc load_iitd_ear load_pie "
            "load_polyu_palm"
        ),
        "dualqml.data.splits": "Split fixed_split random_split visit_split",
        "dualqml.data.vectors": "holds_vectors load_vectors",
        "dualqml.exceptions": (
            "DatabaseError NoFaceError PoorFaceError SeveralFacesError"
        ),
        "dualqml.images.face_steps": "FaceCropper FaceEmbedder",
        "dualqml.images.faces": "Face find_faces",
        "dualqml.images.geometry": "align_eyes crop resize to_grey",
        "dualqml.images.photometry": "PhotometricNormaliser Photometry",
        "dualqml.images.steps": "Cropper EyeAligner GreyConverter Resizer",
    },
)
