# SPDX-License-Identifier: BSD-3-Clause
"""Fits to more samples than fit into the memory, in order or on a Dask cluster.

The steps, each of which runs one task for each block or part:

1. *shuffle*: each block of rows becomes a run, sorted by the hashes of the labels;
2. *gather*: each part takes its classes from all runs, sorts them, and sums;
3. *scatter*: sums over the coordinates of each part;
4. *solve*: the classes of each part are solved and certified, and become a shard.

What is common to all classes is computed between the steps (`class_parts.learn`). The
number of parts depends on the size of the data alone, and so does the order in which
sums are added. So the result is the same to the last bit for any blocks, any number of
workers, and whatever happens to them. Data of one part fit into the memory: after
*gather*, one task does a usual fit.
"""

import os
import platform
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dualqml._files import exclusive
from dualqml._sklearn import one_blas_thread
from dualqml._typing import Array, Index
from dualqml.exceptions import BlockError, ClusterError, FileError, RecognitionError
from dualqml.experiments.runner import versions
from dualqml.extractors import DualQMLWCV
from dualqml.extractors.class_parts import FoundSamples, Learnt, learn
from dualqml.extractors.fit_in_parts import (
    Chosen,
    LinearMap,
    PartEstimator,
    PartSolution,
    Recipe,
    SharedProblem,
    check_profiles,
    check_size,
    checked_recipe,
    choose,
    coordinate_rows,
    searched_classes,
)
from dualqml.extractors.inaccurate_classes import warn_if_inaccurate
from dualqml.extractors.open_set_search import classes_in_search
from dualqml.extractors.part_assembly import (
    FittedArrays,
    Profiles,
    assembled,
    profiles_of,
    scales_for_rule,
    with_labels,
)
from dualqml.extractors.part_sums import (
    PART_BYTES,
    InputSums,
    count_parts,
    input_rows,
    merged_in_tree,
)
from dualqml.extractors.quadratic_features import energies_of_others
from dualqml.recognition import Recognizer
from dualqml.recognition.gallery import Gallery
from dualqml.recognition.gallery_parts import people_model
from dualqml.recognition.matcher import Matcher, SampleCache
from dualqml.recognition.matcher_parts import MatcherInParts
from dualqml.recognition.score_scale import ScoreScale
from dualqml.scale.blocks import BlockStream, RowBlocks, row_blocks
from dualqml.scale.cluster import check_connection
from dualqml.scale.model_head import Head, check_can_be_saved, search_of, write_head
from dualqml.scale.scratch import (
    Gathering,
    Projection,
    Scratch,
    Solving,
    gather_part,
    joined_shards,
    key_of,
    read_part,
    read_scatter,
    read_shard,
    read_sums,
    solve_part,
    sum_coordinates,
    write_run,
    write_shard,
)
from dualqml.scale.sharded_model import ShardedModel, remove_other_shards
from dualqml.scale.tasks import run_tasks

if TYPE_CHECKING:
    from distributed import Client

#: The file of a fit in a scratch folder, whose lock it holds.
_MARK = "dualqml-fit"
#: A part is a file, and a task of each step.
_MOST_PARTS = 100_000
#: Called with a step, and how many of its tasks are done.
_Progress = Callable[[str, int, int], None]


