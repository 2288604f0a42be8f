# SPDX-License-Identifier: BSD-3-Clause
"""Anybody's estimator as a method: a class is named, never pickled.

A method of your own is a text such as ``svm=sklearn.svm:LinearSVC(C=1.0)``. The text
goes to other processes and into stores of results, and the class is imported where the
method runs. Values of parameters are literals of Python. They are read as data and
never evaluated as code.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any, Self

from sklearn.base import is_clusterer, is_outlier_detector, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer

from dualqml._text import first_few, printable
from dualqml.exceptions import MethodError
from dualqml.extractors.methods import ALL_METHODS
from dualqml.extractors.nearest import NearestSample
from dualqml.images.descriptors import LocalDescriptors
from dualqml.images.shapes import SizeLike

#: Packages name their methods in this group of entry points.
ENTRY_POINT_GROUP = "dualqml.methods"

_EXPECTED = (
    "expected name=package.module:Class, with parameters as in "
    '"svm=sklearn.svm:LinearSVC(C=1.0)"'
)
_TARGET = re.compile(r"(?P<target>[\w.]+:[\w.]+)(?P<rest>.*)", re.DOTALL)
#: Packages whose versions every result has.
_RECORDED_ANYHOW = ("dualqml", "sklearn")
#: Names of rows must not be taken for others, and are listed with commas.
_BAD_NAME = re.compile(r"[,=\x00-\x1f]|\(tuned\)|[\[\]]")


@dataclass(frozen=True)
class OwnMethod:
    """A class of any package as a row of the tables.

    Attributes
    ----------
    name : str
        Name of the row.
    target : str
        Where the class, or a function that makes the estimator, is:
        ``package.module:Class``.
    parameters : dict
        Keyword parameters: literals of Python.

    Examples
    --------
    >>> from dualqml.extractors.own_methods import OwnMethod
    >>> method = OwnMethod.parse("svm=sklearn.svm:LinearSVC(C=1.0)")
    >>> method.name, method.spec
    ('svm', 'sklearn.svm:LinearSVC(C=1.0)')
    >>> method.make()
    LinearSVC(random_state=0)
    """

    name: str
    target: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {name.lower() for name in ALL_METHODS}
        if not self.name.strip() or _BAD_NAME.search(self.name):
            raise MethodError(
                f"{printable(self.name)!r} cannot be the name of a method: it must not "
                "be empty, nor contain commas, equal signs, brackets or (tuned)"
            )
        if self.name.lower() in known:
            raise MethodError(
                f"{self.name} is the name of a method of dualqml; give yours another"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a method as it is written in a command.

        Parameters
        ----------
        text : str
            ``name=package.module:Class``. Parameters follow in parentheses,
            ``Class(C=1.0)``, or after commas, ``Class,C=1.0``.

        Returns
        -------
        OwnMethod
            The method. Nothing is imported yet.

        Raises
        ------
        MethodError
            It is written in another way.
        """
        name, found, spec = text.partition("=")
        if not found or ":" not in spec or ":" in name:
            raise MethodError(
                f"{printable(text)!r} names no class: {_EXPECTED}. Methods of dualqml "
                "are chosen with --methods."
            )
        return cls.from_spec(name.strip(), spec)

    @classmethod
    def from_spec(cls, name: str, spec: str) -> Self:
        """The method from the name of its row and its `spec`.

        Parameters
        ----------
        name : str
            Name of the row.
        spec : str
            What stands behind the name in `parse`.

        Returns
        -------
        OwnMethod
            The method.

        Raises
        ------
        MethodError
            It is written in another way.
        """
        match = _TARGET.fullmatch(spec.strip())
        if match is None:
            raise MethodError(f"{printable(spec)!r} names no class: {_EXPECTED}")
        rest = match["rest"].strip()
        if rest.startswith(","):
            rest = f"({rest[1:]})"
        method = cls(name, match["target"], _keywords(rest, spec) if rest else {})
        # What is stored must be what was asked for, in every process.
        again = _TARGET.fullmatch(method.spec)
        inner = again["rest"] if again else ""
        if method.parameters and _keywords(inner, spec) != dict(method.parameters):
            raise MethodError(
                f"{printable(spec)!r}: a value is not the same after it is written down"
            )
        return method

    @property
    def spec(self) -> str:
        """The class and its parameters, sorted by name: what tells it from others."""
        said = ", ".join(f"{k}={v!r}" for k, v in sorted(self.parameters.items()))
        return f"{self.target}({said})" if said else self.target

    def make(self, *, local: bool = False, image_shape: SizeLike | None = None) -> Any:
        """Make the classifier; this imports the class.

        Parameters
        ----------
        local : bool, default=False
            Whether images are replaced by their local descriptors first.
        image_shape : tuple of int, optional
            Height and width of the images in the rows; None if the rows are not
            images.

        Returns
        -------
        estimator
            A classifier is used as it is. A transformer is followed by the nearest
            training sample by cosine. Parameters `random_state` and `image_shape`
            that the class has and nobody set are 0 and the shape of the images.

        Raises
        ------
        MethodError
            The module or the class is not there, it does not take the parameters, or
            it is no estimator that can recognise.
        """
        estimator = _called(self.spec, self._imported(), dict(self.parameters))
        self._check(estimator)
        self._set_defaults(estimator, None if local else image_shape)
        steps: list[tuple[str, Any]] = []
        if local:
            describe = LocalDescriptors(image_shape=image_shape)
            steps = [("describe", describe), ("normalise", Normalizer())]
        if hasattr(estimator, "predict"):
            # Alone it need not know anything of scikit-learn's pipelines.
            return Pipeline([*steps, ("classify", estimator)]) if steps else estimator
        nearest = ("classify", NearestSample())
        return Pipeline([*steps, ("extract", estimator), nearest])

    def package_version(self) -> dict[str, str]:
        """The version of the package that has the class, where it is known.

        Returns
        -------
        dict
            By the name of the package; empty if it has no version.
        """
        package = self.target.partition(":")[0].partition(".")[0]
        if package in _RECORDED_ANYHOW:
            return {}
        try:
            return {package: version(package)}
        except PackageNotFoundError:
            found = getattr(importlib.import_module(package), "__version__", None)
            return {package: found} if isinstance(found, str) else {}

    def _imported(self) -> Any:
        module, _, attribute = self.target.partition(":")
        try:
            thing = importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise MethodError(
                f"{self.target}: there is no module {error.name!r}. Install its "
                "package, or run the command in the folder that holds it."
            ) from error
        # A module can do anything when it is imported.
        except (Exception, SystemExit) as error:
            raise MethodError(
                f"{self.target}: its import failed: {type(error).__name__}: {error}"
            ) from error
        for part in attribute.split("."):
            if not hasattr(thing, part):
                names = [n for n, v in vars(thing).items() if inspect.isclass(v)]
                listed = first_few(sorted(names)) or "none"
                raise MethodError(
                    f"{self.target}: {module} has no {part!r}; its classes are {listed}"
                )
            thing = getattr(thing, part)
        if not callable(thing):
            raise MethodError(
                f"{self.target} is neither a class nor a function that makes an "
                "estimator"
            )
        return thing

    def _check(self, estimator: Any) -> None:
        if inspect.isclass(estimator) or not hasattr(estimator, "fit"):
            raise MethodError(
                f"{self.spec} is no estimator: it has no method fit. Name a class, or "
                "a function that returns an estimator."
            )
        kinds = {
            "a regressor": is_regressor,
            "a clusterer": is_clusterer,
            "an outlier detector": is_outlier_detector,
        }
        for kind, holds in kinds.items():
            if _is(holds, estimator):
                raise MethodError(f"{self.spec} is {kind}, not a classifier")
        if not hasattr(estimator, "predict") and not hasattr(estimator, "transform"):
            raise MethodError(
                f"{self.spec} has neither predict nor transform, so it can recognise "
                "nobody"
            )

    def _set_defaults(self, estimator: Any, image_shape: SizeLike | None) -> None:
        if not hasattr(estimator, "get_params") or not hasattr(estimator, "set_params"):
            return
        now = estimator.get_params(deep=False)
        wanted = {"random_state": 0, "image_shape": image_shape}
        missing = {
            name: value
            for name, value in wanted.items()
            if name in now and now[name] is None and name not in self.parameters
        }
        estimator.set_params(**missing)


