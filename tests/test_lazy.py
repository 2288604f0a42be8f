"""Rooms import what they export only when it is used."""

import ast
import importlib
import pkgutil
import subprocess
import sys

import pytest

import dualqml

ROOMS = (
    "dualqml",
    "dualqml.data",
    "dualqml.evaluation",
    "dualqml.experiments",
    "dualqml.extractors",
    "dualqml.images",
    "dualqml.persistence",
    "dualqml.recognition",
)


def heavy_after(code):
    """Of scikit-learn and SciPy, what a new process has imported after some code."""
    show = "import sys; print(*sorted({'sklearn', 'scipy'} & set(sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout.split()


@pytest.mark.parametrize(
    "module",
    [
        *ROOMS,
        "dualqml._saved_state",
        "dualqml._text",
        "dualqml.cli.main",
        "dualqml.extractors.method_names",
        "dualqml.images.files",
        "dualqml.images.geometry",
        "dualqml.persistence.tensors",
        "dualqml.recognition.results",
    ],
)
def test_light_modules_stay_light(module):
    assert heavy_after(f"import {module}") == []


def test_a_name_of_a_room_brings_what_it_needs():
    assert "sklearn" in heavy_after("from dualqml.extractors import LPP")
    assert heavy_after("from dualqml.persistence import read_tensors") == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_is_there(room):
    package = importlib.import_module(room)
    below = {info.name for info in pkgutil.iter_modules(package.__path__)}
    public = {name for name in below if not name.startswith("_")}
    assert {*package.__all__, *public} <= set(dir(package))
    for name in {*package.__all__, *public}:
        assert getattr(package, name) is getattr(package, name)
    assert not hasattr(package, "no_such_name")
    with pytest.raises(ImportError):
        exec(f"from {room} import no_such_name")


@pytest.mark.parametrize("room", ROOMS)
def test_type_checkers_see_the_same_names(room):
    """The imports for type checkers have the places from which names come."""
    package = importlib.import_module(room)
    with open(package.__file__, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert {*seen, "__version__"} == {*package.__all__, "__version__"}
    for name, place in seen.items():
        assert getattr(importlib.import_module(place), name) is getattr(package, name)


def test_star_imports():
    names = {}
    exec("from dualqml.evaluation import *", names)
    assert names["cmc_curve"] is dualqml.evaluation.cmc.cmc_curve
