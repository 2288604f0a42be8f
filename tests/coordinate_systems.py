"""Training sets placed in all ways, and the same written out slowly."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from dualqml.extractors._coordinates import (
    GramCoordinates,
    InputCoordinates,
    KernelCoordinates,
)
from dualqml.extractors.prepared_samples import PreparedSamples

SHAPE = (4, 6)
WIDTH = 1.5

by_system = pytest.mark.parametrize("kind", ["input", "gram", "rbf"])


def make_system(kind, X, tangents, width=WIDTH, codes=None):
    samples = PreparedSamples(X, tangents, X.shape[1])
    codes = np.zeros(len(X), dtype=int) if codes is None else codes
    if kind == "rbf":
        return KernelCoordinates(samples, codes, width=width)
    return (InputCoordinates if kind == "input" else GramCoordinates)(samples, codes)


def bandwidth_of(X, width=WIDTH):
    return width * np.median(pdist(X, "sqeuclidean"))


def derivative(function, X, tangent):
    step = 1e-5 / np.abs(tangent).max()
    change = function(X + step * tangent) - function(X - step * tangent)
    return change / (2.0 * step)


def slow_coordinates(kind, X, tangents):
    """Coordinates of samples and of their tangents, from other decompositions."""
    n_samples = X.shape[0]
    J = np.eye(n_samples) - 1.0 / n_samples
    if kind != "rbf":
        _, s, Vt = np.linalg.svd(J @ X, full_matrices=False)
        basis = Vt[s > 1e-7 * s[0]].T
        return J @ X @ basis, tangents @ basis
    bandwidth = bandwidth_of(X)

    def kernel(rows):
        return np.exp(-cdist(rows, X, "sqeuclidean") / (2.0 * bandwidth))

    U, s, _ = np.linalg.svd(J @ kernel(X) @ J)
    kept = s > 1e-9 * s[0]
    projector = U[:, kept] / np.sqrt(s[kept])
    moved = [derivative(kernel, X, tangent) for tangent in tangents]
    moved = np.reshape(moved, (len(tangents), n_samples, n_samples))
    return J @ kernel(X) @ J @ projector, moved @ J @ projector
