# SPDX-License-Identifier: BSD-3-Clause
"""What an experiment runs: databases, splits, methods and repetitions."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from dualqml.data import (
    DATABASES,
    Database,
    Split,
    fixed_split,
    random_split,
    visit_split,
)
from dualqml.exceptions import DatabaseError
from dualqml.extractors.methods import METHODS
from dualqml.images.photometry import Photometry

ProtocolKind = Literal["random", "visits", "fixed"]

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

    def split(self, database: Database, m: int, seed: int, repetition: int) -> Split:
        """Divide a database for one repetition, the same for all methods.

        Parameters
        ----------
        database : Database
            What to divide.
        m : int
            Training images of each subject, for "random".
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
        Fingerprint of its images and labels.
    protocol : str
        Kind of the protocol.
    m : int
        Training images of each subject; 0 for protocols without m.
    method : str
        A key of `METHODS`.
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


@dataclass(frozen=True)
class Experiment:
    """A grid of methods, databases, training sizes and repetitions.

    Attributes
    ----------
    databases : dict of str to Database
        The databases, by the name that results carry.
    sizes : tuple of int or None
        Training images of each subject; None means the paper's for each database.
    methods : tuple of str
        Keys of `METHODS`.
    repeats : int
        Number of repetitions; protocols that are not random have one.
    seed : int
        Seed of the splits.
    photometry : str
        Method of `PhotometricNormaliser`, the same for all methods.
    tune : bool
        Whether the rivals choose their parameters on the training set too.
    protocol : Protocol
        How images are divided.
    """

    databases: Mapping[str, Database]
    sizes: tuple[int, ...] | None = None
    methods: tuple[str, ...] = tuple(METHODS)
    repeats: int = 30
    seed: int = 0
    photometry: Photometry = "unit-norm"
    tune: bool = False
    protocol: Protocol = field(default_factory=Protocol)

    def __post_init__(self) -> None:
        unknown = [name for name in self.methods if name not in METHODS]
        if unknown or not self.methods:
            raise ValueError(
                f"{', '.join(map(repr, unknown)) or 'Nothing'} is not a method; "
                f"choose from {', '.join(METHODS)}"
            )
        if self.repeats < 1:
            raise ValueError(f"repeats must be at least 1, got {self.repeats}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")
        if not self.databases:
            raise ValueError("An experiment needs at least one database")

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
            raise DatabaseError(
                f"{name}: its subjects have at most {most + 1} images, so that m can "
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
                tuned=self.tune,
                photometry=self.photometry,
                seed=self.seed,
                repetition=repetition,
                split=split.fingerprint,
            )
            for repetition in range(repeats)
            for name, database in self.databases.items()
            for m in self.training_sizes(name)
            for split in [self.protocol.split(database, m, self.seed, repetition)]
            for method in self.methods
        )


def fingerprint(database: Database) -> str:
    """Sixteen hexadecimal digits that change with any pixel or label."""
    digest = hashlib.sha256()
    for part in (database.images, database.codes):
        digest.update(repr((part.shape, part.dtype.str)).encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


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
