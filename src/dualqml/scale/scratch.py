# SPDX-License-Identifier: BSD-3-Clause
"""The files of a fit in blocks, and the tasks that make them.

======== ==================================================================
run      the rows of a block, sorted by the hashes of their labels
part     the rows of some classes, sorted by class, from all runs
sums     sums over the inputs of a part
scatter  sums over the coordinates of a part
shard    what was learnt about the classes of a part
======== ==================================================================

Every task makes one kind of file. Files are written whole or not at all, so a task that
is run twice does no harm. Sums, scatters and shards have a *key*: the SHA-256 of all
that they were made from. A file that is there with the right key and checksum need not
be made again; any other is replaced. So a fit that was interrupted goes on where it
stopped, and files of two fits, or of two states of the data, are never mixed. The key
of a shard does not depend on the blocks in which the rows came.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualqml._saved_state import ValueProblem, array_of, check_fields
from dualqml._sklearn import one_blas_thread
from dualqml._typing import Index
from dualqml.exceptions import BlockError, DualQMLError, FileError, ModelFileError
from dualqml.extractors.fit_in_parts import (
    LinearMap,
    PartSolution,
    Recipe,
    SharedProblem,
    coordinate_sums,
    solve_rows,
)
from dualqml.extractors.part_assembly import joined_solutions
from dualqml.extractors.part_sums import (
    CoordinateSums,
    CosineSums,
    InputSums,
    PartRows,
    label_hashes,
)
from dualqml.persistence.tensors import read_tensors, stored_checksum, write_tensors
from dualqml.scale._row_source import Block
from dualqml.scale.blocks import BlockReader

#: The key of a file in its metadata.
_KEY = "dualqml.key"
#: Seed of the odd numbers by which the words of a row are multiplied, to order the
#: samples of a class.
_WORD_SEED = 20160501
#: Rows at a time.
_HASHED_ROWS = 1024


@dataclass(frozen=True)
class Scratch:
    """Where the files of a fit are.

    Attributes
    ----------
    folder : str
        The folder; all workers see it under this name.
    single : bool
        Whether rows become single precision, as those of a recogniser do.
    """

    folder: str
    single: bool = False

    def path(self, kind: str, number: int) -> Path:
        """The path of a file.

        Parameters
        ----------
        kind : {"run", "part", "sums", "scatter", "shard"}
            What is in it.
        number : int
            Number of the block (runs) or of the part.

        Returns
        -------
        Path
            The path.
        """
        return Path(self.folder, f"{kind}-{number:06}.safetensors")

    def remove(self, *kinds: str) -> None:
        """Remove all files of some kinds.

        Parameters
        ----------
        *kinds : str
            As for `path`.
        """
        for kind in kinds:
            for path in Path(self.folder).glob(f"{kind}-*.safetensors"):
                path.unlink(missing_ok=True)


def key_of(*things: Any) -> str:
    """The SHA-256 of numbers, text, arrays and records of them.

    Parameters
    ----------
    *things : object
        None, numbers, text and arrays, and dataclasses, dictionaries, lists and tuples
        of them. Types and shapes count.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> from dualqml.scale.scratch import key_of
    >>> key_of(1.0, "a") == key_of(1.0, "a"), key_of(1.0) == key_of(1)
    (True, False)
    >>> key_of(1, 12) == key_of(11, 2)
    False
    """
    digest = hashlib.sha256()
    for thing in things:
        _add(digest, thing)
    return digest.hexdigest()


def _add(digest: Any, thing: Any) -> None:
    if is_dataclass(thing):
        inner = {field.name: getattr(thing, field.name) for field in fields(thing)}
        _say(digest, type(thing).__name__)
        _add(digest, inner)
    elif isinstance(thing, np.ndarray):
        _say(digest, repr((thing.shape, thing.dtype.str)))
        digest.update(np.ascontiguousarray(thing).reshape(-1).view(np.uint8).data)
    elif isinstance(thing, dict | list | tuple):
        _say(digest, f"{type(thing).__name__} of {len(thing)}")
        for item in thing.items() if isinstance(thing, dict) else thing:
            _add(digest, item)
    elif thing is None or isinstance(thing, bool | int | float | str | np.generic):
        _say(digest, repr(thing))
    else:
        # Its repr might not tell all.
        raise TypeError(f"{type(thing).__name__} has no key")


def _say(digest: Any, text: str) -> None:
    """Add a text, and where it ends."""
    content = text.encode()
    digest.update(len(content).to_bytes(8, "little") + content)


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Errors name the part or block that a task works on."""
    try:
        yield
    except BlockError:
        raise  # It names the block already.
    except DualQMLError as error:
        raise type(error)(f"{what}: {error}") from error
    except MemoryError as error:
        raise DualQMLError(f"{what}: not enough memory ({error})") from error


