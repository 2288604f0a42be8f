"""Parts put together: the order of the classes, and the scales of their features."""

import numpy as np

from dualqml.extractors.fit_in_parts import PartSolution
from dualqml.extractors.part_assembly import joined_solutions, scales_for_rule


def test_solutions_are_joined_in_the_order_of_the_classes():
    def solution(classes):
        classes = np.array(classes)
        ranks = classes % 3
        rows = np.repeat(classes, ranks)
        return PartSolution(
            np.stack([rows, np.arange(rows.size)], axis=1) + 0.0,
            ranks,
            10.0 * rows,
            100.0 * classes,
            classes + 0.25,
            classes + 0.5,
            classes % 2 == 0,
            classes,
            classes + 0.75,
            np.tile(classes[:, None], (1, 2)) + 0.0,
        )

    places = [np.array([1, 4, 8]), np.array([0, 2, 7]), np.array([3, 5, 6])]
    found = joined_solutions([solution(place) for place in places], places)
    expected = solution(range(9))
    for name in ("ranks", "gap", "violation", "rounding_limited", "n_iter", "energies"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_array_equal(found.means, expected.means)
    np.testing.assert_array_equal(found.mean_responses, expected.mean_responses)
    np.testing.assert_array_equal(found.components[:, 0], expected.components[:, 0])
    # Factors of a class stay in their order.
    for c in range(9):
        assert (np.diff(found.components[found.components[:, 0] == c, 1]) == 1).all()
    np.testing.assert_array_equal(
        found.multipliers, 100.0 * np.concatenate(places).astype(float)
    )


def test_scales_are_for_classes_of_different_sizes_and_rule_max():
    energies = np.array([0.1, 0.2, 0.3])
    assert scales_for_rule("max", energies, np.array([2, 2, 2])) is None
    assert scales_for_rule("cosine", energies, np.array([1, 2, 2])) is None
    assert scales_for_rule("max", energies, np.array([1, 2, 9])).shape == (3,)
