import shutil

import pytest

from tests.cli.commands import run
from tests.people import make_people


@pytest.fixture(scope="session")
def _trained(tmp_path_factory):
    """Folders of eight people; a model of four images each, and one more outside."""
    image_module = pytest.importorskip("PIL.Image")
    root = tmp_path_factory.mktemp("trained")
    people = make_people(n_people=8, n_images=5, size=16, noise=0.1)
    for number, (image, label) in enumerate(
        zip(people.images, people.labels, strict=True)
    ):
        folder = "people" if number % 5 < 4 else "probes"
        file = root / folder / label / f"{number % 5}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        image_module.fromarray(image).save(file)
    assert run("train", root / "people", "-o", root / "m.dualqml", "--fpir", 0.02) == 0
    return root


@pytest.fixture
def people(_trained, tmp_path):
    """A folder of eight people with four images each."""
    for name in ("people", "probes"):
        shutil.copytree(_trained / name, tmp_path / name)
    return tmp_path / "people"


@pytest.fixture
def model(_trained, people):
    """A model of these people."""
    return shutil.copy(_trained / "m.dualqml", people.parent / "people.dualqml")
