# SPDX-License-Identifier: BSD-3-Clause
"""What an experiment runs: databases, splits, methods and repetitions."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from dualqml.data import (
    DATABASES,
    AnyDatabase,
    Split,
    fixed_split,
    random_split,
    visit_split,
)
from dualqml.exceptions import DatabaseError, MethodError
from dualqml.extractors.methods import ALL_METHODS, METHODS
from dualqml.extractors.own_methods import OwnMethod
from dualqml.images.photometry import Photometry

ProtocolKind = Literal["random", "visits", "fixed"]

#: What methods get of images: their pixels, or their local descriptors.
ImageInput = Literal["pixels", "local"]

#: The input of databases that have no images.
VECTORS = "vectors"

#: Normalisations that make sense for vectors too.
_OF_VECTORS = ("unit-norm", "none")

#: Training sizes tried on a database that the paper does not use.
DEFAULT_SIZES = (2, 4, 6, 8)

#: The names of databases in the paper's tables, in the paper's order.
_PAPER_NAMES: Mapping[str, str] = {
    "ar": "AR",
    "pie": "PIE",
    "feret": "FERET",
    "frgc": "FRGC",
    "polyu_palm": "PolyU",
    "casia_palm": "CASIA",
    "iitd_ear": "IITD-ear",
}


@dataclass(frozen=True)
class Protocol:
    """How training and test images are chosen.

    Attributes
    ----------
    kind : {"random", "visits", "fixed"}
        "random" is the paper's: it trains on m random images of each subject and
        tests on the others. "visits" trains on some visits and tests on the others.
        "fixed" trains on given rows and tests on the others.
    train_visits : tuple of int
        The training visits of "visits".
    train_rows : tuple of int
        The training rows of "fixed".
    """

    kind: ProtocolKind = "random"
    train_visits: tuple[int, ...] = (1,)
    train_rows: tuple[int, ...] = ()

    def split(self, database: AnyDatabase, m: int, seed: int, repetition: int) -> Split:
        """Divide a database for one repetition, the same for all methods.

        Parameters
        ----------
        database : Database or VectorDatabase
            What to divide.
        m : int
            Training samples of each subject, for "random".
        seed : int
            Seed of the experiment.
        repetition : int
            Number of the repetition.

        Returns
        -------
        Split
            Training and test images.
        """
        try:
            if self.kind == "visits":
                return visit_split(database.labels, database.visits, self.train_visits)
            if self.kind == "fixed":
                return fixed_split(database.labels, self.train_rows)
            return random_split(database.labels, m, [seed, m, repetition])
        except DatabaseError as error:
            raise DatabaseError(f"{database.name}: {error}") from error


@dataclass(frozen=True)
class Unit:
    """One method on one split: the unit of work, and the key of its result.

    Attributes
    ----------
    database : str
        Name of the database.
    data : str
        Fingerprint of its samples and labels.
    protocol : str
        Kind of the protocol.
    m : int
        Training samples of each subject; 0 for protocols without m.
    method : str
        A key of `METHODS` or `VECTOR_METHODS`, or the name of a method of your own.
    tuned : bool
        Whether further parameters are chosen on the training set, beside those that
        the method itself chooses.
    photometry : str
        How the illumination of the images is normalised, the same for all methods.
    seed : int
        Seed of the experiment.
    repetition : int
        Number of the repetition, from 0.
    split : str
        Fingerprint of the split.
    input : {"pixels", "local", "vectors"}
        What the method gets: pixels of images, local descriptors of images, or
        vectors.
    spec : str
        Class and parameters of a method of your own (`OwnMethod.spec`); empty for
        the others.
    """

    database: str
    data: str
    protocol: str
    m: int
    method: str
    tuned: bool
    photometry: str
    seed: int
    repetition: int
    split: str
    input: str = "pixels"
    spec: str = ""


@dataclass(frozen=True)
class Experiment:
    """A grid of methods, databases, training sizes and repetitions.

    Attributes
    ----------
    databases : dict of str to Database or VectorDatabase
        The databases, by the name that results carry.
    sizes : tuple of int or None
        Training samples of each subject; None means the paper's for each database.
    methods : tuple of str or None
        Keys of `METHODS` or `VECTOR_METHODS`. None means `METHODS` for images, and
        both for vectors.
    repeats : int
        Number of repetitions; protocols that are not random have one.
    seed : int
        Seed of the splits.
    photometry : str
        Method of `PhotometricNormaliser`, the same for all methods. Vectors can only
        have "unit-norm" or "none".
    tune : bool
        Whether the rivals choose their parameters on the training set too.
    protocol : Protocol
        How samples are divided.
    inputs : tuple of {"pixels", "local"}
        What methods get of images. Methods that need images as such are left out
        with "local" and with vectors.
    own : tuple of OwnMethod
        Methods of your own, the last rows of the tables.
    """

    databases: Mapping[str, AnyDatabase]
    sizes: tuple[int, ...] | None = None
    methods: tuple[str, ...] | None = None
    repeats: int = 30
    seed: int = 0
    photometry: Photometry = "unit-norm"
    tune: bool = False
    protocol: Protocol = field(default_factory=Protocol)
    inputs: tuple[ImageInput, ...] = ("pixels",)
    own: tuple[OwnMethod, ...] = ()

    def __post_init__(self) -> None:
        named = tuple(METHODS) if self.methods is None else self.methods
        unknown = [name for name in named if name not in ALL_METHODS]
        if unknown or not (named or self.own):
            raise ValueError(
                f"{', '.join(map(repr, unknown)) or 'Nothing'} is not a method; "
                f"choose from {', '.join(ALL_METHODS)}"
            )
        names = [method.name for method in self.own]
        if len(set(names)) < len(names):
            raise MethodError(
                f"Two methods have the same name: {', '.join(sorted(names))}"
            )
        for method in self.own:
            # An error now is better than one in every unit.
            method.make()
        known = get_args(ImageInput)
        if not self.inputs or not set(self.inputs) <= set(known):
            raise ValueError(
                f"inputs are chosen from {', '.join(known)}, got "
                f"{', '.join(map(str, self.inputs)) or 'nothing'}"
            )
        if self.repeats < 1:
            raise ValueError(f"repeats must be at least 1, got {self.repeats}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")
        if not self.databases:
            raise ValueError("An experiment needs at least one database")
        for name, database in self.databases.items():
            if database.image_shape is None and self.photometry not in _OF_VECTORS:
                raise ValueError(
                    f"{name} has vectors, which have no light to normalise: photometry "
                    f"must be {' or '.join(_OF_VECTORS)}, got {self.photometry}"
                )

    def inputs_of(self, name: str) -> tuple[str, ...]:
        """What methods get of a database.

        Parameters
        ----------
        name : str
            Name of the database.

        Returns
        -------
        tuple of str
            `inputs` for images, "vectors" for vectors.
        """
        if self.databases[name].image_shape is None:
            return (VECTORS,)
        return tuple(dict.fromkeys(self.inputs))

    def methods_on(self, input: str) -> tuple[str, ...]:
        """The methods of dualqml that run on an input.

        Parameters
        ----------
        input : {"pixels", "local", "vectors"}
            What the methods get.

        Returns
        -------
        tuple of str
            Keys of `METHODS` and `VECTOR_METHODS`.
        """
        left_out = self.left_out(input)
        return tuple(name for name in self._wanted(input) if name not in left_out)

    def left_out(self, input: str) -> tuple[str, ...]:
        """The methods that were asked for, but need images as such.

        Parameters
        ----------
        input : {"pixels", "local", "vectors"}
            What the methods get.

        Returns
        -------
        tuple of str
            Keys of `METHODS`; none for pixels.
        """
        if input == "pixels":
            return ()
        wanted = self._wanted(input)
        return tuple(name for name in wanted if ALL_METHODS[name].needs_images)

    def _wanted(self, input: str) -> tuple[str, ...]:
        if self.methods is not None:
            return self.methods
        return tuple(ALL_METHODS if input == VECTORS else METHODS)

    def training_sizes(self, name: str) -> tuple[int, ...]:
        """The requested training sizes that a database allows.

        Parameters
        ----------
        name : str
            Name of the database.

        Returns
        -------
        tuple of int
            The sizes; only 0 for protocols without m.

        Raises
        ------
        DatabaseError
            It allows none of them.
        """
        if self.protocol.kind != "random":
            return (0,)
        database = self.databases[name]
        wanted = self.sizes
        if wanted is None:
            base = name.partition(":")[0]
            known = DATABASES[base].training_sizes if base in DATABASES else ()
            wanted = known or DEFAULT_SIZES
        most = int(np.bincount(database.codes).max()) - 1
        possible = tuple(dict.fromkeys(m for m in wanted if 1 <= m <= most))
        if not possible:
            noun = "vectors" if database.image_shape is None else "images"
            raise DatabaseError(
                f"{name}: its subjects have at most {most + 1} {noun}, so that m can "
                f"be 1 to {most}; asked for were {', '.join(map(str, wanted))}"
            )
        return possible

    def skipped_sizes(self, name: str) -> tuple[int, ...]:
        """The requested training sizes that a database does not allow.

        Parameters
        ----------
        name : str
            Name of the database.

        Returns
        -------
        tuple of int
            The sizes.
        """
        if self.protocol.kind != "random" or self.sizes is None:
            return ()
        possible = self.training_sizes(name)
        return tuple(m for m in self.sizes if m not in possible)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """All units, repetition by repetition: a partial run is fair to all methods.

        Raises
        ------
        DatabaseError
            A database cannot be divided as the protocol says.
        """
        repeats = self.repeats if self.protocol.kind == "random" else 1
        prints = {name: fingerprint(data) for name, data in self.databases.items()}
        return tuple(
            Unit(
                database=name,
                data=prints[name],
                protocol=self.protocol.kind,
                m=m,
                method=method,
                tuned=self.tune and not spec and _can_be_tuned(method),
                photometry=self.photometry,
                seed=self.seed,
                repetition=repetition,
                split=split.fingerprint,
                input=input,
                spec=spec,
            )
            for repetition in range(repeats)
            for name, database in self.databases.items()
            for m in self.training_sizes(name)
            for split in [self.protocol.split(database, m, self.seed, repetition)]
            for input in self.inputs_of(name)
            for method, spec in [
                *((method, "") for method in self.methods_on(input)),
                *((method.name, method.spec) for method in self.own),
            ]
        )


def fingerprint(database: AnyDatabase) -> str:
    """Sixteen hexadecimal digits that change with any sample or label."""
    digest = hashlib.sha256()
    for part in (database.samples, database.codes):
        digest.update(repr((part.shape, part.dtype.str)).encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def _can_be_tuned(name: str) -> bool:
    method = ALL_METHODS[name]
    return method.searches or bool(method.grid)


def paper_name(database: str) -> str | None:
    """The name that the paper's tables give to a database, or None."""
    return _PAPER_NAMES.get(database.partition(":")[0])


def in_paper_order(databases: Sequence[str]) -> list[str]:
    """Databases in the order of the paper's tables, others after them."""
    order = list(_PAPER_NAMES)
    return sorted(
        databases,
        key=lambda name: (
            order.index(base) if (base := name.partition(":")[0]) in order else 99,
            name,
        ),
    )
