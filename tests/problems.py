"""Random QML problems for the tests."""

import itertools

import numpy as np
from hypothesis import strategies as st

from dualqml.core import scatter_spectrum


def make_data(sizes, n_features, *, noise=0.5, seed=0, centre=True, unit=True):
    """Gaussian classes of the given sizes; returns rows and labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    means = rng.normal(size=(len(sizes), n_features))
    X = means[labels] + noise * rng.normal(size=(labels.size, n_features))
    if centre:
        X -= X.mean(axis=0)
    if unit:
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, labels


def members_of(labels):
    return [np.flatnonzero(labels == c) for c in range(labels.max() + 1)]


def make_problem(sizes, n_features, **options):
    """Spectrum, members and rows of a random problem."""
    X, labels = make_data(sizes, n_features, **options)
    return scatter_spectrum(X), members_of(labels), X


def extra_scatter(X, own):
    others = np.delete(X, own, axis=0)
    return others.T @ others


def dense_matrices(spectrum, solution):
    """P_c of every class in the space of the samples, as full matrices."""
    rows = spectrum.back_project(solution.factors)
    first = solution.first_rows
    return [rows[a:b].T @ rows[a:b] for a, b in itertools.pairwise(first)]


@st.composite
def problems(draw, max_classes=6, max_size=5, max_features=40):
    """Spectrum, members and rows of problems of all shapes."""
    n_classes = draw(st.integers(2, max_classes))
    sizes = draw(
        st.lists(st.integers(1, max_size), min_size=n_classes, max_size=n_classes)
    )
    n_features = draw(st.integers(2, max_features))
    noise = draw(st.sampled_from([0.05, 0.5, 2.0]))
    centre = draw(st.booleans()) and n_features > 2 and sum(sizes) > 3
    seed = draw(st.integers(0, 10_000))
    return make_problem(sizes, n_features, noise=noise, seed=seed, centre=centre)


lams = st.floats(-4.0, 5.0).map(lambda power: 10.0**power)