def _is_made(path: Path, key: str) -> bool:
    """Whether a file is there, whole, and made from what the key says."""
    return _is_whole(path) and read_tensors(path, verify=False)[1].get(_KEY) == key


def _is_whole(path: Path) -> bool:
    """Whether a file is there and not damaged."""
    if not path.exists():
        return False
    try:
        read_tensors(path)
    except ModelFileError:
        return False
    return True


def _write(
    path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
) -> None:
    """Write a file of a fit."""
    # A task may outlive its fit, whose folder is removed then and must not come back.
    if not path.parent.is_dir():
        raise FileError(f"The folder {path.parent} is not there any more")
    write_tensors(path, arrays, metadata)


# Runs


def write_run(scratch: Scratch, block: tuple[int, Block | BlockReader]) -> str:
    """Write the rows of a block in the order of the hashes of their labels.

    Parameters
    ----------
    scratch : Scratch
        Where.
    block : tuple
        Number of the block, and the block or what reads it.

    Returns
    -------
    str
        The checksum of the file.
    """
    number, source = block
    found = source if isinstance(source, Block) else source()
    with _named(f"Block {number:,}"):
        return _write_run(scratch, number, found)


def _write_run(scratch: Scratch, number: int, found: Block) -> str:
    hashes = label_hashes(found.labels)
    order = np.argsort(hashes, kind="stable")
    rows = found.rows[order]
    arrays = {
        "rows": rows.astype(np.float32) if scratch.single else rows,
        "hashes": hashes[order],
        "numbers": found.first_row + order.astype(np.int64),
        "labels": _plain_labels(found.labels[order]),
    }
    path = scratch.path("run", number)
    _write(path, arrays, {})
    return stored_checksum(path)