def installed_methods() -> dict[str, OwnMethod]:
    """The methods that installed packages offer as entry points of `dualqml.methods`.

    Returns
    -------
    dict of str to OwnMethod
        By name. Names that dualqml itself uses, and entry points that name no class,
        are left out. Nothing is imported.
    """
    found: dict[str, OwnMethod] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        method = _from_entry_point(point)
        if method is not None:
            found.setdefault(method.name, method)
    return found


def _from_entry_point(point: EntryPoint) -> OwnMethod | None:
    try:
        return OwnMethod.from_spec(point.name, point.value.partition("[")[0])
    except MethodError:
        return None


def _keywords(text: str, spec: str) -> dict[str, Any]:
    """The values of a list of keywords in parentheses."""
    problem = f"{printable(spec)!r}: "
    try:
        call = ast.parse(f"f{text}", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise MethodError(f"{problem}{_EXPECTED}") from error
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise MethodError(f"{problem}{_EXPECTED}")
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise MethodError(f"{problem}parameters are given by name, as in C=1.0")
    values: dict[str, Any] = {}
    for keyword in call.keywords:
        name = str(keyword.arg)
        if name in values:
            raise MethodError(f"{problem}{name} is given twice")
        try:
            values[name] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            raise MethodError(
                f"{problem}the value of {name} is not a literal. Numbers, texts in "
                "quotes, True, False, None, and lists, tuples and dicts of them are. "
                "For anything else name a function that makes the estimator."
            ) from error
    return values


def _called(spec: str, target: Any, parameters: dict[str, Any]) -> Any:
    try:
        return target(**parameters)
    except Exception as error:
        try:
            known = [
                p.name
                for p in inspect.signature(target).parameters.values()
                if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
            ]
            said = f" Its parameters are {', '.join(known) or 'none'}."
        except (TypeError, ValueError):
            said = ""
        raise MethodError(
            f"{spec} cannot be made: {type(error).__name__}: {error}.{said}"
        ) from error


def _is(holds: Any, estimator: Any) -> bool:
    try:
        return bool(holds(estimator))
    # What does not know scikit-learn has no tags.
    except Exception:
        return False
