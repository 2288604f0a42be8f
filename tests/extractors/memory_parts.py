"""Fits in parts that lie in memory: the steps, in order and without any files."""

import numpy as np

from dualqml._typing import Index
from dualqml.extractors import DualQML
from dualqml.extractors.class_parts import FoundSamples, learn
from dualqml.extractors.fit_in_parts import (
    checked_recipe,
    choose,
    coordinate_sums,
    part_coordinates,
    searched_classes,
    solve_rows,
)
from dualqml.extractors.part_assembly import (
    FittedArrays,
    assembled,
    joined_solutions,
    scales_for_rule,
    with_labels,
)
from dualqml.extractors.part_sums import (
    CoordinateSums,
    InputSums,
    PartRows,
    input_rows,
    label_hashes,
    merged_in_tree,
    part_numbers,
)


class MemoryParts:
    """Samples in parts by the hashes of their labels, or by given parts of classes."""

    def __init__(self, X, y, n_parts, part_of_class=None):
        self.X = np.asarray(X)
        self.labels, self.codes = np.unique(y, return_inverse=True)
        self.counts = np.bincount(self.codes)
        self.n_features, self.n_parts = self.X.shape[1], n_parts
        if part_of_class is None:
            part_of_class = part_numbers(label_hashes(self.labels), n_parts)
        self.places = [np.flatnonzero(part_of_class == k) for k in range(n_parts)]
        self.places = [place for place in self.places if place.size]
        by_class = np.argsort(self.codes, kind="stable")
        own = np.split(by_class, np.cumsum(self.counts)[:-1])
        self.numbers = [
            np.concatenate([own[c] for c in place]) for place in self.places
        ]
        self.parts = [
            PartRows(self.X[numbers], self.counts[place])
            for numbers, place in zip(self.numbers, self.places, strict=True)
        ]
        self.solutions = []

    def input_sums(self, recipe):
        found = (
            InputSums.of_part(part, unit=recipe.unit, cosines=recipe.cosines)
            for part in self.parts
        )
        return merged_in_tree(found, InputSums.merged)

    def inputs_of(self, classes: Index, recipe):
        rows = np.concatenate([np.flatnonzero(self.codes == c) for c in classes])
        codes = np.repeat(np.arange(classes.size), self.counts[classes])
        return input_rows(self.X[rows], unit=recipe.unit), codes

    def coordinate_sums(self, recipe, linear, largest_square):
        found = [
            coordinate_sums(part, recipe, linear, largest_square) for part in self.parts
        ]
        zero = [n[f.zero_rows] for n, f in zip(self.numbers, found, strict=True)]
        empty = [p[f.empty_classes] for p, f in zip(self.places, found, strict=True)]
        sums = merged_in_tree((f.sums for f in found), CoordinateSums.merged)
        self.longest_sum = sums.longest_sum
        return FoundSamples(
            sums,
            np.sort(np.concatenate(zero)),
            np.sort(np.concatenate(empty)),
        )

    def solve(self, recipe, linear, problem):
        self.problem, self.linear = problem, linear
        self.solutions = [
            solve_rows(part, recipe, linear, problem) for part in self.parts
        ]

    def coordinates(self, recipe, linear):
        """Coordinates and classes of all samples, in their order."""
        out = None
        for numbers, part in zip(self.numbers, self.parts, strict=True):
            Z = part_coordinates(part, recipe, linear)
            out = np.empty((len(self.X), Z.shape[1])) if out is None else out
            out[numbers] = Z
        return out


def fit_in_memory(estimator, X, y, n_parts=4, part_of_class=None):
    """A usual fitted estimator, and the parts with their solutions."""
    recipe = checked_recipe(estimator)
    parts = MemoryParts(X, y, n_parts, part_of_class)
    model = with_labels(estimator, parts.labels, parts.n_features)
    searched = searched_classes(model, parts.counts)
    learnt = learn(
        parts,
        model,
        recipe,
        searched,
        lambda sums, inputs, codes: choose(model, sums, inputs, codes),
    )
    found = joined_solutions(parts.solutions, parts.places)
    found.multipliers[np.concatenate(parts.numbers)] = found.multipliers.copy()
    fitted = FittedArrays(
        parts.labels,
        parts.counts,
        parts.n_features,
        found,
        scales_for_rule(learnt.chosen.rule, found.energies, parts.counts),
        learnt.chosen,
        learnt.problem.lam,
    )
    coordinates = codes = None
    if learnt.chosen.rule == "cosine":
        coordinates = parts.coordinates(recipe, learnt.chosen.linear)
        codes = parts.codes
    return assembled(model, fitted, coordinates, codes), parts


def qml_of(model):
    """The QML of an estimator."""
    return model if isinstance(model, DualQML) else model.qml_
