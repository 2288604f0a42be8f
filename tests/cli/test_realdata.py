"""Photographs as a user has them, with no flag that a user would not give."""

import json
import shutil

import pytest

from tests.cli.commands import run
from tests.photographs import load_faces, real_photographs

pytestmark = [pytest.mark.realdata, pytest.mark.timeout(1200)]

#: The first seven people are enrolled; the other three are strangers.
N_KNOWN = 7


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Ten photographs of each of ten people, by the names of the people."""
    load_faces()  # or skip
    paths, people = real_photographs()
    found = {name: [] for name in sorted(set(people))}
    for path, name in zip(paths, people, strict=True):
        found[name].append(path)
    assert [len(own) for own in found.values()] == 10 * [10]
    return found


def folder_of(root, photographs, people, numbers):
    for name in people:
        (root / name).mkdir(parents=True)
        for number in numbers:
            shutil.copy(photographs[name][number], root / name)
    return root


def answers(capsys, *arguments):
    run("identify", *arguments, "--several", "largest", "--json")
    found = json.loads(capsys.readouterr().out)
    assert [answer["problem"] for answer in found if "problem" in answer] == []
    return found


@pytest.mark.parametrize("n_enrolled", [4, 1])
def test_enrol_and_identify(photographs, tmp_path, capsys, n_enrolled):
    known, strangers = list(photographs)[:N_KNOWN], list(photographs)[N_KNOWN:]
    enrolled = range(n_enrolled)
    people = folder_of(tmp_path / "people", photographs, known, enrolled)
    door = folder_of(tmp_path / "door", photographs, known, range(4, 10))
    others = folder_of(tmp_path / "others", photographs, strangers, range(10))
    model = tmp_path / "people.dualqml"
    assert run("train", people, "-o", model) == 0
    assert "are taken for photographs" in capsys.readouterr().err
    found = answers(capsys, model, door)
    assert len(found) == 6 * N_KNOWN
    own = [answer["image"].split("/")[-2] for answer in found]
    first = [answer["candidates"][0]["subject"] for answer in found]
    assert sum(map(str.__eq__, own, first)) >= 0.99 * len(found)
    # The threshold is a prior, so that a few may be missed.
    right = sum(a["subject"] == name for a, name in zip(found, own, strict=True))
    assert right >= 0.95 * len(found)
    found = answers(capsys, model, others)
    assert len(found) == 30
    unknown = [answer["decision"] == "unknown" for answer in found]
    assert sum(unknown) >= 29


def test_one_person(photographs, tmp_path, capsys):
    first, *others = photographs
    people = folder_of(tmp_path / "people", photographs, [first], [0])
    model = tmp_path / "one.dualqml"
    assert run("train", people, "-o", model) == 0
    assert "a prior, from strangers simulated" in capsys.readouterr().out
    found = answers(capsys, model, *photographs[first][1:])
    assert sum(answer["subject"] == first for answer in found) >= 8
    strangers = [photographs[name][0] for name in others]
    found = answers(capsys, model, *strangers)
    assert sum(answer["decision"] == "unknown" for answer in found) >= 8