def _plain_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels as numbers: text as the code points of its characters."""
    if labels.dtype.kind != "U":
        return labels
    width = max(1, labels.dtype.itemsize // 4)
    return np.ascontiguousarray(labels).view(np.uint32).reshape(labels.size, width)


def _labels(plain: NDArray[Any]) -> NDArray[Any]:
    """The labels that `_plain_labels` has made numbers."""
    if plain.ndim == 1:
        return plain
    return np.ascontiguousarray(plain).view(f"<U{plain.shape[1]}").reshape(len(plain))


# Parts


@dataclass(frozen=True)
class Gathering:
    """How parts are made from runs.

    Attributes
    ----------
    scratch : Scratch
        Where.
    n_runs, n_parts : int
        Their numbers.
    recipe : Recipe
        The recipe of the fit.
    key : str
        The key of all runs.
    """

    scratch: Scratch
    n_runs: int
    n_parts: int
    recipe: Recipe
    key: str


def gather_part(gathering: Gathering, part: int) -> None:
    """Write the rows of a part and the sums over them.

    Parameters
    ----------
    gathering : Gathering
        How.
    part : int
        Its number.
    """
    scratch = gathering.scratch
    path, sums_path = scratch.path("part", part), scratch.path("sums", part)
    with _named(f"Part {part:,} of {gathering.n_parts:,}"):
        # The file of a part has no key, so that its checksum depends on the rows alone.
        if _is_whole(path) and _is_made(sums_path, _sums_key(gathering, part)):
            return
        _write(path, _gathered(gathering, part), {})
        rows = read_part(scratch, part).rows
        found: dict[str, NDArray[Any]] = {}
        if rows.counts.size:
            with one_blas_thread():
                sums = InputSums.of_part(
                    rows,
                    unit=gathering.recipe.unit,
                    cosines=gathering.recipe.cosines,
                )
            found = _as_arrays(sums)
        _write(sums_path, found, {_KEY: _sums_key(gathering, part)})


def _sums_key(gathering: Gathering, part: int) -> str:
    """The key of the sums over a part that is there."""
    content = stored_checksum(gathering.scratch.path("part", part))
    return key_of(gathering.key, gathering.n_parts, part, gathering.recipe, content)


def _gathered(gathering: Gathering, part: int) -> dict[str, NDArray[Any]]:
    """The rows of a part, sorted by class."""
    low, high = (_first_hash(number, gathering.n_parts) for number in (part, part + 1))
    pieces: dict[str, list[NDArray[Any]]] = {"rows": [], "numbers": [], "labels": []}
    for run in range(gathering.n_runs):
        arrays, _ = read_tensors(gathering.scratch.path("run", run), verify=False)
        hashes = arrays["hashes"]
        start = int(np.searchsorted(hashes, np.uint64(low)))
        stop = hashes.size
        if high <= np.iinfo(np.uint64).max:
            stop = int(np.searchsorted(hashes, np.uint64(high)))
        if start < stop:
            # Copies: a file that is mapped stays open, and there may be thousands.
            for name, found in pieces.items():
                found.append(arrays[name][start:stop].copy())
    if not pieces["rows"]:
        empty = np.empty(0, dtype=np.int64)
        return {"rows": np.empty((0, 1)), "counts": empty, "numbers": empty}
    numbers = np.concatenate(pieces["numbers"])
    labels, codes = np.unique(
        np.concatenate([_labels(found) for found in pieces["labels"]]),
        return_inverse=True,
    )
    # The order of samples of a class must not depend on how they arrive.
    content = np.concatenate([_content(rows) for rows in pieces["rows"]])
    order = np.lexsort((numbers, content, codes.reshape(-1)))
    rows = np.empty((order.size, pieces["rows"][0].shape[1]), pieces["rows"][0].dtype)
    places = np.empty(order.size, dtype=np.intp)
    places[order] = np.arange(order.size)
    # One piece after the other goes: the rows are not there twice at the end.
    end = order.size
    while pieces["rows"]:
        piece = pieces["rows"].pop()
        rows[places[end - len(piece) : end]] = piece
        end -= len(piece)
    return {
        "rows": rows,
        "numbers": numbers[order],
        "counts": np.bincount(codes.reshape(-1), minlength=labels.size),
        "labels": _plain_labels(_narrow(labels)),
    }


def _narrow(labels: NDArray[Any]) -> NDArray[Any]:
    """Text of the width that it needs, whatever else was in its blocks."""
    if labels.dtype.kind != "U":
        return labels
    width = max(1, int(np.char.str_len(labels).max()))
    return labels.astype(f"<U{width}")


def _first_hash(part: int, n_parts: int) -> int:
    """The smallest hash of a part; see `part_numbers`."""
    return -(-(part << 32) // n_parts) << 32


def _content(rows: NDArray[np.floating]) -> NDArray[np.uint64]:
    """Numbers that depend on the values of rows alone, and are nearly always unique."""
    words = np.ascontiguousarray(rows).view(np.uint32).reshape(len(rows), -1)
    random = np.random.Generator(np.random.PCG64(_WORD_SEED))
    factors = random.integers(2**64, size=words.shape[1], dtype=np.uint64)
    factors |= np.uint64(1)
    found = np.empty(len(rows), dtype=np.uint64)
    for start in range(0, len(rows), _HASHED_ROWS):
        part = slice(start, start + _HASHED_ROWS)
        found[part] = words[part].astype(np.uint64) @ factors
    return found


@dataclass(frozen=True)
class Part:
    """The samples of a part, and whose they are.

    Attributes
    ----------
    rows : PartRows
        The samples, sorted by class.
    labels : ndarray of shape (n_classes,)
        The labels of the classes, sorted.
    numbers : ndarray of int of shape (n_samples,)
        Their numbers among all samples.
    content : str
        The checksum of all this.
    """

    rows: PartRows
    labels: NDArray[Any]
    numbers: NDArray[np.int64]
    content: str


def read_part(scratch: Scratch, part: int) -> Part:
    """Read a part, which stays in its file until it is used.

    Parameters
    ----------
    scratch : Scratch
        Where.
    part : int
        Its number.

    Returns
    -------
    Part
        The part.
    """
    path = scratch.path("part", part)
    arrays, _ = read_tensors(path, verify=False)
    labels = _labels(arrays["labels"]) if "labels" in arrays else np.empty(0, int)
    rows = PartRows(arrays["rows"], arrays["counts"])
    return Part(rows, labels, arrays["numbers"], stored_checksum(path))


def read_sums(scratch: Scratch, part: int) -> InputSums | None:
    """Sums over the inputs of a part; None if it has no classes.

    Parameters
    ----------
    scratch : Scratch
        Where.
    part : int
        Its number.

    Returns
    -------
    InputSums or None
        The sums.
    """
    arrays, _ = read_tensors(scratch.path("sums", part))
    if not arrays:
        return None
    cosines = None
    if "cosines.mean_scatter" in arrays:
        cosines = CosineSums(
            **_fields({k[8:]: v for k, v in arrays.items() if k.startswith("cosines.")})
        )
    plain = {k: v for k, v in arrays.items() if "." not in k}
    return InputSums(**_fields(plain), cosines=cosines)


def _as_arrays(record: Any, prefix: str = "") -> dict[str, NDArray[Any]]:
    """The numbers and arrays of a record by name."""
    found: dict[str, NDArray[Any]] = {}
    for field in fields(record):
        value, name = getattr(record, field.name), prefix + field.name
        if is_dataclass(value):
            found |= _as_arrays(value, name + ".")
        elif value is not None:
            found[name] = np.asarray(value)
    return found


def _fields(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Numbers and arrays that `_as_arrays` has made arrays."""
    return {
        name: array if array.ndim else array.item() for name, array in arrays.items()
    }


