# SPDX-License-Identifier: BSD-3-Clause
"""The research databases of the paper: one rule for each, one reader for all.

Their owners give them away on request. The file names say who is on an image. A rule
says how the names of a database are read and which images the paper uses; the reader
applies it. ``docs/data.md`` tells how to read copies with other names.
"""

import inspect
import os
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from dualqml._text import first_few
from dualqml.data.database import Database, Source
from dualqml.data.image_files import OnError, find_files, read_images
from dualqml.exceptions import DatabaseError
from dualqml.images.files import IMAGE_EXTENSIONS, extension, read_image
from dualqml.images.geometry import standard_grey
from dualqml.images.shapes import SizeLike

Subset = Literal["paper", "all"]


@dataclass(frozen=True)
class ImageFile:
    """One file and what its name says.

    Attributes
    ----------
    path : Path
        The file.
    subject : str
        The person, palm or ear on it.
    number : str
        Which of the subject's images it is. No two images of a subject have the
        same number.
    visit : int, optional
        The visit in which it was taken.
    view : str, optional
        Its code of pose, illumination or expression.
    """

    path: Path
    subject: str
    number: str
    visit: int | None = None
    view: str | None = None


@dataclass(frozen=True)
class Rule:
    """How a research database is read.

    Attributes
    ----------
    source : Source
        What is known of the database before it is read.
    pattern : re.Pattern
        Matches the names of its files, without their extension. Other files are
        ignored.
    describe : callable
        Takes a path and the match of its name and returns an `ImageFile`, or None
        if the file does not belong to the database.
    select : callable, optional
        Takes all files found and returns those of the paper's subset. By default
        the paper uses all files.
    none_selected : str
        The message if the subset is empty. It may use ``{n_images}`` and
        ``{n_subjects}``, the numbers found, and ``{root}``, the folder.
    extensions : frozenset of str
        Extensions of its files, in lower case.
    read : callable
        Reads one file as a grey image of a given size.
    """

    source: Source
    pattern: re.Pattern[str]
    describe: Callable[[Path, re.Match[str]], ImageFile | None]
    select: Callable[[list[ImageFile]], list[ImageFile]] | None = None
    none_selected: str = ""
    extensions: frozenset[str] = IMAGE_EXTENSIONS
    read: Callable[[Path, tuple[int, int]], NDArray[np.uint8]] = read_image


#: The number of the last AR image of the first visit.
_AR_LAST_OF_VISIT_1 = 13
#: The parts of the recording of CMU PIE by the names of their folders.
_PIE_PARTS = {
    "illum": "illum",
    "illumination": "illum",
    "lights": "lights",
    "expression": "expression",
    "expressions": "expression",
    "talking": "talking",
}
#: A folder of one subject of CMU PIE.
_PIE_SUBJECT = re.compile(r"\d{5}")
#: Size of AR's .raw images, in pixels.
_AR_RAW_HEIGHT, _AR_RAW_WIDTH = 576, 768


def _describe_ar(path: Path, name: re.Match[str]) -> ImageFile:
    # The owners' page writes F for women, their files w.
    sex = "m" if name["sex"].lower() == "m" else "w"
    number = int(name["image"])
    return ImageFile(
        path=path,
        subject=f"{sex}-{int(name['person']):03d}",
        number=f"{number:02d}",
        visit=1 if number <= _AR_LAST_OF_VISIT_1 else 2,
        view=f"{number:02d}",
    )


def _describe_pie(path: Path, name: re.Match[str]) -> ImageFile | None:
    # The nearest folder counts: folders above the database may have such names too.
    folders = [parent.name.lower() for parent in path.parents]
    subject = next((one for one in folders if _PIE_SUBJECT.fullmatch(one)), None)
    part = next((_PIE_PARTS[one] for one in folders if one in _PIE_PARTS), None)
    if subject is None or part is None:
        return None
    view = f"{part}/{name[0]}"
    return ImageFile(path=path, subject=subject, number=view, view=view)