def fit_blocks(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    client: "Client | None" = None,
    scratch: str | os.PathLike[str] | None = None,
    part_bytes: int = PART_BYTES,
    resume: bool = False,
    progress: _Progress | None = None,
) -> ShardedModel:
    """Fit an estimator to rows that need not fit into the memory.

    Parameters
    ----------
    estimator : DualQML, DualQMLClassifier, DualQMLW, DualQMLWCV or Recognizer
        What is fitted; it does not change. Samples are vectors, and kernels linear.
        The parameters of `DualQMLWCV` and of a recogniser are chosen on the samples of
        at most 1,000 classes. Of a recogniser the settings are used, not the people
        that it knows; its method must be DualQML-W.
    X : array, path, list of paths, Dask or Zarr array, or iterator
        The rows, as for `row_blocks`.
    y : array-like, Dask array, path or str, optional
        Their labels, as for `row_blocks`: whole numbers or text.
    client : distributed.Client, optional
        A connection to a cluster, such as `connected` gives. By default, the same tasks
        run in this process, one after the other.
    scratch : path, optional
        Folder for files of the fit, which workers must see under the same name. It
        needs about two times the size of the rows and one of the model. At the end,
        only the model is left in it, and stays there: `ShardedModel.load` reads it. By
        default, a temporary folder, which is removed with the model.
    part_bytes : int, default=64_000_000
        Size of a part in double precision. A task takes about five times as much
        memory. Another size gives results that differ by rounding.
    resume : bool, default=False
        Whether to go on where a fit in the same scratch folder has stopped. The rows
        are read again, so that a change of the data is noticed: what depends on it is
        computed again.
    progress : callable, optional
        Called with the name of a step, the number of tasks that are done, and of all.

    Returns
    -------
    ShardedModel
        The fitted model. It is the same to the last bit for any blocks, any number of
        workers (with processors of one kind), and if workers die.

    Raises
    ------
    BlockError
        A block cannot be read, or has values that cannot be used; it is named. Or
        `part_bytes` makes more than 100,000 parts.
    MethodError
        The estimator, or one of its parameters, needs all samples at once.
    FileError
        The scratch folder is full, cannot be used, or has another fit.
    RunError
        The scheduler is gone, or workers died again and again, in the same task or
        before they could begin.
    ClusterError
        The client is not a connection, or a worker cannot be used.

    See Also
    --------
    ShardedModel : What it returns.
    connected : Starts or reaches a cluster.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml import DualQMLW
    >>> from dualqml.scale import fit_blocks
    >>> rng = np.random.default_rng(0)
    >>> people = rng.normal(size=(40, 16))
    >>> def blocks():
    ...     for start in range(0, 40, 8):  # read from anywhere
    ...         names = np.repeat(np.arange(start, start + 8), 3)
    ...         yield people[names] + 0.3 * rng.normal(size=(24, 16)), names
    >>> model = fit_blocks(DualQMLW(kernel="linear", rule="max"), blocks())
    >>> model.predict(people[:5])
    array([0, 1, 2, 3, 4])
    >>> print(model.describe())
    DualQMLW of 40 classes and 120 samples in 1 shard. 40 classes are proven \
optimal; the largest duality gap is ...
    """
    if part_bytes < 1:
        raise BlockError(f"part_bytes must be at least 1, not {part_bytes}")
    check_connection(client)
    plan = _plan_of(estimator)
    blocks = X if isinstance(X, RowBlocks | BlockStream) else row_blocks(X, y)
    if isinstance(blocks, RowBlocks):
        check_size(plan.estimator, blocks.n_rows, blocks.n_features)
    fit = partial(_fit, plan, blocks, client, part_bytes, progress or _silent)
    if scratch is not None:
        with _own_folder(Path(os.path.abspath(scratch)), resume=resume) as folder:
            model = fit(folder)
    elif resume:
        raise FileError("resume=True goes on in a scratch folder: give it as scratch")
    else:
        folder = Path(tempfile.mkdtemp(prefix="dualqml-fit-"))
        try:
            model = fit(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        # The shards stay there as long as the model.
        weakref.finalize(model, shutil.rmtree, folder, ignore_errors=True)
    _warn_of_inaccurate(model)
    return model


def fit_recognizer(
    recognizer: Recognizer,
    *,
    client: "Client | None" = None,
    scratch: str | os.PathLike[str] | None = None,
    progress: _Progress | None = None,
) -> Recognizer:
    """Fit a recogniser to the people that it knows, in blocks.

    Parameters
    ----------
    recognizer : Recognizer
        With DualQML-W, and people enrolled by vectors.
    client : distributed.Client, optional
        A connection to a cluster. By default, the same tasks run in this process.
    scratch : path, optional
        An empty folder for files of the fit, as for `fit_blocks`. Nothing is left in
        it.
    progress : callable, optional
        As for `fit_blocks`.

    Returns
    -------
    Recognizer
        The same recogniser, fitted. Its scores are those of its own `fit` but for
        rounding. The next fit after a change is its own again.

    Raises
    ------
    MethodError
        It recognises images, or by another method.

    Examples
    --------
    >>> import numpy as np
    >>> from dualqml.recognition import Recognizer
    >>> from dualqml.scale import fit_recognizer
    >>> rng = np.random.default_rng(0)
    >>> people = rng.normal(size=(30, 16))
    >>> recognizer = Recognizer(threshold=2.0)
    >>> for number, face in enumerate(people):
    ...     photos = face + 0.3 * rng.normal(size=(3, 16))
    ...     recognizer.enroll(f"p{number}", photos)
    >>> fit_recognizer(recognizer).identify(people[7]).subject
    'p7'
    """
    check_connection(client)

    def fit(matcher: Matcher, gallery: Gallery, cache: SampleCache) -> None:
        plan = _RecognizerPlan(matcher)
        rows = gallery.rows
        if count_parts(*rows.shape) == 1:
            matcher.fit(gallery, cache)
            return
        blocks = row_blocks(rows, np.array(list(gallery))[gallery.codes])
        with _temporary_folder(scratch) as folder:
            model = _fit(plan, blocks, client, PART_BYTES, progress or _silent, folder)
            plan.fill(model)
        matcher.subjects = list(gallery)
        _warn_of_inaccurate(model)

    return recognizer.fit(fit)


@dataclass(frozen=True)
class _Whole:
    """What a usual fit to data of one part has learnt."""

    solution: PartSolution
    chosen: Chosen
    lam: float
    class_scale: Array | None
    estimator: PartEstimator
    profiles: Profiles | None = None
    scale: ScoreScale | None = None


class _Plan(Protocol):
    """What is fitted."""

    recipe: Recipe

    @property
    def estimator(self) -> PartEstimator:
        """The estimator."""

    def begin(self, labels: NDArray[Any], n_features: int) -> None:
        """Get ready for the classes."""

    def searched(self, counts: Index) -> Index:
        """Classes on whose samples parameters are chosen."""

    def choose(self, sums: InputSums, inputs: Array, codes: Index) -> Chosen:
        """Choose the parameters."""

    def finished(self, head: Head, learnt: Learnt, parts: "_FileParts") -> Head:
        """The head with what is learnt at the end."""

    def whole(self, rows: NDArray[Any], codes: Index, labels: NDArray[Any]) -> _Whole:
        """A usual fit to samples in the order in which they were given."""


class _EstimatorPlan:
    """An estimator is fitted."""

    def __init__(self, estimator: PartEstimator) -> None:
        self.recipe = checked_recipe(estimator)
        # Now, not at the end of a long fit.
        check_can_be_saved(estimator)
        self.estimator = estimator

    def begin(self, labels: NDArray[Any], n_features: int) -> None:
        self.estimator = with_labels(self.estimator, labels, n_features)

    def searched(self, counts: Index) -> Index:
        return searched_classes(self.estimator, counts)

    def choose(self, sums: InputSums, inputs: Array, codes: Index) -> Chosen:
        return choose(self.estimator, sums, inputs, codes)

    def finished(self, head: Head, learnt: Learnt, parts: "_FileParts") -> Head:
        head = replace(head, estimator=_bare(self.estimator))
        if head.chosen.rule != "cosine":
            return head
        return replace(head, profiles=_profiles(parts, head))

    def whole(self, rows: NDArray[Any], codes: Index, labels: NDArray[Any]) -> _Whole:
        check_size(self.estimator, *rows.shape)
        model: Any = clone(self.estimator).fit(rows, labels[codes])
        n_searched = 0
        lam, rule = getattr(model, "lam", 0.0), getattr(model, "rule", None)
        if isinstance(model, DualQMLWCV):
            lam, rule = model.best_lam_, model.best_rule_
            n_searched = int(classes_in_search(np.bincount(codes)).size)
        return _Whole(
            _solution_of(model, rows, codes),
            Chosen(float(lam), rule, _map_of(model), n_searched),
            float(getattr(model, "qml_", model).lam_),
            getattr(getattr(model, "qml_", model), "class_scale_", None),
            _bare(model),
            profiles_of(model),
        )


class _RecognizerPlan:
    """The matcher of a recogniser is fitted."""

    def __init__(self, matcher: Matcher) -> None:
        self._fitting = MatcherInParts(matcher)
        self.recipe = self._fitting.recipe

    @property
    def estimator(self) -> PartEstimator:
        return self._fitting.estimator

    def begin(self, labels: NDArray[Any], n_features: int) -> None:
        if labels.size < 2 and self._fitting.matcher.background is None:
            raise RecognitionError(
                "Recognition compares people: give samples of at least two, or a "
                "background of other people"
            )

    def searched(self, counts: Index) -> Index:
        return self._fitting.searched(counts)

    def choose(self, sums: InputSums, inputs: Array, codes: Index) -> Chosen:
        found = self._fitting.choose(sums, inputs, codes)
        return replace(found, n_searched=int(codes.max()) + 1)

    def finished(self, head: Head, learnt: Learnt, parts: "_FileParts") -> Head:
        (energies,) = parts.of_classes("energies")
        energy = float(energies.mean())
        self._fitting.finish(
            learnt.sums, energy, head.counts, lambda: self._people(head, parts.joined())
        )
        estimator = self.estimator
        # What it teaches is in the map and in the scale of scores.
        estimator.set_params(background=None)
        scale = self._fitting.matcher.score_scale()
        return replace(head, estimator=estimator, scale=scale)

    def whole(self, rows: NDArray[Any], codes: Index, labels: NDArray[Any]) -> _Whole:
        matcher, gallery = self._fitting.matcher, Gallery()
        counts = np.bincount(codes)
        order = np.argsort(codes, kind="stable")
        for number, own in enumerate(np.split(order, np.cumsum(counts)[:-1])):
            # In the order of the labels, which may be numbers.
            gallery.restore(f"{number:012}", rows[own])
        matcher.fit(gallery, SampleCache())
        model = matcher.model
        assert matcher.means is not None
        solution = _solution_of(model, rows[order], codes[order])
        multipliers = np.empty_like(solution.multipliers)
        multipliers[order] = solution.multipliers
        return _Whole(
            replace(solution, multipliers=multipliers, means=matcher.means),
            Chosen(
                float(matcher.parameters["lam"]),
                "max",
                _map_of(model),
                int(self.searched(counts).size),
            ),
            float(model.qml_.lam_),
            model.qml_.class_scale_,
            self.estimator.set_params(background=None),
            scale=matcher.score_scale(),
        )

    def _people(self, head: Head, solution: PartSolution) -> tuple[Any, Array]:
        model = people_model(
            self._fitting.estimator, head.counts, solution, head.chosen
        )
        return model, solution.means

    def fill(self, model: ShardedModel) -> None:
        """Give the matcher what it needs to be a usual one."""
        head, matcher = model.head, self._fitting.matcher
        matcher.model, matcher.means = self._people(head, model.solution())


def _bare(fitted: PartEstimator) -> PartEstimator:
    """An estimator with the results of its search, and nothing else."""
    bare: PartEstimator = clone(fitted)
    for name, value in search_of(fitted).items():
        setattr(bare, name, value)
    return bare


def _map_of(model: Any) -> LinearMap | None:
    """The map to the coordinates of a fitted estimator."""
    metric = getattr(model, "metric_", None)
    return None if metric is None else LinearMap(metric.mean_, metric.coefficients_)


def _solution_of(model: Any, rows: NDArray[Any], codes: Index) -> PartSolution:
    """What a fitted estimator has learnt about the classes."""
    qml = getattr(model, "qml_", model)
    n_classes = qml.ranks_.size
    energies = getattr(qml, "energies_", None)
    if energies is None:
        # The coordinates are the samples.
        energies = energies_of_others(
            rows.astype(np.float64), codes, qml.components_, qml.ranks_
        )
    means = qml.mean_responses_
    return PartSolution(
        qml.components_,
        qml.ranks_,
        np.empty(0) if means is None else means,
        qml.dual_coef_,
        qml.duality_gap_,
        qml.violation_,
        # A usual fit has warned of them already.
        np.zeros(n_classes, dtype=bool),
        np.full(n_classes, qml.n_iter_),
        energies,
        np.empty((0, 0)),
    )


def _plan_of(estimator: Any) -> _Plan:
    if not isinstance(estimator, Recognizer):
        return _EstimatorPlan(estimator)
    return _RecognizerPlan(
        Matcher(
            estimator.method,
            None,
            estimator.cosine_weight,
            estimator.parameters,
            estimator.background,
        )
    )


def _fit(
    plan: _Plan,
    blocks: RowBlocks | BlockStream,
    client: "Client | None",
    part_bytes: int,
    progress: _Progress,
    folder: Path,
) -> ShardedModel:
    """Fit in a folder that belongs to this fit."""
    # A recogniser keeps vectors in single precision.
    scratch = Scratch(str(folder), single=isinstance(plan, _RecognizerPlan))
    parts = _FileParts(scratch, client, plan.recipe, part_bytes, progress)
    parts.shuffle(blocks)
    parts.gather()
    plan.begin(parts.labels, parts.n_features)
    head = _whole_head(plan, parts) if parts.n_parts == 1 else _head(plan, parts)
    names = parts.shard_names()
    shards = write_head(folder, head, names)
    # A fit that has stopped here may have had more parts.
    remove_other_shards(folder, names)
    parts.scratch.remove("run", "part", "sums", "scatter")
    (folder / _MARK).unlink(missing_ok=True)
    return ShardedModel(folder, head, shards)


def _head(plan: _Plan, parts: "_FileParts") -> Head:
    """Fit in parts, and tell what all classes have in common."""
    learnt = learn(
        parts, plan.estimator, plan.recipe, plan.searched(parts.counts), plan.choose
    )
    (energies,) = parts.of_classes("energies")
    head = Head(
        plan.estimator,
        parts.n_features,
        int(parts.counts.sum()),
        learnt.problem.lam,
        learnt.chosen,
        parts.labels,
        parts.counts,
        np.array([places.size for places in parts.places]),
        np.concatenate(parts.places),
        scales_for_rule(learnt.chosen.rule, energies, parts.counts),
    )
    return plan.finished(head, learnt, parts)


def _whole_head(plan: _Plan, parts: "_FileParts") -> Head:
    """Fit as usual, and tell what all classes have in common."""
    found = parts.fit_whole(plan)
    return Head(
        found.estimator,
        parts.n_features,
        int(parts.counts.sum()),
        found.lam,
        found.chosen,
        parts.labels,
        parts.counts,
        np.array([parts.labels.size]),
        np.arange(parts.labels.size),
        found.class_scale,
        found.profiles,
        found.scale,
    )


def _fit_whole(task: tuple[Scratch, _Plan], part: int) -> _Whole:
    """Fit as usual to the only part, and write the shard."""
    scratch, plan = task
    samples = read_part(scratch, part)
    # In the order in which they were given.
    order = np.argsort(samples.numbers, kind="stable")
    rows, codes = samples.rows.rows[order], samples.rows.codes[order]
    with one_blas_thread():
        found = plan.whole(rows, codes, samples.labels)
    in_order = replace(samples, numbers=samples.numbers[order])
    write_shard(scratch, in_order, found.solution)
    # The rest is in the file.
    nothing = np.empty(0)
    return replace(
        found,
        solution=replace(
            found.solution,
            components=nothing,
            multipliers=nothing,
            mean_responses=nothing,
            means=nothing,
        ),
    )


def _silent(step: str, done: int, total: int) -> None:
    """Say nothing."""


@contextmanager
def _temporary_folder(parent: str | os.PathLike[str] | None) -> Iterator[Path]:
    """A folder that is removed at the end."""
    try:
        # Workers may have another working directory.
        where = None if parent is None else os.path.abspath(parent)
        folder = Path(tempfile.mkdtemp(prefix="dualqml-fit-", dir=where))
    except OSError as error:
        raise FileError(
            f"No folder can be made in {parent or tempfile.gettempdir()}: "
            f"{error.strerror}"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _own_folder(folder: Path, *, resume: bool) -> Iterator[Path]:
    """Make a folder, and keep other fits out of it."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} cannot be made: {error.strerror}") from error
    mark = folder / _MARK
    with exclusive(mark):
        if not resume and (mark.exists() or any(folder.glob("*.safetensors"))):
            raise FileError(
                f"{folder} has files of a fit or a model: resume=True goes on with a "
                "fit; else give another folder, or empty this one"
            )
        mark.touch()
        yield folder


class _FileParts:
    """Parts of the classes in files of a scratch folder; a `ClassParts`."""

    def __init__(
        self,
        scratch: Scratch,
        client: "Client | None",
        recipe: Recipe,
        part_bytes: int,
        progress: _Progress,
    ) -> None:
        self.scratch = scratch
        self._client, self.recipe = client, recipe
        self._part_bytes, self._progress = part_bytes, progress
        self._runs: list[str] = []
        self._key = ""
        self.n_parts, self.n_features = 0, 0
        self.labels: NDArray[Any] = np.empty(0, dtype=np.int64)
        self.counts: Index = np.empty(0, dtype=np.intp)
        #: For each part, the numbers of its classes.
        self.places: list[Index] = []
        Path(scratch.folder, _MARK).touch()

    def _run(
        self,
        step: str,
        function: Callable[[Any, Any], Any],
        shared: Any,
        items: Sequence[Any],
        in_words: Callable[[Any], str],
    ) -> list[Any]:
        """Run the tasks of a step; results are in the order of the items."""
        found: list[Any] = [None] * len(items)
        self._progress(step, 0, len(items))
        tasks = run_tasks(
            self._client,
            (self.scratch.folder, function, shared),
            _numbered,
            list(enumerate(items)),
            lambda item: in_words(item[1]),
        )
        # If `progress` raises or Ctrl-C is pressed, the other tasks are given up now.
        with closing(tasks):
            for done, (item, result) in enumerate(tasks, start=1):
                found[item[0]] = result
                self._progress(step, done, len(items))
        return found

    def _run_on_parts(
        self, step: str, function: Callable[[Any, int], Any], shared: Any
    ) -> None:
        total = self.n_parts
        words = f"part {{}} of {total:,}, {step}".format
        self._run(step, function, shared, range(total), words)

    def shuffle(self, blocks: RowBlocks | BlockStream) -> None:
        """Write the runs of all blocks."""
        if isinstance(blocks, BlockStream):
            n_rows = 0
            for number, block in enumerate(blocks):
                self.n_features = block.rows.shape[1]
                self._runs.append(write_run(self.scratch, (number, block)))
                n_rows += len(block.rows)
                self._progress("shuffle", number + 1, number + 1)
        else:
            n_rows, self.n_features = blocks.n_rows, blocks.n_features
            numbers = range(len(blocks))
            if blocks.on_workers and self._client is not None:
                items = [(number, blocks.reader(number)) for number in numbers]
                self._runs = self._run(
                    "shuffle",
                    write_run,
                    self.scratch,
                    items,
                    lambda item: f"block {item[0]:,} ({blocks.describe(item[0])})",
                )
            else:
                # The rows are here, or this process reads them.
                for number in numbers:
                    block = blocks.read(number)
                    self._runs.append(write_run(self.scratch, (number, block)))
                    self._progress("shuffle", number + 1, len(blocks))
        self.n_parts = count_parts(n_rows, self.n_features, self._part_bytes)
        if self.n_parts > _MOST_PARTS:
            least = -(-8 * n_rows * self.n_features // _MOST_PARTS)
            raise BlockError(
                f"part_bytes={self._part_bytes:,} makes {self.n_parts:,} parts of the "
                f"data, more than {_MOST_PARTS:,}: give at least {least:,}"
            )
        self._key = key_of(*self._runs)

    def gather(self) -> None:
        """Write the parts and the sums over them, and find out who is in them."""
        gathering = Gathering(
            self.scratch, len(self._runs), self.n_parts, self.recipe, self._key
        )
        self._run_on_parts("gather", gather_part, gathering)
        # They are in the parts now.
        self.scratch.remove("run")
        # Copies: a file that is mapped stays open.
        parts = [
            (part.labels.copy(), part.rows.counts.copy())
            for part in (read_part(self.scratch, n) for n in range(self.n_parts))
        ]
        # Labels of parts without classes have no type.
        labels = np.concatenate([own for own, _ in parts if own.size])
        counts = np.concatenate([own for _, own in parts])
        order = np.argsort(labels, kind="stable")
        self.labels, self.counts = labels[order], counts[order].astype(np.intp)
        numbers = np.empty(order.size, dtype=np.intp)
        numbers[order] = np.arange(order.size)
        ends = np.cumsum([own.size for own, _ in parts])
        self.places = np.split(numbers, ends[:-1])

    def input_sums(self, recipe: Recipe) -> InputSums:
        """Sums over all samples."""
        found = (read_sums(self.scratch, part) for part in range(self.n_parts))
        return merged_in_tree((sums for sums in found if sums), InputSums.merged)

    def inputs_of(self, classes: Index, recipe: Recipe) -> tuple[Array, Index]:
        """Inputs of the samples of some classes, and their classes from 0."""
        counts = self.counts[classes]
        last = np.cumsum(counts)
        out = np.empty((int(last[-1]), self.n_features))
        for number, places in enumerate(self.places):
            wanted = np.flatnonzero(np.isin(places, classes))
            if not wanted.size:
                continue
            part = read_part(self.scratch, number)
            ends = np.cumsum(part.rows.counts)
            targets = np.searchsorted(classes, places[wanted])
            for own, target in zip(wanted, targets, strict=True):
                rows = slice(ends[own] - part.rows.counts[own], ends[own])
                # In the order in which they were given.
                order = np.argsort(part.numbers[rows], kind="stable")
                found = input_rows(part.rows.rows[rows][order], unit=recipe.unit)
                out[last[target] - counts[target] : last[target]] = found
        return out, np.repeat(np.arange(classes.size), counts)

    def coordinate_sums(
        self, recipe: Recipe, linear: LinearMap | None, largest_square: float
    ) -> FoundSamples:
        """Sums over the coordinates of all samples."""
        key = key_of(recipe, linear, largest_square, versions())
        projection = Projection(
            self.scratch, self.n_parts, recipe, linear, largest_square, key
        )
        self._run_on_parts("scatter", sum_coordinates, projection)
        zero, empty = [np.empty(0, np.int64)], [np.empty(0, np.intp)]
        sums = []
        for part in range(self.n_parts):
            found = read_scatter(self.scratch, part)
            if found is not None:
                sums.append(found.sums)
                zero.append(found.zero_numbers)
                empty.append(self.places[part][found.empty_classes])
        merged = merged_in_tree(sums, type(sums[0]).merged)
        return FoundSamples(
            merged, np.sort(np.concatenate(zero)), np.sort(np.concatenate(empty))
        )

    def solve(
        self, recipe: Recipe, linear: LinearMap | None, problem: SharedProblem
    ) -> None:
        """Solve the classes of all parts, and write them to shards."""
        key = key_of(recipe, linear, problem, versions())
        solving = Solving(self.scratch, recipe, linear, problem, key)
        self._run_on_parts("solve", solve_part, solving)

    def fit_whole(self, plan: _Plan) -> _Whole:
        """Fit as usual to the only part, and write its shard."""
        (found,) = self._run(
            "solve", _fit_whole, (self.scratch, plan), [0], "part {} of 1, solve".format
        )
        assert isinstance(found, _Whole)
        return found

    def shard_names(self) -> list[str]:
        """The names of the files of the shards."""
        return [self.scratch.path("shard", part).name for part in range(self.n_parts)]

    def joined(self) -> PartSolution:
        """The solutions of all classes, with multipliers in the order of samples."""
        shards = [
            read_shard(self.scratch.path("shard", part)) for part in range(self.n_parts)
        ]
        return joined_shards([shard for shard in shards if shard], self.places)

    def of_classes(self, *names: str) -> list[NDArray[Any]]:
        """What was learnt about each class, in the order of the labels."""
        out: list[list[NDArray[Any]]] = [[] for _ in names]
        for part in range(self.n_parts):
            shard = read_shard(self.scratch.path("shard", part))
            if shard is not None:
                for found, name in zip(out, names, strict=True):
                    found.append(np.array(getattr(shard.solution, name)))
        order = np.argsort(np.concatenate(self.places))
        return [np.concatenate(found)[order] for found in out]


def _numbered(shared: tuple[str, Callable[[Any, Any], Any], Any], item: Any) -> Any:
    """Run a task of a step."""
    folder, function, rest = shared
    if not os.path.exists(Path(folder, _MARK)):
        raise ClusterError(
            f"A worker on {platform.node()} does not see the folder {folder}: give a "
            "scratch folder that all workers see under the same name"
        )
    return function(rest, item[1])


def _profiles(parts: _FileParts, head: Head) -> Profiles:
    """What rule "cosine" compares with, in the order of the samples."""
    linear = head.chosen.linear
    check_profiles("cosine", head.n_samples, head.classes.size)
    width = parts.n_features if linear is None else linear.coefficients.shape[1]
    coordinates = np.empty((head.n_samples, width))
    codes = np.empty(head.n_samples, dtype=np.intp)
    for number, places in enumerate(parts.places):
        part = read_part(parts.scratch, number)
        for rows, _ in part.rows.chunks():
            with one_blas_thread():
                found = coordinate_rows(part.rows.rows[rows], parts.recipe, linear)
            coordinates[part.numbers[rows]] = found
        codes[part.numbers] = np.repeat(places, part.rows.counts)
    fitted = FittedArrays(
        head.classes,
        head.counts,
        head.n_features,
        parts.joined(),
        head.class_scale,
        head.chosen,
        head.lam,
    )
    profiles = profiles_of(assembled(head.estimator, fitted, coordinates, codes))
    assert profiles is not None
    return profiles


def _warn_of_inaccurate(model: ShardedModel) -> None:
    warn_if_inaccurate(
        model.duality_gap_,
        model.violation_,
        model.rounding_limited_,
        model.tol,
        stacklevel=4,
    )
