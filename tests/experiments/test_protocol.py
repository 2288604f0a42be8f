from dataclasses import replace

import numpy as np
import pytest

from dualqml.data import DATABASES, VectorDatabase
from dualqml.exceptions import DatabaseError
from dualqml.experiments.paper import paper_results
from dualqml.experiments.protocol import (
    Experiment,
    Protocol,
    fingerprint,
    in_paper_order,
    paper_name,
)
from dualqml.extractors.methods import METHODS, VECTOR_METHODS
from dualqml.extractors.own_methods import OwnMethod
from tests.people import make_people, make_vectors

SVM = OwnMethod.parse("svm=sklearn.svm:LinearSVC(C=1.0)")
IMAGE_METHODS = ("CFA-OTF", "CFA-OEOTF", "GTDA", "MLE")


def test_the_default_is_the_papers():
    experiment = Experiment({"people": make_people()})
    assert experiment.methods_on("pixels") == tuple(METHODS)
    assert len(METHODS) == 13
    assert experiment.inputs_of("people") == ("pixels",)
    assert experiment.repeats == 30
    assert experiment.photometry == "unit-norm"
    assert experiment.protocol.kind == "random"
    assert not experiment.tune


def test_splits_are_the_same_for_all_methods_and_differ_otherwise():
    experiment = Experiment(
        {"people": make_people()}, sizes=(2, 3), methods=("LDA", "ERE"), repeats=4
    )
    units = experiment.units
    assert len(units) == len(set(units)) == 2 * 2 * 4
    splits = {}
    for unit in units:
        splits.setdefault((unit.m, unit.repetition), set()).add(unit.split)
    assert all(len(of_cell) == 1 for of_cell in splits.values())
    assert len(set.union(*splits.values())) == 8


def test_units_come_repetition_by_repetition():
    units = Experiment({"a": make_people(), "b": make_people()}, repeats=3).units
    repetitions = [unit.repetition for unit in units]
    assert repetitions == sorted(repetitions)


def test_a_split_depends_on_seed_size_and_repetition_only():
    people, protocol = make_people(), Protocol()
    base = protocol.split(people, 2, 0, 0).fingerprint
    assert protocol.split(people, 2, 0, 0).fingerprint == base
    for other in [(3, 0, 0), (2, 1, 0), (2, 0, 1)]:
        assert protocol.split(people, *other).fingerprint != base


def test_any_change_of_the_data_makes_other_units():
    people = make_people()
    pixels = people.images.copy()
    pixels[3, 1, 2] ^= 1
    labels = people.labels.copy()
    labels[[0, -1]] = labels[[-1, 0]]
    prints = {
        fingerprint(people),
        fingerprint(replace(people, images=pixels)),
        fingerprint(replace(people, labels=labels)),
        fingerprint(replace(people, images=pixels.reshape(-1, 4, 16))),
    }
    assert len(prints) == 4
    # Names of people do not matter, only who is who.
    renamed = np.char.add("x", people.labels)
    assert fingerprint(replace(people, labels=renamed)) == fingerprint(people)


def test_sizes_that_leave_no_test_image_are_left_out():
    experiment = Experiment({"people": make_people(n_images=5)}, sizes=(2, 4, 5, 8))
    assert experiment.training_sizes("people") == (2, 4)
    assert experiment.skipped_sizes("people") == (5, 8)
    assert Experiment({"p": make_people(n_images=7)}).training_sizes("p") == (2, 4, 6)


def test_no_possible_size_is_an_error():
    experiment = Experiment({"people": make_people(n_images=2)}, sizes=(2, 4))
    with pytest.raises(DatabaseError, match=r"at most 2 images.*1 to 1.*2, 4"):
        _ = experiment.units


@pytest.mark.parametrize("name", ["feret", "feret:distinct"])
def test_the_papers_sizes_by_name(name):
    people = make_people(n_images=7)
    assert Experiment({name: people}).training_sizes(name) == (2, 4, 6)


def test_one_person_only_is_an_error():
    with pytest.raises(DatabaseError, match=r"people: .*at least two subjects"):
        _ = Experiment({"p": make_people(n_people=1)}).units


