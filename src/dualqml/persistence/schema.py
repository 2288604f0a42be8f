# SPDX-License-Identifier: BSD-3-Clause
"""The closed list of classes that a model file may hold.

A file names a class by its key here, and nothing is ever imported because a file says
so. Classes of dualqml declare what is saved of them (see `dualqml._saved_state`).
The declarations for classes of scikit-learn are here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.base import OneToOneFeatureMixin
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from dualqml import extractors, images
from dualqml._saved_state import (
    ESTIMATOR,
    NOTHING,
    NUMBER,
    OUTPUT,
    VECTOR,
    Kind,
    Path,
    Saved,
    array_of,
    check_shapes,
    expect_equal,
    fitted,
    from_parameters,
)
from dualqml.extractors.kernels import CentredKernel
from dualqml.extractors.mle import PatchMaps
from dualqml.extractors.probabilities import ClassProbabilities
from dualqml.extractors.tuning import RankSearchCV

#: Longest side of images, in pixels, for which the number of features of a step is
#: computed. The computation takes memory for every pixel of a side.
_LONGEST_SIDE = 10_000


@dataclass(frozen=True)
class SavedClass:
    """A class that model files may hold.

    Attributes
    ----------
    type : type
        The class. Estimators and dataclasses are made from their parameters.
    saved : Saved
        What a file keeps of an object.
    check : callable or None
        A further check after loading: a function of the object and its path.
    """

    type: type
    saved: Saved
    check: Callable[[Any, Path], None] | None = None

    def check_loaded(self, loaded: Any, path: Path) -> None:
        """Raise if the parts of an object do not fit together.

        Parameters
        ----------
        loaded : object
            A fitted estimator or a dataclass, with attributes of the right kinds.
        path : tuple of str
            Where the object is, for messages.

        Raises
        ------
        ValueProblem
            The parts do not fit.
        """
        check_shapes(loaded, self.saved, path)
        if self.check is not None:
            self.check(loaded, path)


def _saved_class(kind: Any) -> SavedClass:
    """The entry of a class that declares itself what is saved of it."""
    return SavedClass(kind, kind._saved, getattr(kind, "_check_saved", None))


def _are_steps(steps: object) -> bool:
    if not isinstance(steps, list) or not steps or not all(map(_is_step, steps)):
        return False
    return len({name for name, _ in steps}) == len(steps)


def _is_step(step: object) -> bool:
    if not isinstance(step, tuple) or len(step) != 2 or not isinstance(step[0], str):
        return False
    estimator = step[1]
    if isinstance(estimator, str):
        return estimator == "passthrough"
    return estimator is None or ESTIMATOR.holds(estimator)


def _check_steps(pipeline: Pipeline, path: Path) -> None:
    """Raise if a step of a pipeline does not take what the step before returns."""
    n_before: int | None = None
    for position, (_, step) in enumerate(pipeline.steps):
        # "passthrough" changes nothing.
        if step is None or isinstance(step, str):
            continue
        step_path = (*path, "steps", str(position))
        n_in = getattr(step, "n_features_in_", None)
        if n_in is not None and n_before is not None:
            source = "the step before"
            expect_equal(n_in, n_before, step_path, "1", "features", source)
        n_before = _n_features_out(step, (*step_path, "1"))


def _n_features_out(step: Any, path: Path) -> int | None:
    """Number of features that a step returns; None if it is not known."""
    n_in: int | None = getattr(step, "n_features_in_", None)
    if n_in is None or isinstance(step, OneToOneFeatureMixin):
        return n_in
    if max(getattr(step, "image_shape_", (0,))) > _LONGEST_SIDE:
        return None
    found: int | None = from_parameters(
        lambda: getattr(step, "_n_features_out", None), path
    )
    return found


_PIPELINE = Saved(
    # The names of features are those of its first step, and cannot be set.
    optional=OUTPUT,
    parameters={
        "steps": Kind("steps with names", _are_steps),
        # A cache is a folder of pickles, and a file must not name one.
        "memory": NOTHING,
    },
)
_SCALER = fitted(
    mean_=(VECTOR | NOTHING).of("n_features"),
    var_=(VECTOR | NOTHING).of("n_features"),
    scale_=(VECTOR | NOTHING).of("n_features"),
    n_samples_seen_=(NUMBER | array_of("a vector", "i u f", 1)).of("n_features"),
)

_ALL = (
    _saved_class(extractors.APCA),
    _saved_class(extractors.Background),
    _saved_class(extractors.CFA),
    _saved_class(extractors.DualQML),
    _saved_class(extractors.DualQMLClassifier),
    _saved_class(extractors.DualQMLClassifierCV),
    _saved_class(extractors.DualQMLW),
    _saved_class(extractors.DualQMLWCV),
    _saved_class(extractors.ERE),
    _saved_class(extractors.ERKDA),
    _saved_class(extractors.Fisherfaces),
    _saved_class(extractors.GTDA),
    _saved_class(extractors.KernelLDA),
    _saved_class(extractors.LPP),
    _saved_class(extractors.MFA),
    _saved_class(extractors.MLE),
    _saved_class(extractors.NearestMean),
    _saved_class(extractors.NearestSample),
    _saved_class(extractors.WithinMetric),
    _saved_class(RankSearchCV),
    _saved_class(CentredKernel),
    _saved_class(PatchMaps),
    _saved_class(ClassProbabilities),
    _saved_class(images.Cropper),
    _saved_class(images.EyeAligner),
    _saved_class(images.FaceCropper),
    _saved_class(images.FaceEmbedder),
    _saved_class(images.GreyConverter),
    _saved_class(images.LocalDescriptors),
    _saved_class(images.PhotometricNormaliser),
    _saved_class(images.Resizer),
    SavedClass(Pipeline, _PIPELINE, _check_steps),
    SavedClass(Normalizer, fitted()),
    SavedClass(StandardScaler, _SCALER),
)

#: All classes that a model file may hold, by the names that files use.
CLASSES: Mapping[str, SavedClass] = {saved.type.__name__: saved for saved in _ALL}