# Coordinates


@dataclass(frozen=True)
class Projection:
    """How samples become coordinates.

    Attributes
    ----------
    scratch : Scratch
        Where the parts are.
    n_parts : int
        Their number.
    recipe : Recipe
        The recipe of the fit.
    linear : LinearMap or None
        The map of the metric.
    largest_square : float
        Largest squared norm of the coordinates of a sample.
    key : str
        The key of the recipe, the map and the versions of the libraries.
    """

    scratch: Scratch
    n_parts: int
    recipe: Recipe
    linear: LinearMap | None
    largest_square: float
    key: str


def sum_coordinates(projection: Projection, part: int) -> None:
    """Write sums over the coordinates of a part.

    Parameters
    ----------
    projection : Projection
        How.
    part : int
        Its number.
    """
    scratch = projection.scratch
    path = scratch.path("scatter", part)
    with _named(f"Part {part:,} of {projection.n_parts:,}"):
        samples = read_part(scratch, part)
        key = key_of(projection.key, samples.content)
        if _is_made(path, key):
            return
        arrays: dict[str, NDArray[Any]] = {}
        if samples.labels.size:
            with one_blas_thread():
                found = coordinate_sums(
                    samples.rows,
                    projection.recipe,
                    projection.linear,
                    projection.largest_square,
                )
            arrays = _as_arrays(found.sums) | {
                "zero_numbers": samples.numbers[found.zero_rows],
                "empty_classes": np.asarray(found.empty_classes, dtype=np.int64),
            }
        _write(path, arrays, {_KEY: key})


