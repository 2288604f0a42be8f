# SPDX-License-Identifier: BSD-3-Clause
"""Packages that import a module only when one of its names is used.

Importing one light module of a room, such as ``dualqml.persistence.tensors``, also
imports the room itself. The room must not bring scikit-learn with it.
"""

TYPE_CHECKING = False  # as in the module typing, which takes long to import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy_names(
    package: str, places: "Mapping[str, str]"
) -> "tuple[Callable[[str], Any], Callable[[], list[str]]]":
    """Make ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        Name of the package.
    places : dict of str to str
        The names that the package exports, separated by spaces, for each module that
        has them.

    Returns
    -------
    __getattr__ : callable
        Imports the module that has a name. Public modules of the package are names
        too.
    __dir__ : callable
        Lists all names.
    """
    modules = {name: place for place in places for name in places[place].split()}

    def import_name(name: str) -> "Any":
        import importlib
        import importlib.util

        if name in modules:
            value = getattr(importlib.import_module(modules[name]), name)
        elif not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}"):
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        vars(importlib.import_module(package))[name] = value
        return value

    def list_names() -> list[str]:
        import importlib
        import pkgutil

        found = vars(importlib.import_module(package))
        below = {info.name for info in pkgutil.iter_modules(found["__path__"])}
        public = {name for name in below if not name.startswith("_")}
        return sorted({*found, *modules, *public} - {"TYPE_CHECKING", "lazy_names"})

    return import_name, list_names
