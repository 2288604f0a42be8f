from typing import get_args

import pytest

from dualqml.experiments.explanations import (
    parameter_terms,
    protocol_sentences,
    ranks_in_words,
    terms,
)
from dualqml.experiments.results import Results
from dualqml.experiments.runner import chosen_parameters
from dualqml.extractors.methods import make_method
from dualqml.images.photometry import Photometry
from tests.experiments.factory import make_result, make_results
from tests.people import make_vectors


def protocol(*runs):
    return " ".join(protocol_sentences(Results(runs)))


@pytest.mark.parametrize("name", get_args(Photometry))
def test_every_photometry_is_explained(name):
    said = protocol(make_result(photometry=name))
    assert f"Photometry: {name} (" in said
    assert "{sample}" not in said


def test_two_photometries_are_both_explained():
    said = protocol(make_result(), make_result(photometry="none"))
    assert (
        "Photometry: none (images are taken as they are) and unit-norm (each image is "
        "scaled to unit norm)."
    ) in said


def test_a_photometry_that_is_not_known_is_named():
    # The file of results may come from another version.
    assert "Photometry: new. A test image gets" in protocol(
        make_result(photometry="new")
    )


def test_vectors_are_scaled():
    said = protocol(make_result(input="vectors"))
    assert "Scaling: unit-norm (each vector is scaled to unit norm)." in said
    assert "image" not in said


def test_choices_of_parameters_are_said_if_there_were_any():
    said = "Parameters are chosen on the training set alone."
    assert said not in protocol(make_result())
    assert said in protocol(make_result(), make_result("DualQML", searched=True))


@pytest.mark.parametrize("name", ["DualQML (max)", "DualQML", "DualQML-W"])
def test_all_parameters_that_our_methods_choose_are_defined(name):
    X, y = make_vectors(5, 4, size=12, noise=0.5)
    model = make_method(name).fit(X, y)
    chosen = [key.removeprefix("best_") for key in chosen_parameters(model)]
    assert chosen
    found = parameter_terms((name, key) for key in chosen)
    assert {key for key, _ in found} == set(chosen)
    assert all(text for _, text in found)


def test_parameters_are_defined_once():
    rows = [("DualQML", "lam"), ("DualQML-W", "lam"), ("LDA", "rho")]
    assert [name for name, _ in parameter_terms(rows)] == ["lam"]


def test_definitions_speak_of_what_was_recognised():
    (_, said), *_ = terms("split", sample="vector")
    assert said.startswith("one division of the vectors into training and test vectors")


def test_ranks_are_said_if_they_are_few():
    def said(ranks):
        run = make_result("DualQML", spectrum={"ranks": ranks, "eigenvalues": [1.0]})
        results = Results([run])
        return ranks_in_words(results, results.settings[0])

    assert "DualQML has 1 of rank 1, 1 of rank 2 and 1 of rank 3" in said([1, 2, 3])
    assert said([1, 2, 3, 4]) == ""
    plain = make_results({"LDA": [1.0]})
    assert ranks_in_words(plain, plain.settings[0]) == ""
