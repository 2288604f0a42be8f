# SPDX-License-Identifier: BSD-3-Clause
"""Results of units, and what can be computed from many of them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from dualqml._text import printable
from dualqml.exceptions import StoreError
from dualqml.experiments.protocol import Unit, in_paper_order
from dualqml.extractors.methods import ALL_METHODS

#: Rows of the tables that are ours; all others are rivals.
OURS = ("DualQML (max)", "DualQML", "DualQML-W")

#: The names of the rows of tuned methods end in this.
TUNED = " (tuned)"

#: Types of the fields of units and results, except those of numbers with decimals.
_KINDS: Mapping[str, type] = {
    **dict.fromkeys(("database", "data", "protocol", "method", "photometry"), str),
    **dict.fromkeys(("split", "input", "spec", "reason", "finished"), str),
    **dict.fromkeys(("m", "seed", "repetition"), int),
    **dict.fromkeys(("n_subjects", "n_train", "n_test", "n_short"), int),
    "n_seeds": int,
    **dict.fromkeys(("parameters", "spectrum", "versions"), dict),
    **dict.fromkeys(("tuned", "searched"), bool),
}

#: Inputs in the order of the tables.
_INPUT_ORDER = ("pixels", "local", "vectors")


@dataclass(frozen=True)
class Result:
    """The result of a unit: its errors and times, or why it failed.

    Attributes
    ----------
    unit : Unit
        The unit.
    status : {"done", "failed"}
        Whether it has an error rate.
    reason : str
        Why it failed.
    error : float
        Error rate in per cent; NaN if it failed.
    n_seeds : int
        Number of seeds of the method over which the error, the identified images
        and the times are means.
    n_subjects, n_train, n_test : int
        Sizes of the split.
    n_short : int
        Subjects that had fewer than m training images.
    identified : tuple of float
        Number of test images whose true subject was among the first 1, 2, ... of
        the list.
    fit_seconds, test_seconds : float
        CPU time of the whole training, and of all tests, with one BLAS thread.
    searched : bool
        Whether the training includes the choice of parameters on the training set.
    refit_seconds : float
        CPU time of the training with the chosen parameters fixed; NaN if none were
        chosen, or if it was not measured.
    parameters : dict
        The parameters that were chosen on the training set, with the first seed.
    spectrum : dict
        For the quadratic methods in the first repetition: "ranks" of the matrices
        and mean "eigenvalues" relative to the largest.
    mistakes : tuple of tuple of int
        Some test samples that got a wrong name, in the first repetition: the places
        in the database of the sample, of a training sample of the subject whose name
        it got, and of one of the right subject.
    versions : dict
        Versions of Python and of the packages that computed it.
    finished : str
        When it was finished, in UTC.
    """

    unit: Unit
    status: Literal["done", "failed"]
    reason: str = ""
    error: float = math.nan
    n_seeds: int = 1
    n_subjects: int = 0
    n_train: int = 0
    n_test: int = 0
    n_short: int = 0
    identified: tuple[float, ...] = ()
    fit_seconds: float = math.nan
    test_seconds: float = math.nan
    searched: bool = False
    refit_seconds: float = math.nan
    parameters: Mapping[str, Any] = field(default_factory=dict)
    spectrum: Mapping[str, Any] = field(default_factory=dict)
    mistakes: tuple[tuple[int, ...], ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    finished: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The result as a flat dictionary for JSON; missing numbers are None.

        Returns
        -------
        dict
            Fields of the unit and of the result.
        """
        record = asdict(self)
        record = record.pop("unit") | record
        return {key: _without_nan(value) for key, value in record.items()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """The result from a dictionary of `as_dict`.

        Parameters
        ----------
        record : dict
            The fields.

        Returns
        -------
        Result
            The result.

        Raises
        ------
        StoreError
            A field is missing, unknown or of another type.
        """
        values = dict(record)
        try:
            # Stores of earlier versions lack the fields that have a default.
            unit = Unit(
                **{
                    f.name: values.pop(f.name)
                    for f in fields(Unit)
                    if f.name in values or f.default is MISSING
                }
            )
            values.setdefault("searched", bool(values.get("parameters")))
            values.setdefault("refit_seconds", None)
            for name in ("error", "fit_seconds", "test_seconds", "refit_seconds"):
                value = values[name]
                values[name] = math.nan if value is None else float(value)
            values["identified"] = tuple(float(k) for k in values["identified"])
            values["mistakes"] = tuple(
                tuple(int(place) for place in found)
                for found in values.get("mistakes", ())
            )
            result = cls(unit=unit, **values)
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"not a result: {error!r}") from error
        wrong = [
            name
            for part in (unit, result)
            for name, kind in _KINDS.items()
            if not isinstance(getattr(part, name, kind()), kind)
        ]
        if not wrong and not all(isinstance(v, str) for v in result.versions.values()):
            wrong.append("versions")
        if result.status not in ("done", "failed"):
            wrong.append("status")
        if result.status == "done" and not math.isfinite(result.error):
            wrong.append("error")
        if wrong:
            raise StoreError(f"not a result: {wrong[0]} is {record[wrong[0]]!r}")
        return result