@dataclass(frozen=True)
class PartScatter:
    """Sums over the coordinates of a part.

    Attributes
    ----------
    sums : CoordinateSums
        The sums.
    zero_numbers : ndarray of int
        Numbers of the samples that are zero vectors, among all samples.
    empty_classes : ndarray of int
        Classes of the part that have no other samples.
    """

    sums: CoordinateSums
    zero_numbers: NDArray[np.int64]
    empty_classes: Index


def read_scatter(scratch: Scratch, part: int) -> PartScatter | None:
    """Sums over the coordinates of a part; None if it has no classes.

    Parameters
    ----------
    scratch : Scratch
        Where.
    part : int
        Its number.

    Returns
    -------
    PartScatter or None
        The sums.
    """
    arrays, _ = read_tensors(scratch.path("scatter", part))
    if not arrays:
        return None
    low, high = arrays["squared_norm_range"].tolist()
    sums = CoordinateSums(
        arrays["scatter"],
        arrays["n_used"].item(),
        (low, high),
        arrays["longest_sum"].item(),
    )
    return PartScatter(sums, arrays["zero_numbers"], arrays["empty_classes"])


# Solutions


@dataclass(frozen=True)
class Solving:
    """The problem of which each class is solved.

    Attributes
    ----------
    scratch : Scratch
        Where the parts are.
    recipe : Recipe
        The recipe of the fit.
    linear : LinearMap or None
        The map of the metric.
    problem : SharedProblem
        What all classes have in common.
    key : str
        The key of the recipe, the problem and the versions of the libraries.
    """

    scratch: Scratch
    recipe: Recipe
    linear: LinearMap | None
    problem: SharedProblem
    key: str


def solve_part(solving: Solving, part: int) -> None:
    """Solve and certify the classes of a part, and write what was learnt.

    Parameters
    ----------
    solving : Solving
        The problem.
    part : int
        Its number.
    """
    with _named(f"Part {part:,} of {solving.problem.n_parts:,}"):
        samples = read_part(solving.scratch, part)
        key = key_of(solving.key, samples.content)
        path = solving.scratch.path("shard", part)
        if _is_made(path, key):
            return
        arrays: dict[str, NDArray[Any]] = {}
        if samples.labels.size:
            with one_blas_thread():
                found = solve_rows(
                    samples.rows, solving.recipe, solving.linear, solving.problem
                )
            arrays = _shard_arrays(found, samples)
        _write(path, arrays, {_KEY: key})


def write_shard(scratch: Scratch, samples: Part, found: PartSolution) -> None:
    """Write the only shard of a model.

    Parameters
    ----------
    scratch : Scratch
        Where.
    samples : Part
        The samples.
    found : PartSolution
        What was learnt.
    """
    _write(scratch.path("shard", 0), _shard_arrays(found, samples), {})


def _shard_arrays(found: PartSolution, samples: Part) -> dict[str, NDArray[Any]]:
    """The arrays of the file of a shard."""
    return _as_arrays(found) | {
        "counts": np.asarray(samples.rows.counts, dtype=np.int64),
        "labels": _plain_labels(samples.labels),
        "numbers": samples.numbers,
    }


@dataclass(frozen=True)
class Shard:
    """What was learnt about the classes of a part.

    Attributes
    ----------
    solution : PartSolution
        Factors and certificates.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class.
    labels : ndarray of shape (n_classes,)
        Their labels, sorted.
    numbers : ndarray of int of shape (n_samples,)
        The numbers of the samples of the multipliers, among all samples.
    """

    solution: PartSolution
    counts: Index
    labels: NDArray[Any]
    numbers: NDArray[np.int64]


