# SPDX-License-Identifier: BSD-3-Clause
"""Image databases and what is done to images before anything is learnt."""

from dualqml.data.ar import load_ar
from dualqml.data.casia_palm import load_casia_palm
from dualqml.data.database import Database
from dualqml.data.feret import load_feret
from dualqml.data.frgc import load_frgc
from dualqml.data.iitd_ear import load_iitd_ear
from dualqml.data.orl import load_orl
from dualqml.data.own_data import load_csv, load_folder, load_mat, load_npz
from dualqml.data.pie import load_pie
from dualqml.data.polyu_palm import load_polyu_palm
from dualqml.data.registry import DATABASES, DatabaseInfo, load_database, locate
from dualqml.data.splits import Split, fixed_split, random_split, visit_split
from dualqml.exceptions import DatabaseError, NoFaceError, SeveralFacesError
from dualqml.images.faces import Face, FaceCropper, FaceEmbedder, find_faces
from dualqml.images.geometry import align_eyes, crop, resize, to_grey
from dualqml.images.photometry import PhotometricNormaliser, Photometry
from dualqml.images.steps import Cropper, EyeAligner, GreyConverter, Resizer

__all__ = [
    "DATABASES",
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
    "Resizer",
    "SeveralFacesError",
    "Split",
    "align_eyes",
    "crop",
    "find_faces",
    "fixed_split",
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
    "load_pie",
    "load_polyu_palm",
    "locate",
    "random_split",
    "resize",
    "to_grey",
    "visit_split",
]