def _describe_feret(path: Path, name: re.Match[str]) -> ImageFile:
    return ImageFile(
        path=path,
        subject=name["subject"],
        number=name["image"].lower(),
        view=(name["grey_pose"] or name["colour_pose"]).lower(),
    )


def _describe_frgc(path: Path, name: re.Match[str]) -> ImageFile:
    # Padded, so that the numbers as text have the order of the recordings.
    number = f"{int(name['recording']):06d}"
    return ImageFile(path=path, subject=name["subject"], number=number)


def _describe_polyu_palm(path: Path, name: re.Match[str]) -> ImageFile:
    visit = name["visit"].upper()
    return ImageFile(
        path=path,
        subject=f"{int(name['palm']):03d}",
        number=f"{visit}_{int(name['image']):02d}",
        visit=1 if visit == "F" else 2,
    )


def _describe_casia_palm(
    path: Path, name: re.Match[str], *, by_hand: bool
) -> ImageFile:
    person, hand = name["person"], name["hand"].lower()
    return ImageFile(
        path=path,
        subject=f"{person}_{hand}" if by_hand else person,
        number=f"{hand}_{int(name['image']):02d}",
        view=hand,
    )


def _describe_iitd_ear(path: Path, name: re.Match[str]) -> ImageFile:
    return ImageFile(
        path=path,
        subject=f"{int(name['subject']):03d}",
        number=f"{int(name['image']):02d}",
    )


def _complete_subjects(
    files: list[ImageFile], *, views: frozenset[str]
) -> list[ImageFile]:
    """Keep the images with the given views, of subjects that have all of them."""
    wanted = [file for file in files if file.view in views]
    views_of: dict[str, set[str | None]] = defaultdict(set)
    for file in wanted:
        views_of[file.subject].add(file.view)
    return [file for file in wanted if len(views_of[file.subject]) == len(views)]


def _frontal_camera(files: list[ImageFile]) -> list[ImageFile]:
    """Keep the images of CMU PIE's frontal camera, except of people who talk."""
    parts_and_names = [file.number.split("/", 1) for file in files]
    return [
        file
        for file, (part, name) in zip(files, parts_and_names, strict=True)
        if part != "talking" and name.startswith("27_")
    ]


def _evenly_spread(
    files: list[ImageFile], *, n_subjects: int, per_subject: int
) -> list[ImageFile]:
    """Take evenly spread images of the first subjects that have enough."""
    if per_subject < 1:
        raise DatabaseError(f"per_subject must be at least 1, not {per_subject}")
    images_of: dict[str, list[ImageFile]] = defaultdict(list)
    for file in files:
        images_of[file.subject].append(file)
    enough = [images for images in images_of.values() if len(images) >= per_subject]
    return [
        images[place]
        for images in enough[:n_subjects]
        for place in np.linspace(0, len(images) - 1, per_subject).round().astype(int)
    ]