class Setting(NamedTuple):
    """The fields that are equal for all errors in one column of a table.

    The split is empty for random protocols, because there each repetition has its own.
    """

    database: str
    m: int
    protocol: str
    photometry: str
    seed: int
    data: str
    split: str = ""
    input: str = "pixels"

    @classmethod
    def of(cls, unit: Unit) -> Self:
        """The setting that a unit belongs to.

        Parameters
        ----------
        unit : Unit
            The unit.

        Returns
        -------
        Setting
            Its setting.
        """
        return cls(
            unit.database,
            unit.m,
            unit.protocol,
            unit.photometry,
            unit.seed,
            unit.data,
            "" if unit.protocol == "random" else unit.split,
            unit.input,
        )


class Comparison(NamedTuple):
    """Two methods over the splits that both have.

    Attributes
    ----------
    rival : str
        The other method.
    n_splits : int
        Shared splits.
    difference : float
        Mean of our error minus the rival's, in percentage points. Negative: ours is
        better.
    low, high : float
        95 % interval of the mean over random splits of this database (Student's
        t on paired differences). It says nothing about other people.
    """

    rival: str
    n_splits: int
    difference: float
    low: float
    high: float


class Results:
    """Results of many units, by setting and row of the tables.

    Parameters
    ----------
    results : iterable of Result
        In any order. Of several results of the same unit the last counts.
    """

    def __init__(self, results: Iterable[Result]) -> None:
        self.by_unit = {result.unit: result for result in results}
        specs: dict[str, dict[str, None]] = {}
        for unit in self.by_unit:
            specs.setdefault(unit.method, {})[unit.spec] = None
        self._specs = {name: list(found) for name, found in specs.items()}
        self._cells: dict[Setting, dict[str, dict[int, Result]]] = {}
        for result in self.by_unit.values():
            unit = result.unit
            rows = self._cells.setdefault(Setting.of(unit), {})
            rows.setdefault(self.row_of(unit), {})[unit.repetition] = result

    @property
    def failed(self) -> list[Result]:
        """The units that failed."""
        return [r for r in self.by_unit.values() if r.status == "failed"]

    @property
    def databases(self) -> list[str]:
        """Names of the databases, those of the paper first and in its order."""
        return in_paper_order(sorted({setting.database for setting in self._cells}))

    @property
    def settings(self) -> list[Setting]:
        """All columns, by database, input and training size."""
        order = self.databases
        return sorted(
            self._cells,
            key=lambda s: (order.index(s.database), _input_place(s.input), *s[1:]),
        )

    @property
    def rows(self) -> list[str]:
        """All rows: the paper's order, then tuned ones, then methods of your own."""
        present = {row for cell in self._cells.values() for row in cell}
        names = list(ALL_METHODS) + [name + TUNED for name in ALL_METHODS]
        known = [name for name in names if name in present]
        return known + [row for row in self.own_rows if row not in known]

    @property
    def own_rows(self) -> dict[str, str]:
        """By the rows of methods of your own, their classes and parameters."""
        units = (unit for unit in self.by_unit if unit.spec)
        return {self.row_of(unit): unit.spec for unit in units}

    def row_of(self, unit: Unit) -> str:
        """The row of the tables that a unit belongs to.

        Parameters
        ----------
        unit : Unit
            A unit of these results.

        Returns
        -------
        str
            Its method. Methods of your own that have the same name but other classes
            or parameters are told apart by these.
        """
        if len(self._specs[unit.method]) > 1 and unit.spec:
            return printable(f"{unit.method} [{unit.spec.partition(':')[2]}]")
        return printable(unit.method) + (TUNED if unit.tuned else "")

    def runs(self, setting: Setting, row: str) -> list[Result]:
        """Finished repetitions of a row in a column, in order.

        Parameters
        ----------
        setting : Setting
            The column.
        row : str
            The row.

        Returns
        -------
        list of Result
            What has finished.
        """
        runs = self._cells.get(setting, {}).get(row, {})
        return [runs[r] for r in sorted(runs) if runs[r].status == "done"]

    def errors(self, setting: Setting, row: str) -> NDArray[np.float64]:
        """Error rates of `runs`.

        Parameters
        ----------
        setting : Setting
            The column.
        row : str
            The row.

        Returns
        -------
        ndarray of shape (n_runs,)
            In per cent.
        """
        return np.array([run.error for run in self.runs(setting, row)])

    def best_row(self, setting: Setting, rows: Iterable[str]) -> str | None:
        """The row with the lowest mean error, the first if several are equal.

        Only rows with the most repetitions count: while an experiment runs, a lucky
        first repetition must not make a row the best.

        Parameters
        ----------
        setting : Setting
            The column.
        rows : iterable of str
            The rows to choose from.

        Returns
        -------
        str or None
            The row; None if none has finished a repetition.
        """
        errors = {row: e for row in rows if (e := self.errors(setting, row)).size}
        most = max((e.size for e in errors.values()), default=0)
        means = {row: e.mean() for row, e in errors.items() if e.size == most}
        return min(means, key=lambda row: means[row]) if means else None

    def best_rival(self, setting: Setting) -> str | None:
        """The best row that is not ours.

        Parameters
        ----------
        setting : Setting
            The column.

        Returns
        -------
        str or None
            The row, if there is one.
        """
        return self.best_row(
            setting, [row for row in self.rows if row.removesuffix(TUNED) not in OURS]
        )

    def compare(self, setting: Setting, row: str, rival: str) -> Comparison | None:
        """Paired difference of two rows.

        Parameters
        ----------
        setting : Setting
            The column.
        row, rival : str
            The rows.

        Returns
        -------
        Comparison or None
            None if they share fewer than two splits.
        """
        ours = {run.unit.repetition: run.error for run in self.runs(setting, row)}
        theirs = {run.unit.repetition: run.error for run in self.runs(setting, rival)}
        shared = [number for number in ours if number in theirs]
        if len(shared) < 2:
            return None
        gaps = np.array([ours[number] - theirs[number] for number in shared])
        mean = float(gaps.mean())
        noise = float(gaps.std(ddof=1) / np.sqrt(gaps.size))
        half = float(student.ppf(0.975, gaps.size - 1)) * noise
        return Comparison(rival, gaps.size, mean, mean - half, mean + half)

    def identification(self, setting: Setting, row: str) -> NDArray[np.float64]:
        """Share of test images identified within rank 1, 2, ..., over all runs.

        Parameters
        ----------
        setting : Setting
            The column.
        row : str
            The row.

        Returns
        -------
        ndarray of shape (n_ranks,)
            Empty if no repetition is finished.
        """
        runs = self.runs(setting, row)
        if not runs:
            return np.empty(0)
        length = min(len(run.identified) for run in runs)
        counts = np.array([run.identified[:length] for run in runs])
        return np.asarray(counts.sum(axis=0) / sum(run.n_test for run in runs))


def _input_place(name: str) -> int:
    known = name in _INPUT_ORDER
    return _INPUT_ORDER.index(name) if known else len(_INPUT_ORDER)


def _without_nan(value: Any) -> Any:
    """None for NaN, at any depth: JSON has no NaN."""
    if isinstance(value, Mapping):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value
