# SPDX-License-Identifier: BSD-3-Clause
"""Scores of left-out samples and people, from which probabilities are learnt.

They come from the closed forms of `_leave_one_out`, at the parameters of the final
model. The own class of a left-out sample has one sample less than in the final model,
and classes of one sample cannot be left out at all. Both are corrected for rule "max":
the mean response of an unseen sample is known for each class size, up to the
correlation of samples of one class (:mod:`~dualqml.extractors.class_sizes`). So a
response is converted from one size to another. The sizes follow those of the classes.
"""

import numpy as np

from dualqml._linalg import unit_rows
from dualqml._typing import Array, Index
from dualqml.extractors._coordinates import Coordinates
from dualqml.extractors._leave_one_out import (
    GalleryFilters,
    LeaveOneOut,
    LeftOutPeople,
    LeftOutSlot,
    make_contest,
)
from dualqml.extractors.class_sizes import MeanResponses, scales_of_sizes
from dualqml.extractors.dual_qml import Rule
from dualqml.extractors.nearest import class_similarities
from dualqml.extractors.probabilities import ClassProbabilities
from dualqml.extractors.within_metric import within_spectrum

#: About so many samples are left out, and so many are strangers.
_MOST_PROBES = 500
#: Multiples of it are spread evenly between whole numbers.
_GOLDEN_RATIO = 0.6180339887498949


def class_probabilities(
    coordinates: Coordinates,
    codes: Index,
    *,
    kappa: float,
    rho: float,
    lam: float,
    rule: Rule,
    own_weight: float,
    energy: float,
) -> ClassProbabilities:
    """Learn what the scores of DualQML-W mean.

    Parameters
    ----------
    coordinates : Coordinates
        Coordinates of the training samples.
    codes : ndarray of shape (n_samples,)
        Their classes.
    kappa, rho, lam : float
        Parameters of the model.
    rule : {"cosine", "max"}
        The decision rule.
    own_weight : float
        Factor of the response of its own class, for rule "cosine".
    energy : float
        Mean of x'P_c x over training samples of other classes.

    Returns
    -------
    ClassProbabilities
        Usual values if there are fewer than three classes.
    """
    n_classes = int(codes.max()) + 1
    if n_classes < 3:
        none = np.empty((0, n_classes))
        return ClassProbabilities.fitted(none, codes[:0], none)
    spectrum = within_spectrum(coordinates, codes, kappa)
    contest = make_contest(codes, None)
    n_several = max(1, contest.left_out(0).size)
    contest = contest.with_slots(max(1, _MOST_PROBES // n_several))
    left_out = LeaveOneOut(
        contest,
        coordinates.training @ spectrum.directions,
        codes,
        spectrum.variances,
        spectrum.scale,
        own_weight=own_weight,
        only_span=coordinates.only_span,
    )
    filters = GalleryFilters(left_out.at(rho, contest.n_slots), lam, None)
    slots = [
        LeftOutSlot(filters, slot, classes, part)
        for slot, classes, part in contest.parts()
        if classes.size
    ]
    n_classes = len(contest.index)
    places = np.linspace(0, n_classes - 1, min(n_classes, _MOST_PROBES))
    chosen = places.round().astype(np.intp)
    deviations = left_out.class_deviations(rho, chosen)
    people = LeftOutPeople(
        filters, deviations, chosen, max(1, _MOST_PROBES // n_classes)
    )
    strangers = people.responses()
    classes = contest.codes[contest.probes]
    scores = np.empty((0, n_classes))
    if rule == "cosine":
        strangers = _stranger_cosines(filters, strangers, people.own_classes)
        if slots:
            scores = np.concatenate([slot.cosines() for slot in slots])
    elif slots:
        single = np.concatenate([slot.single_responses for slot in slots])
        responses = np.concatenate([slot.responses for slot in slots])
        scores = _at_final_sizes(filters, responses, float(single.mean()))
    if rule == "max":
        extra = extra_energy(filters, energy)
        scores, strangers = with_energy(scores, extra), with_energy(strangers, extra)
    return ClassProbabilities.fitted(scores, classes, strangers)


def extra_energy(filters: GalleryFilters, energy: float) -> float:
    """How much more energy the matrices of QML have than the filters.

    Parameters
    ----------
    filters : GalleryFilters
        The filters, which stand for matrices of rank one.
    energy : float
        Mean of x'P_c x over training samples of other classes.

    Returns
    -------
    float
        Energy of the further directions of the matrices.
    """
    return max(0.0, energy - float(filters.energies.mean()))


def with_energy(responses: Array, extra: float) -> Array:
    """Responses of filters as signed roots of QML.

    A matrix of higher rank adds the energy of its further directions, to samples of
    its own class and of others alike.

    Parameters
    ----------
    responses : ndarray
        Responses; -inf stays.
    extra : float
        Energy of the further directions.

    Returns
    -------
    ndarray
        ``sign(r) sqrt(r^2 + extra)``.
    """
    return np.where(responses < 0.0, -1.0, 1.0) * np.sqrt(responses**2 + extra)


def _at_final_sizes(filters: GalleryFilters, responses: Array, single: float) -> Array:
    """Responses as if the own class had a size that is usual in the gallery.

    `single` is the mean response of left-out samples to single samples.
    """
    contest = filters.at.contest
    classes = contest.codes[contest.probes]
    sizes = contest.real.sum(axis=1)
    rows = np.arange(classes.size)
    own = responses[rows, classes]
    # Without the sample itself.
    present = sizes[classes] - 1
    means = MeanResponses(single, own, present)
    # All sizes of the gallery, spread evenly over the samples.
    places = np.linspace(0, sizes.size - 1, rows.size).round().astype(np.intp)
    wanted = np.sort(sizes)[places][np.argsort(rows * _GOLDEN_RATIO % 1.0)]
    # The spread hardly depends on the size.
    own = own + (means(wanted) - means(present))
    out = responses
    if filters.correlation is not None:
        scales = scales_of_sizes(np.concatenate([sizes, wanted]), filters.correlation)
        out = responses / scales[: sizes.size]
        own = own / scales[sizes.size :]
    out = out.copy()
    out[rows, classes] = own
    return np.asarray(out)


def _stranger_cosines(filters: GalleryFilters, responses: Array, own: Index) -> Array:
    """Largest cosines of profiles of strangers with the samples of each class."""
    contest = filters.at.contest
    gallery, mean = filters.centred_profiles
    rows = np.arange(len(responses))
    profiles = responses - mean
    # Strangers have no class of their own.
    profiles[rows, own] = 0.0
    out = class_similarities(
        unit_rows(profiles), gallery, contest.codes, len(contest.index)
    )
    out[rows, own] = -np.inf
    return np.asarray(out)
