# SPDX-License-Identifier: BSD-3-Clause
"""The databases that are known by name, and one function that opens any database."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dualqml.data.database import Database, Source
from dualqml.data.orl import SOURCE as ORL_SOURCE
from dualqml.data.orl import load_orl
from dualqml.data.own_data import load_csv, load_folder, load_mat, load_npz
from dualqml.data.research_databases import (
    RULES,
    load_ar,
    load_casia_palm,
    load_feret,
    load_frgc,
    load_iitd_ear,
    load_pie,
    load_polyu_palm,
)
from dualqml.exceptions import DatabaseError


@dataclass(frozen=True, kw_only=True)
class DatabaseInfo(Source):
    """A database that is known by name.

    Attributes
    ----------
    name : str
        Its name in `DATABASES`. The other fields are those of `Source`.
    loader : callable
        Its reader. Its first argument is the folder, except for an embedded
        database.
    embedded : bool
        Whether the images come with an optional package, so that no folder is
        needed.
    """

    name: str
    loader: Callable[..., Database]
    embedded: bool = False


_RESEARCH_LOADERS: Mapping[str, Callable[..., Database]] = {
    "ar": load_ar,
    "pie": load_pie,
    "feret": load_feret,
    "frgc": load_frgc,
    "polyu_palm": load_polyu_palm,
    "casia_palm": load_casia_palm,
    "iitd_ear": load_iitd_ear,
}

DATABASES: Mapping[str, DatabaseInfo] = MappingProxyType(
    {
        name: DatabaseInfo(**vars(RULES[name].source), name=name, loader=loader)
        for name, loader in _RESEARCH_LOADERS.items()
    }
    | {
        "orl": DatabaseInfo(
            **vars(ORL_SOURCE), name="orl", loader=load_orl, embedded=True
        )
    }
)

_FILE_LOADERS: Mapping[str, Callable[..., Database]] = MappingProxyType(
    {".csv": load_csv, ".mat": load_mat, ".npz": load_npz}
)


def load_database(
    name_or_path: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Database:
    """Open a database by its name, or your own folder or file.

    Parameters
    ----------
    name_or_path : str or path
        A name in `DATABASES`; or a folder with one folder for each person
        (`load_folder`); or a ``.csv`` (`load_csv`), ``.npz`` (`load_npz`) or
        ``.mat`` (`load_mat`) file. A folder with the name of a known database is
        opened as ``./name``.
    root : path, optional
        Where a known database is: its folder, or a folder that holds ``name/``,
        ``name.npz`` or ``name.mat``. ORL does not need it.
    **options : dict
        Passed to the reader; ``on_error`` only to readers of single image files.

    Returns
    -------
    Database
        The images.

    Raises
    ------
    DatabaseError
        There is no such name or path, or it cannot be read.

    Examples
    --------
    >>> from dualqml.data import load_database
    >>> load_database("orl", size=(16, 16)).images.shape
    (400, 16, 16)
    """
    info = DATABASES.get(name_or_path) if isinstance(name_or_path, str) else None
    if info is not None:
        if info.embedded:
            options.pop("on_error", None)
            return info.loader(**options)
        if root is None:
            raise DatabaseError(
                f"{info.title} does not come with dualqml: pass root, the folder where "
                f"it is. Expected: {info.expects}. To get the data: {info.ask}."
            )
        found = locate(info.name, root)
        loader = _FILE_LOADERS.get(found.suffix.lower()) if found.is_file() else None
        if loader is None:
            return info.loader(found, **options)
        options.pop("on_error", None)
        return replace(
            loader(found, **options),
            name=info.title,
            citation=info.citation,
            terms=info.terms,
        )
    path = Path(name_or_path)
    if root is not None:
        path = Path(root, path)
    if path.is_dir():
        return load_folder(path, **options)
    loader = _FILE_LOADERS.get(path.suffix.lower())
    if loader is None or not path.is_file():
        raise DatabaseError(
            f"{path} is neither a folder nor a .csv, .npz or .mat file, nor the name "
            f"of a known database ({', '.join(DATABASES)})"
        )
    if loader is not load_csv:
        options.pop("on_error", None)
    return loader(path, **options)


def locate(name: str, root: str | os.PathLike[str]) -> Path:
    """Return the folder or file from which a known database is read.

    Parameters
    ----------
    name : str
        A name in `DATABASES`.
    root : path
        Its folder, or the folder that holds it.

    Returns
    -------
    Path
        ``root/name`` if that is a folder; else ``root/name.npz`` or
        ``root/name.mat`` if that is a file; else `root` itself.
    """
    below = Path(root, name)
    if below.is_dir():
        return below
    for extension in (".npz", ".mat"):
        file = below.with_suffix(extension)
        if file.is_file():
            return file
    return Path(root)