def _read_ar(path: Path, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Read an image of AR: ``.raw`` files have planes of red, green and blue."""
    if path.suffix.lower() != ".raw":
        return read_image(path, size)
    try:
        pixels = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise DatabaseError(f"{path}: {error}") from error
    expected = 3 * _AR_RAW_HEIGHT * _AR_RAW_WIDTH
    if pixels.size != expected:
        raise DatabaseError(
            f"{path}: {pixels.size} bytes, a raw image of AR has {expected}"
        )
    planes = pixels.reshape(3, _AR_RAW_HEIGHT, _AR_RAW_WIDTH)
    return standard_grey(planes.transpose(1, 2, 0), size, colour=True)


_RESEARCH_ONLY = (
    "For research only, under an agreement with the owners; not to be passed on, and "
    "its images are not to be shown without their consent."
)
_INCOMPLETE = (
    "none of the {{n_subjects}} subjects found has all images of the paper's subset "
    '({views}). Copy the rest, or pass subset="all".'
)
_AR_UNOCCLUDED = frozenset(f"{n:02d}" for n in [*range(1, 8), *range(14, 21)])
_FERET_SMALL_POSES = frozenset({"ba", "bd", "be", "bf", "bg", "bj", "bk"})
_FRGC_SUBJECTS, _FRGC_PER_SUBJECT = 300, 20
_CASIA_PEOPLE = 312

#: The rules by the names of the databases.
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "ar": Rule(
            source=Source(
                title="AR",
                expects="files such as m-001-01.bmp and w-001-14.bmp (man or woman, "
                "person, image 01 to 26)",
                ask="apply to Aleix Martinez, The Ohio State University",
                citation="A. M. Martinez, R. Benavente, The AR face database, CVC "
                "Technical Report 24, 1998.",
                terms=_RESEARCH_ONLY,
                subjects=120,
                images=1680,
                training_sizes=(2, 4, 6, 8),
            ),
            pattern=re.compile(
                r"(?P<sex>[mwf])-(?P<person>\d{1,3})-(?P<image>0?[1-9]|1\d|2[0-6])",
                re.IGNORECASE,
            ),
            describe=_describe_ar,
            select=partial(_complete_subjects, views=_AR_UNOCCLUDED),
            none_selected=_INCOMPLETE.format(views=", ".join(sorted(_AR_UNOCCLUDED))),
            extensions=IMAGE_EXTENSIONS | {".raw"},
            read=_read_ar,
        ),
        "pie": Rule(
            source=Source(
                title="CMU PIE",
                expects="files such as 04002/illum/27_05.ppm (subject of five digits; "
                "illum, lights, expression or talking; camera_number)",
                ask="apply to The Robotics Institute, Carnegie Mellon University",
                citation="T. Sim, S. Baker, M. Bsat, The CMU pose, illumination, and "
                "expression database, IEEE TPAMI 25 (12), 2003.",
                terms=_RESEARCH_ONLY,
                subjects=68,
                images=68 * 46,
                training_sizes=(2, 4, 6, 8),
            ),
            pattern=re.compile(r"\d{2}_\w+"),
            describe=_describe_pie,
            select=_frontal_camera,
            none_selected="none of the {n_images} images in {root} is of camera 27, "
            'which the paper uses. Copy its images, or pass subset="all".',
        ),
        "feret": Rule(
            source=Source(
                title="FERET",
                expects="files such as 01013ba010_960521.tif or 00002_940928_fa.ppm "
                "(subject of five digits, code of the pose, date)",
                ask="apply to the US National Institute of Standards and Technology "
                "(NIST)",
                citation="P. J. Phillips, H. Moon, S. A. Rizvi, P. J. Rauss, The FERET "
                "evaluation methodology for face-recognition algorithms, IEEE TPAMI "
                "22 (10), 2000.",
                terms=_RESEARCH_ONLY,
                subjects=200,
                images=1400,
                training_sizes=(2, 4, 6),
            ),
            pattern=re.compile(
                r"""
                (?P<image>
                    (?P<subject>\d{5})
                    (   # Grey: pose, three flags, a letter in special cases, date.
                        (?P<grey_pose>[a-z]{2})\d{3}[a-z]?_\d{6}[a-z]?
                    |   # Colour: date, pose, a letter in special cases.
                        _\d{6}_(?P<colour_pose>[a-z]{2})(_[a-z])?
                    )
                )
                (\..*)?  # such as the .ppm of .ppm.bz2
                """,
                re.IGNORECASE | re.VERBOSE,
            ),
            describe=_describe_feret,
            select=partial(_complete_subjects, views=_FERET_SMALL_POSES),
            none_selected=_INCOMPLETE.format(
                views=", ".join(sorted(_FERET_SMALL_POSES))
            ),
        ),
        "frgc": Rule(
            source=Source(
                title="FRGC v2.0",
                expects="files such as Fall2003/04203d432.jpg (subject, d, number of "
                "the recording)",
                ask="apply to the Computer Vision Research Laboratory, University of "
                "Notre Dame, which distributes it for NIST",
                citation="P. J. Phillips et al., Overview of the face recognition "
                "grand challenge, CVPR 2005.",
                terms=_RESEARCH_ONLY,
                subjects=_FRGC_SUBJECTS,
                images=_FRGC_SUBJECTS * _FRGC_PER_SUBJECT,
                training_sizes=(2, 4, 6, 8),
            ),
            pattern=re.compile(r"(?P<subject>\d{5})d(?P<recording>\d+)", re.IGNORECASE),
            describe=_describe_frgc,
            # `load_frgc` adds the number of images of each subject.
            none_selected="none of the {{n_subjects}} subjects found has {per_subject} "
            'images. Lower per_subject, or pass subset="all".',
            # The .ppm files of the distribution are textures of three-dimensional
            # scans.
            extensions=frozenset(
                {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".pgm"}
            ),
        ),
        "polyu_palm": Rule(
            source=Source(
                title="PolyU palmprint",
                expects="files such as PolyU_001_F_01.bmp (palm, first or second visit "
                "F or S, number)",
                ask="apply to the Biometrics Research Centre, The Hong Kong "
                "Polytechnic University",
                citation="D. Zhang, W.-K. Kong, J. You, M. Wong, Online palmprint "
                "identification, IEEE TPAMI 25 (9), 2003.",
                terms=_RESEARCH_ONLY,
                subjects=386,
                images=7752,
                training_sizes=(2, 4, 6, 8),
            ),
            pattern=re.compile(
                r"PolyU_(?P<palm>\d{1,4})_(?P<visit>[FS])_(?P<image>\d{1,2})",
                re.IGNORECASE,
            ),
            describe=_describe_polyu_palm,
        ),
        "casia_palm": Rule(
            source=Source(
                title="CASIA palmprint",
                expects="files such as 0001/0001_m_l_01.jpg (person, m or f, left or "
                "right hand l or r, number)",
                ask="apply to the Institute of Automation, Chinese Academy of Sciences "
                "(CASIA)",
                citation="Z. Sun, T. Tan, Y. Wang, S. Z. Li, Ordinal palmprint "
                "representation for personal identification, CVPR 2005. Portions of "
                "the research use the CASIA Palmprint Database collected by the "
                "Chinese Academy of Sciences.",
                terms=_RESEARCH_ONLY,
                subjects=2 * _CASIA_PEOPLE,
                images=5502,
                training_sizes=(2, 4, 6, 8),
            ),
            pattern=re.compile(
                r"(?P<person>\d{4})_[mf]_(?P<hand>[lr])_(?P<image>\d{1,2})",
                re.IGNORECASE,
            ),
            describe=partial(_describe_casia_palm, by_hand=True),
        ),
        "iitd_ear": Rule(
            source=Source(
                title="IIT Delhi ear",
                expects="files such as 001_1.bmp (subject, number)",
                ask="apply to the Biometrics Research Laboratory, Indian Institute of "
                "Technology Delhi (Ajay Kumar)",
                citation="A. Kumar, C. Wu, Automated human identification using ear "
                "imaging, Pattern Recognition 45 (3), 2012.",
                terms=_RESEARCH_ONLY,
                subjects=212,
                images=754,
                training_sizes=(2, 3),
            ),
            pattern=re.compile(r"(?P<subject>\d{1,3})_(?P<image>\d{1,2})"),
            describe=_describe_iitd_ear,
        ),
    }
)


#: Text that the docstrings of all readers share, by its mark in them.
_SHARED_TEXT = {
    "<common parameters>": """\
root : path
    Folder of the files, which may be in folders below it.
size : sequence of int, default=(32, 32)
    Height and width to which the images are resized, with antialiasing.
on_error : {"raise", "skip"}, default="raise"
    What happens to files that cannot be read: an error that names them, or
    they are left out and listed in ``skipped``.""",
    "<errors and warnings>": """\
Raises
------
DatabaseError
    The folder has no image of the database, or files cannot be read.

Warns
-----
UserWarning
    There are fewer subjects or images than the paper used.""",
}

_Reader = TypeVar("_Reader", bound=Callable[..., Database])


def _with_shared_text(reader: _Reader) -> _Reader:
    """Put the shared text into the docstring of a reader."""
    # Without indentation, as from Python 3.13 on. With -OO there are no docstrings.
    text = inspect.getdoc(reader) or ""
    for mark, shared in _SHARED_TEXT.items():
        text = text.replace(mark, shared)
    reader.__doc__ = text
    return reader


@_with_shared_text
def load_ar(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
    subset: Subset = "paper",
) -> Database:
    """Load the AR face database from its files.

    The files are named ``m-xxx-yy`` for men and ``w-xxx-yy`` for women (``f`` means
    the same as ``w``): person xxx, image yy from 01 to 26. Images 01 to 13 are of
    the first visit and 14 to 26 of the second, in the same order: neutral, smile,
    anger, scream, light from the left, the right, both; then the same three lights
    with sun glasses and with a scarf. The usual image formats are read, and the
    owners' ``.raw``: 768 x 576 pixels, first all red values, then all green ones,
    then all blue ones. Faces are not cropped.

    Parameters
    ----------
    <common parameters>
    subset : {"paper", "all"}, default="paper"
        The paper uses the 14 images without occlusion (01 to 07 and 14 to 20) of
        the 120 people, 65 men and 55 women, who came twice. People who lack one of
        the 14 are left out. ``"all"`` reads every image.

    Returns
    -------
    Database
        Subjects such as ``m-001``, visits 1 and 2, views ``01`` to ``26``.

    <errors and warnings>
    """
    return _read_database(RULES["ar"], root, size, on_error, subset)


@_with_shared_text
def load_casia_palm(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
    subject: Literal["hand", "person"] = "hand",
) -> Database:
    """Load the CASIA palmprint database from its files.

    Files are named ``0001_m_l_01.jpg``: person, sex, hand (left or right), number.
    The paper uses all 5,502 images of 312 people, so there is no subset to choose.
    The region of interest is not cut out.

    Parameters
    ----------
    <common parameters>
    subject : {"hand", "person"}, default="hand"
        What is to be recognised. The two palms of a person differ, so most work on
        this database counts each hand as a subject. The paper does not say what it
        does.

    Returns
    -------
    Database
        Subjects such as ``0001_l`` (or ``0001``), views ``l`` and ``r``.

    <errors and warnings>
    """
    if subject not in ("hand", "person"):
        raise DatabaseError(f'subject must be "hand" or "person", not {subject!r}')
    rule = RULES["casia_palm"]
    if subject == "person":
        rule = replace(
            rule,
            source=replace(rule.source, subjects=_CASIA_PEOPLE),
            describe=partial(_describe_casia_palm, by_hand=False),
        )
    return _read_database(rule, root, size, on_error)


@_with_shared_text
def load_feret(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
    subset: Subset = "paper",
) -> Database:
    """Load the FERET face database from its files.

    Files of the grey distribution are named ``01013ba010_960521.tif``: subject,
    code of the pose, three flags, date; those of the colour distribution
    ``00002_940928_fa.ppm``: subject, date, pose. Both may be compressed one by one
    (``.bz2``). The colour discs hold each image in several sizes: give the folder
    of one of them. Faces are not cropped. Copies with one folder for each person
    are read with `load_folder`.

    Parameters
    ----------
    <common parameters>
    subset : {"paper", "all"}, default="paper"
        The paper uses 7 images of each of 200 people with poses from -25 to 25
        degrees: ``ba`` (frontal), ``bd``, ``be``, ``bf``, ``bg`` (25, 15, -15, -25
        degrees), ``bj`` (another expression) and ``bk`` (another illumination).
        People who lack one of the 7 are left out. ``"all"`` reads every image.

    Returns
    -------
    Database
        Subjects such as ``01013``, views such as ``ba``.

    <errors and warnings>
    """
    return _read_database(RULES["feret"], root, size, on_error, subset)


@_with_shared_text
def load_frgc(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
    subset: Subset = "paper",
    per_subject: int = _FRGC_PER_SUBJECT,
) -> Database:
    """Load the still images of FRGC version 2.0 from its files.

    Files are named ``04203d432.jpg``, the subject before the ``d`` and the number
    of the recording after it, in folders of semesters. Only the owners' XML lists
    say which images are controlled; these lists are not read. Faces are not
    cropped.

    Parameters
    ----------
    <common parameters>
    subset : {"paper", "all"}, default="paper"
        The paper uses 300 people and does not list them. Here they are the first
        300, in the order of their numbers, with at least `per_subject` images. Of
        each of them, `per_subject` images are taken, evenly spread over the
        recordings, which alternate between controlled and uncontrolled conditions.
        ``"all"`` reads every image.
    per_subject : int, default=20
        Images of each subject in the subset. The paper says both "6,000 images of
        300 subjects" and "40 images for each subject", which disagree; 20 gives
        the 6,000.

    Returns
    -------
    Database
        Subjects such as ``04203``.

    <errors and warnings>
    """
    rule = RULES["frgc"]
    rule = replace(
        rule,
        select=partial(
            _evenly_spread, n_subjects=rule.source.subjects, per_subject=per_subject
        ),
        none_selected=rule.none_selected.format(per_subject=per_subject),
    )
    return _read_database(rule, root, size, on_error, subset)


@_with_shared_text
def load_iitd_ear(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
) -> Database:
    """Load the IIT Delhi ear database from its files.

    Files are named ``001_1.bmp``: subject, number. The owners ship several versions
    (raw and normalised, 125 and 221 subjects) with the same names: give the folder
    of one. The paper uses a whole database of 754 images of 212 subjects; today's
    has 793 images of 221. It is not recorded which subjects were added, so all
    images in the folder are read.

    Parameters
    ----------
    <common parameters>

    Returns
    -------
    Database
        Subjects such as ``001``.

    <errors and warnings>
    """
    return _read_database(RULES["iitd_ear"], root, size, on_error)


@_with_shared_text
def load_pie(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
    subset: Subset = "paper",
) -> Database:
    """Load the CMU PIE face database from its files.

    The folders above a file name the subject (five digits, such as ``04002``) and
    the part of the recording, in any order: ``illum`` (flashes without room
    lights), ``lights`` (flashes with room lights), ``expression`` or ``talking``,
    in lower or upper case. The name of the file begins with the camera, such as
    ``27_05.ppm``. Other files are ignored. Copies with one folder for each person
    are read with `load_folder`, and the widely shared ``.mat`` files with
    `load_mat`. Faces are not cropped.

    Parameters
    ----------
    <common parameters>
    subset : {"paper", "all"}, default="paper"
        The paper uses the frontal images with all illuminations and expressions:
        camera 27, 43 illuminations and 3 expressions, 46 images of each of 68
        people. ``"all"`` reads every camera, and people who talk.

    Returns
    -------
    Database
        Subjects such as ``04002``, views such as ``illum/27_05``.

    <errors and warnings>
    """
    return _read_database(RULES["pie"], root, size, on_error, subset)


@_with_shared_text
def load_polyu_palm(
    root: str | os.PathLike[str],
    *,
    size: SizeLike = (32, 32),
    on_error: OnError = "raise",
) -> Database:
    """Load the PolyU palmprint database, version 2, from its files.

    Files are named ``PolyU_001_F_01.bmp``: palm, visit (``F`` first, ``S`` second),
    number. A subject is a palm, not a person. The paper uses all 7,752 images of
    386 palms, so there is no subset to choose. The region of interest is not cut
    out.

    Parameters
    ----------
    <common parameters>

    Returns
    -------
    Database
        Subjects such as ``001``, visits 1 and 2.

    <errors and warnings>
    """
    return _read_database(RULES["polyu_palm"], root, size, on_error)


def _read_database(
    rule: Rule,
    root: str | os.PathLike[str],
    size: SizeLike,
    on_error: OnError,
    subset: Subset = "paper",
) -> Database:
    """Find the files of a database, select the subset and read it."""
    if subset not in ("paper", "all"):
        raise DatabaseError(f'subset must be "paper" or "all", not {subset!r}')
    files = _find_images(rule, root)
    if subset == "paper":
        files = _select_subset(rule, files, root)
        missing = _missing_images(rule.source, files)
        if missing:
            # Level 3 is the caller of the public reader.
            warnings.warn(missing, UserWarning, stacklevel=3)
    paths = [file.path for file in files]
    images, kept, skipped = read_images(paths, size, on_error, read=rule.read)
    chosen = [files[place] for place in kept]
    # Visits and views are given only where every file has one.
    visits = [file.visit for file in chosen if file.visit is not None]
    views = [file.view for file in chosen if file.view is not None]
    return Database(
        name=rule.source.title,
        images=images,
        labels=np.array([file.subject for file in chosen]),
        citation=rule.source.citation,
        terms=rule.source.terms,
        visits=np.array(visits) if len(visits) == len(chosen) else None,
        views=np.array(views) if len(views) == len(chosen) else None,
        skipped=skipped,
    )


def _find_images(rule: Rule, root: str | os.PathLike[str]) -> list[ImageFile]:
    """Return the images of a database in the order of subjects and numbers."""
    source = rule.source
    expected = f"Expected: {source.expects}. To get the data: {source.ask}."
    try:
        paths = find_files(root)
    except DatabaseError as error:
        raise DatabaseError(f"{source.title}: {error}. {expected}") from error
    if not paths:
        raise DatabaseError(f"{source.title}: the folder {root} is empty. {expected}")
    found = []
    for path in paths:
        name = rule.pattern.fullmatch(path.stem)
        if name is None or extension(path) not in rule.extensions:
            continue
        file = rule.describe(path, name)
        if file is not None:
            found.append(file)
    if not found:
        names = first_few([str(path.relative_to(root)) for path in paths])
        raise DatabaseError(
            f"{source.title}: none of the {len(paths)} files in {root} is one of its "
            f"images. {expected} Found: {names}."
        )
    _refuse_duplicates(source, found)
    return sorted(found, key=lambda file: (file.subject, file.number))


def _refuse_duplicates(source: Source, files: Sequence[ImageFile]) -> None:
    # With the same picture in training and test set every error rate is too low.
    first_path: dict[tuple[str, str], Path] = {}
    for file in files:
        first = first_path.setdefault((file.subject, file.number), file.path)
        if first != file.path:
            raise DatabaseError(
                f"{source.title}: image {file.number} of subject {file.subject} is "
                f"there twice: {first} and {file.path}. Give the folder that has one "
                "version of each image."
            )


def _select_subset(
    rule: Rule, files: list[ImageFile], root: str | os.PathLike[str]
) -> list[ImageFile]:
    if rule.select is None:
        return files
    selected = rule.select(files)
    if not selected:
        reason = rule.none_selected.format(
            n_images=len(files), n_subjects=_n_subjects(files), root=root
        )
        raise DatabaseError(f"{rule.source.title}: {reason}")
    return selected


def _missing_images(source: Source, files: Sequence[ImageFile]) -> str:
    """Return a warning if there are fewer images than the paper used, or nothing."""
    n_subjects = _n_subjects(files)
    if n_subjects >= source.subjects and len(files) >= source.images:
        return ""
    return (
        f"{source.title}: the paper used {source.images} images of {source.subjects} "
        f"subjects, found {len(files)} of {n_subjects}. If the copy should be "
        "complete, compare it with the original."
    )


def _n_subjects(files: Sequence[ImageFile]) -> int:
    return len({file.subject for file in files})