def test_visits_and_fixed_rows_are_run_once():
    people = make_people(visits=True)
    for protocol in [Protocol("visits"), Protocol("fixed", train_rows=(0, 5, 10))]:
        units = Experiment({"p": people}, methods=("LDA",), protocol=protocol).units
        assert [(unit.m, unit.repetition) for unit in units] == [(0, 0)]
        assert units[0].protocol == protocol.kind
    with pytest.raises(DatabaseError, match="visits of this database are not known"):
        _ = Experiment({"p": make_people()}, protocol=Protocol("visits")).units


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"methods": ("LDA", "PCA")}, "'PCA' is not a method; choose from APCA"),
        ({"methods": ()}, "Nothing is not a method"),
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"seed": -1}, "seed must not be negative"),
        ({"inputs": ()}, "chosen from pixels, local, got nothing"),
        ({"inputs": ("vectors",)}, "chosen from pixels, local, got vectors"),
        ({"own": (OwnMethod("a", "no.such:X"),)}, "there is no module 'no'"),
        ({"own": (SVM, SVM)}, "Two methods have the same name: svm, svm"),
    ],
)
def test_wrong_settings(wrong, message):
    with pytest.raises(ValueError, match=message):
        Experiment({"people": make_people()}, **wrong)
    with pytest.raises(ValueError, match="at least one database"):
        Experiment({})


def test_every_input_has_its_units():
    experiment = Experiment(
        {"people": make_people()}, sizes=(2,), repeats=1, inputs=("pixels", "local")
    )
    found = {}
    for unit in experiment.units:
        found.setdefault(unit.input, []).append(unit.method)
    assert found["pixels"] == list(METHODS)
    assert found["local"] == [name for name in METHODS if name not in IMAGE_METHODS]
    assert experiment.left_out("local") == IMAGE_METHODS
    assert experiment.left_out("pixels") == ()
    assert len({unit.split for unit in experiment.units}) == 1


def test_vectors_have_the_usual_rivals_and_no_methods_of_images():
    rows, labels = make_vectors(5, 4, size=6, noise=0.3)
    people = VectorDatabase("v", rows, labels)
    both = Experiment({"v": people, "i": make_people()}, sizes=(2,), repeats=1)
    methods = {
        name: [unit.method for unit in both.units if unit.database == name]
        for name in ("v", "i")
    }
    assert methods["i"] == list(METHODS)
    plain = [name for name in METHODS if name not in IMAGE_METHODS]
    assert methods["v"] == [*plain, *VECTOR_METHODS]
    assert {u.input for u in both.units if u.database == "v"} == {"vectors"}
    chosen = Experiment({"v": people}, sizes=(2,), repeats=1, methods=("LDA", "MLE"))
    assert chosen.methods_on("vectors") == ("LDA",)
    assert chosen.left_out("vectors") == ("MLE",)


def test_vectors_have_no_light():
    rows, labels = make_vectors(5, 4, size=6, noise=0.3)
    people = {"v": VectorDatabase("v", rows, labels)}
    with pytest.raises(ValueError, match=r"v has vectors.*unit-norm or none"):
        Experiment(people, photometry="tan-triggs")
    assert Experiment(people, photometry="none").units


def test_any_change_of_a_vector_makes_other_units():
    rows, labels = make_vectors(5, 4, size=6, noise=0.3)
    people = VectorDatabase("v", rows, labels)
    changed = rows.copy()
    changed[0, 0] = np.nextafter(changed[0, 0], 9.0)
    assert fingerprint(people) != fingerprint(replace(people, vectors=changed))
    assert fingerprint(people) == fingerprint(replace(people, name="other"))


def test_methods_of_your_own_are_units_told_apart_by_their_parameters():
    other = OwnMethod.parse("svm=sklearn.svm:LinearSVC(C=10.0)")
    units = [
        Experiment(
            {"p": make_people()}, sizes=(2,), methods=("LDA",), repeats=1, own=(own,)
        ).units
        for own in (SVM, other)
    ]
    assert [unit.method for unit in units[0]] == ["LDA", "svm"]
    assert [unit.spec for unit in units[0]] == ["", "sklearn.svm:LinearSVC(C=1.0)"]
    assert units[0][0] == units[1][0]
    assert units[0][1] != units[1][1]


def test_only_what_can_be_tuned_is_called_tuned():
    experiment = Experiment(
        {"p": make_people()},
        sizes=(2,),
        methods=("LDA", "DualQML-W", "NN-cosine"),
        repeats=1,
        tune=True,
        own=(SVM,),
    )
    assert [unit.tuned for unit in experiment.units] == [True, True, False, False]


def test_every_database_of_the_paper_has_its_name():
    named = {paper_name(name) for name in DATABASES} - {None}
    assert named == {result.database for result in paper_results()}
    assert paper_name("orl") is None
    assert paper_name("feret:distinct") == "FERET"
    mixed = ["orl", "iitd_ear", "feret:distinct", "ar", "feret"]
    assert in_paper_order(mixed) == ["ar", "feret", "feret:distinct", "iitd_ear", "orl"]
