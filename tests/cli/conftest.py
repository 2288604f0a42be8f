import shutil

import numpy as np
import pytest

from tests.cli.commands import run, run_alone
from tests.people import make_people
from tests.photographs import load_faces


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


@pytest.fixture(scope="session")
def orl_faces():
    """Ten faces each of forty people."""
    return load_faces().reshape(40, 10, 112, 92)


@pytest.fixture(scope="session")
def gallery(orl_faces, tmp_path_factory):
    """Photographs of five people in the folder people, more of them in probes.

    In the file wall.png is nobody. The person of stranger.png is not enrolled in the
    model people.dualqml. Tests change nothing here.
    """
    from tests.cli.pictures import picture, save, save_people

    root = tmp_path_factory.mktemp("gallery")
    save_people(root / "people", orl_faces, range(5), (0, 3, 6))
    save_people(root / "probes", orl_faces, range(5), (8,))
    save(picture(orl_faces[30, 0]), root / "stranger.png")
    save(np.full((200, 200), 128, np.uint8), root / "wall.png")
    assert run_alone("train", root / "people", "-o", root / "people.dualqml") == 0
    return root


@pytest.fixture
def photo_model(gallery, tmp_path):
    """A copy of the model of photographs, which may be changed."""
    return shutil.copy(gallery / "people.dualqml", tmp_path / "photos.dualqml")
