# SPDX-License-Identifier: BSD-3-Clause
"""Image databases and what is done to images before anything is learnt."""

from dualqml.data.ar import load_ar
from dualqml.data.arrays import load_mat, load_npz
from dualqml.data.casia_palm import load_casia_palm
from dualqml.data.csv_list import load_csv
from dualqml.data.database import Database, DatabaseError
from dualqml.data.faces import Face, NoFaceError, SeveralFacesError, find_faces
from dualqml.data.feret import load_feret
from dualqml.data.folder import load_folder
from dualqml.data.frgc import load_frgc
from dualqml.data.geometry import align_eyes, crop, resize, to_grey
from dualqml.data.iitd_ear import load_iitd_ear
from dualqml.data.orl import load_orl
from dualqml.data.photographs import FaceCropper, FaceEmbedder
from dualqml.data.photometry import PhotometricNormaliser, Photometry
from dualqml.data.pie import load_pie
from dualqml.data.pipeline_steps import Cropper, EyeAligner, GreyConverter, Resizer
from dualqml.data.polyu_palm import load_polyu_palm
from dualqml.data.registry import DATABASES, DatabaseInfo, load_database, locate
from dualqml.data.splits import Split, fixed_split, random_split, visit_split

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
