# SPDX-License-Identifier: BSD-3-Clause
"""The closed list of classes that a model file may hold.

A file names a class by its key here, and nothing is ever imported because a file says
so. Our own classes declare what is saved of them (see `dualqml._saved_state`). What is
saved of scikit-learn's classes is declared here.
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
    asked,
    check_shapes,
    expect_equal,
    fitted,
)
from dualqml.extractors.kernels import CentredKernel
from dualqml.extractors.mle import PatchMaps
from dualqml.extractors.tuning import RankSearchCV

#: Pixels of the longest side of images of which the descriptors are counted, which
#: takes memory for every pixel of a side.
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
        What else must hold after loading: a function of the object and its path.
    """

    type: type
    saved: Saved
    check: Callable[[Any, Path], None] | None = None

    def check_loaded(self, made: Any, path: Path) -> None:
        """Raise if the parts of an object do not fit together.

        Parameters
        ----------
        made : object
            A fitted estimator or a dataclass, with attributes of the right kinds.
        path : tuple of str
            Where it is, for messages.

        Raises
        ------
        ValueProblem
            They do not fit.
        """
        check_shapes(made, self.saved, path)
        if self.check is not None:
            self.check(made, path)


def _own(kind: Any) -> SavedClass:
    return SavedClass(kind, kind._saved, getattr(kind, "_check_saved", None))


def _are_steps(steps: object) -> bool:
    if not isinstance(steps, list) or not steps or not all(map(_is_step, steps)):
        return False
    return len({name for name, _ in steps}) == len(steps)


def _is_step(step: object) -> bool:
    if not isinstance(step, tuple) or len(step) != 2 or not isinstance(step[0], str):
        return False
    worker = step[1]
    if isinstance(worker, str):
        return worker == "passthrough"
    return worker is None or ESTIMATOR.holds(worker)


def _check_steps(made: Pipeline, path: Path) -> None:
    """A pipeline: each step takes what the step before makes."""
    made_before: int | None = None
    for place, (_, step) in enumerate(made.steps):
        # "passthrough" makes what it takes.
        if step is None or isinstance(step, str):
            continue
        own = (*path, "steps", str(place))
        taken = getattr(step, "n_features_in_", None)
        if taken is not None and made_before is not None:
            source = "the step before"
            expect_equal(taken, made_before, own, "1", "features", source)
        made_before = _n_features_out(step, (*own, "1"))


def _n_features_out(step: Any, path: Path) -> int | None:
    """What a step makes; None where it is not fitted or cannot tell."""
    taken: int | None = getattr(step, "n_features_in_", None)
    if taken is None or isinstance(step, OneToOneFeatureMixin):
        return taken
    if max(getattr(step, "image_shape_", (0,))) > _LONGEST_SIDE:
        return None
    found: int | None = asked(lambda: getattr(step, "_n_features_out", None), path)
    return found


_PIPELINE = Saved(
    # The names of columns are those of its first step, and cannot be set.
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
    _own(extractors.APCA),
    _own(extractors.CFA),
    _own(extractors.DualQML),
    _own(extractors.DualQMLClassifier),
    _own(extractors.DualQMLClassifierCV),
    _own(extractors.DualQMLW),
    _own(extractors.DualQMLWCV),
    _own(extractors.ERE),
    _own(extractors.ERKDA),
    _own(extractors.Fisherfaces),
    _own(extractors.GTDA),
    _own(extractors.KernelLDA),
    _own(extractors.LPP),
    _own(extractors.MFA),
    _own(extractors.MLE),
    _own(extractors.NearestSample),
    _own(extractors.WithinMetric),
    _own(RankSearchCV),
    _own(CentredKernel),
    _own(PatchMaps),
    _own(images.Cropper),
    _own(images.EyeAligner),
    _own(images.FaceCropper),
    _own(images.FaceEmbedder),
    _own(images.GreyConverter),
    _own(images.LocalDescriptors),
    _own(images.PhotometricNormaliser),
    _own(images.Resizer),
    SavedClass(Pipeline, _PIPELINE, _check_steps),
    SavedClass(Normalizer, fitted()),
    SavedClass(StandardScaler, _SCALER),
)

#: All classes that a model file may hold, by the names that files use.
CLASSES: Mapping[str, SavedClass] = {saved.type.__name__: saved for saved in _ALL}