#: The arrays of the file of a shard.
_SHARD = {
    "components": array_of("a matrix", "float64", 2, finite=True),
    "ranks": array_of("a vector of 64-bit whole numbers", "int64", 1),
    "mean_responses": array_of("a vector", "float64", 1, finite=True),
    "multipliers": array_of("a vector", "float64", 1),
    "gap": array_of("a vector", "float64", 1),
    "violation": array_of("a vector", "float64", 1),
    "rounding_limited": array_of("a vector of booleans", "bool", 1),
    "n_iter": array_of("a vector of 64-bit whole numbers", "int64", 1),
    "energies": array_of("a vector", "float64", 1, finite=True),
    "means": array_of("a matrix", "float64", 2, finite=True),
    "counts": array_of("a vector of 64-bit whole numbers", "int64", 1, empty=False),
    "labels": array_of("a vector of whole numbers", "int64", 1)
    | array_of("a matrix of code points", "uint32", 2, empty=False),
    "numbers": array_of("a vector of 64-bit whole numbers", "int64", 1),
}


def read_shard(path: str | os.PathLike[str], *, verify: bool = False) -> Shard | None:
    """Read a shard, which stays in its file until it is used.

    Parameters
    ----------
    path : path
        The file.
    verify : bool, default=False
        Whether to check the checksum and all numbers, which reads the whole file.

    Returns
    -------
    Shard or None
        The shard; None if it has no classes.

    Raises
    ------
    ModelFileError
        The file is damaged, or no shard.
    """
    arrays, _ = read_tensors(path, verify=verify)
    if not arrays:
        return None
    try:
        check_fields(arrays, _SHARD, (), values=verify)
    except ValueProblem as error:
        raise ModelFileError(f"{path} is no shard of a model: {error}") from error
    names = [field.name for field in fields(PartSolution)]
    solution = PartSolution(**{name: arrays[name] for name in names})
    labels = _labels(arrays["labels"])
    found = Shard(solution, arrays["counts"], labels, arrays["numbers"])
    if not _fits_together(found):
        raise ModelFileError(f"{path} is no whole shard of a model")
    return found


def _fits_together(shard: Shard) -> bool:
    """Whether the shapes of the arrays and the numbers of rows fit."""
    found, n_classes = shard.solution, shard.counts.size
    by_class: Sequence[NDArray[Any]] = (
        *(found.ranks, found.gap, found.violation, found.rounding_limited),
        *(found.n_iter, found.energies, shard.labels),
    )
    n_factors, n_samples = len(found.components), found.multipliers.size
    # First each number by itself: the sum of forged numbers could overflow.
    return bool(
        all(array.size == n_classes for array in by_class)
        and found.ranks.min() >= 0
        and found.ranks.max() <= n_factors
        and found.ranks.sum() == n_factors
        and shard.counts.min() > 0
        and shard.counts.max() <= n_samples
        and shard.counts.sum() == n_samples
        and shard.numbers.size == n_samples
        and found.mean_responses.size in (0, n_factors)
        and len(found.means) in (0, n_classes)
    )


def check_numbers(shards: Sequence[Shard]) -> None:
    """Raise if shards do not have the numbers of all samples, each of them once.

    Parameters
    ----------
    shards : sequence of Shard
        The shards of a model.

    Raises
    ------
    ModelFileError
        They do not.
    """
    seen = np.zeros(sum(shard.numbers.size for shard in shards), dtype=bool)
    for shard in shards:
        inside = shard.numbers.min() >= 0 and shard.numbers.max() < seen.size
        if inside:
            seen[shard.numbers] = True
    if not seen.all():
        raise ModelFileError("The shards do not have each sample of the model once")


def joined_shards(shards: Sequence[Shard], places: Sequence[Index]) -> PartSolution:
    """The solutions of all classes of a model.

    Parameters
    ----------
    shards : sequence of Shard
        The shards, which have all classes.
    places : sequence of ndarray
        For each shard, the numbers of its classes; may have empty ones in between.

    Returns
    -------
    PartSolution
        In the order of the classes, with the multipliers in the order of the samples.

    Raises
    ------
    ModelFileError
        The shards do not have each sample once.
    """
    check_numbers(shards)
    solution = joined_solutions(
        [shard.solution for shard in shards], [own for own in places if own.size]
    )
    multipliers = np.empty_like(solution.multipliers)
    multipliers[np.concatenate([s.numbers for s in shards])] = solution.multipliers
    return replace(solution, multipliers=multipliers)
