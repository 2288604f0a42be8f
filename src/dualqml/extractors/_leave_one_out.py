# SPDX-License-Identifier: BSD-3-Clause
"""How well training samples are recognised without themselves, in closed form.

Parameters of DualQML-W are compared by leaving out training samples, one at a time. To
leave a sample out means that neither the metric nor the classifier has seen it. No
model is fitted again: all changes are of low rank, and have closed forms.

**Filters in place of QML.** A linear filter has the same conditions as a quadratic
matrix of QML: its response to every sample of its class is 1, and its energy over all
other samples, with a small ridge, is minimal. With the whitened samples Z, at unit
norm, R = (Z'Z + I/lam)^-1 and B_c = Z_c R Z_c', the filter of class c is
``f_c = R Z_c' B_c^-1 1``. All classes share one factorisation. In recognition, its
responses are similar to the signed roots of QML at the same lam.

**Leaving out one sample.** Without sample x_i, the within-class scatter loses
delta delta', where delta is the deviation of x_i from the mean of its n_c samples times
sqrt(n_c / (n_c - 1)). In the whitened coordinates the metric then is I - uu', with the
whitened deviation u, and the scatter Z'Z loses z_i z_i'. Both together turn R into::

    R_i = (Z'Z + I/lam - V V')^-1 = R + R V (I - V'R V)^-1 V'R,   V = [z_i, u/sqrt(lam)]

So the response of any filter to the left-out sample is a scalar product with a
corrected vector R_i z_i, and the filter of its own class needs a small system. The unit
norms of the sample and of its own class are corrected for the new metric too. Those of
the other classes are kept: there the change is of second order. Tests compare this
with real leave-one-out.

**Galleries.** A left-out sample is compared with all other samples. Then its own class
has one sample less than the others. With four or more samples per class that makes
little difference. With two or three, responses of filters depend on it, and there is a
fair gallery in which every class of several samples has one less: the samples of one
*slot* are left out together, one of each class, and only the metric keeps those of the
other classes. It is used to compare rules, and to choose parameters of rule "max". The
fair gallery is smaller than the final one, and needs more regularisation. Rule "cosine"
does not depend much on the number of samples of a class, so its parameters are chosen
by all other samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf

from dualqml._linalg import class_means, unit_rows
from dualqml._typing import Array, Index, Mask
from dualqml.extractors.class_sizes import pooled_correlation, scales_of_sizes
from dualqml.extractors.dual_qml import Rule
from dualqml.extractors.tuning import rank_loss

#: Added to the diagonal of the block of each class, relative to its trace: copies of a
#: sample make a block singular, and share a weight with the ridge.
_COPY_RIDGE = 1e-9
#: Least value of denominators that are positive without rounding.
_LEAST_DENOMINATOR = 1e-12
#: Most classes and most samples of a class that take part in the comparison.
_MOST_CLASSES, _MOST_PER_CLASS = 1000, 32
#: From this number of samples per class on, one sample less makes little difference,
#: and there is no fair gallery.
_MANY_PER_CLASS = 4
#: A ridge that is small, and a constant that is large, for samples of about unit norm.
_SPAN_RIDGE, _SPAN_CONSTANT = 1e-7, 10.0
#: Least share of the energy of a sample in the span of others.
_LEAST_SPANNED = 0.05
#: Usual correlation of samples of one class.
_USUAL_CORRELATION = 0.5
#: Bytes of the profiles of some classes that are computed at a time.
_PROFILE_BYTES = 16_000_000


@dataclass(frozen=True)
class Contest:
    """Which samples take part in the comparison, and which are left out in turn.

    Attributes
    ----------
    rows : ndarray of shape (n_samples,)
        The samples that take part, class after class, those of a class in random
        order.
    codes : ndarray of shape (n_samples,)
        Their classes, 0 to n_classes - 1.
    index : ndarray of shape (n_classes, largest class)
        Places of the samples of each class in `rows`, padded with zeros.
    real : ndarray of bool of shape (n_classes, largest class)
        Which of them are not padding.
    n_slots : int
        The first samples of each class, up to this number, are left out in turn. The
        only sample of a class is never left out.
    """

    rows: Index
    codes: Index
    index: Index
    real: Mask
    n_slots: int

    def with_slots(self, n_slots: int) -> "Contest":
        """The same with more or fewer samples of each class left out in turn."""
        return replace(self, n_slots=min(max(n_slots, 1), self.real.shape[1]))

    def left_out(self, slot: int) -> Index:
        """Classes of which the sample in this place is left out."""
        return np.flatnonzero(self.real[:, slot] & (self.real.sum(axis=1) > 1))

    def parts(self) -> list[tuple[int, Index, slice]]:
        """Slots, the classes of their left-out samples, and where these are."""
        out, start = [], 0
        for slot in range(self.n_slots):
            classes = self.left_out(slot)
            out.append((slot, classes, slice(start, start + classes.size)))
            start += classes.size
        return out

    @property
    def probes(self) -> Index:
        """Places of the samples that are left out, slot after slot."""
        return np.concatenate([self.index[c, j] for j, c, _ in self.parts()])

    @property
    def has_fair_gallery(self) -> bool:
        """Whether classes are so small that one sample less makes a difference."""
        return bool(np.median(self.real.sum(axis=1)) < _MANY_PER_CLASS)


def contest_classes(counts: Index) -> Index:
    """The classes that take part: all, or a bounded number of them.

    Parameters
    ----------
    counts : ndarray of shape (n_classes,)
        Number of samples of each class.

    Returns
    -------
    ndarray of int
        Their numbers, in ascending order.
    """
    if counts.size <= _MOST_CLASSES:
        return np.arange(counts.size)
    # Classes of several samples first: the others can only be competitors.
    by_size = np.argsort(counts < 2, kind="stable")
    several = by_size[: max(int((counts > 1).sum()), _MOST_CLASSES)]
    places = np.linspace(0, several.size - 1, _MOST_CLASSES).round()
    return np.sort(several[places.astype(np.intp)])


def make_contest(codes: Index, random_state: np.random.RandomState | None) -> Contest:
    """Choose the samples that take part.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,)
        Classes of all training samples, 0 to n_classes - 1, at least one class with
        several samples.
    random_state : RandomState or None
        Source of the order of the samples of each class; None keeps their order.

    Returns
    -------
    Contest
        All samples, or a bounded number of classes and samples of each. One sample of
        each class is left out.
    """
    counts = np.bincount(codes)
    classes = contest_classes(counts)
    order = np.argsort(codes, kind="stable")
    if classes.size < counts.size:
        order = order[np.isin(codes[order], classes)]
    if random_state is not None:
        # Class after class, and only samples of these classes: so the choice is the
        # same where the others are elsewhere, as in a fit in parts.
        shuffled = order[random_state.permutation(order.size)]
        order = shuffled[np.argsort(codes[shuffled], kind="stable")]
    counts = counts[classes]
    sizes = np.minimum(counts, _MOST_PER_CLASS)
    slots = np.arange(sizes.max())
    real = slots < sizes[:, None]
    rows = order[((np.cumsum(counts) - counts)[:, None] + slots)[real]]
    first = np.cumsum(sizes) - sizes
    return Contest(
        rows,
        np.repeat(np.arange(classes.size), sizes),
        np.where(real, first[:, None] + slots, 0),
        real,
        n_slots=1,
    )


class LeaveOneOut:
    """Losses of left-out samples in one coordinate system.

    Parameters
    ----------
    contest : Contest
        The samples that take part.
    projected : ndarray of shape (n_samples, d)
        All training samples in the eigenvectors of the metric, E'a.
    codes : ndarray of shape (n_samples,)
        Their classes.
    variances : ndarray of shape (d,)
        Eigenvalues w of the within-class scatter relative to the prior.
    scale : float
        Factor of the deviations from class means in the within-class scatter.
    own_weight : float
        Factor of the response of its own class, for rule "cosine".
    only_span : bool, default=False
        Whether what a left-out sample does not share with the span of all others is
        lost, as it is for new samples in these coordinates. It changes the norms of
        left-out samples, but not the order of their responses.
    """

    def __init__(
        self,
        contest: Contest,
        projected: Array,
        codes: Index,
        variances: Array,
        scale: float,
        *,
        own_weight: float,
        only_span: bool = False,
    ) -> None:
        self.contest, self.variances, self.own_weight = contest, variances, own_weight
        self.only_span = only_span
        means, counts = class_means(projected, codes)
        self._rows = projected[contest.rows]
        own = codes[contest.rows]
        self._deviations = scale * (self._rows - means[own])
        # The only sample of a class has no deviation, and is not left out.
        self._factors = np.sqrt(counts[own] / np.maximum(counts[own] - 1.0, 1.0))

    def at(self, rho: float, n_slots: int) -> "LeaveOneOutAtRho":
        """The samples in the metric of one rho.

        Parameters
        ----------
        rho : float
            Weight of the prior.
        n_slots : int
            Number of samples of each class that are left out in turn.

        Returns
        -------
        LeaveOneOutAtRho
            The samples.
        """
        contest = self.contest.with_slots(n_slots)
        root = np.sqrt(self.variances + rho)
        probes = contest.probes
        deviations = self._factors[probes, None] * self._deviations[probes] / root
        return LeaveOneOutAtRho(
            contest,
            self._rows / root,
            deviations,
            self.own_weight,
            only_span=self.only_span,
        )

    def class_deviations(self, rho: float, classes: Index) -> Array:
        """Deviations of all samples of some classes in the metric of one rho.

        Parameters
        ----------
        rho : float
            Weight of the prior.
        classes : ndarray of shape (n_chosen,)
            Classes of the contest.

        Returns
        -------
        ndarray of shape (n_chosen, largest class, d)
            The deviations from the class means, padded with zeros.
        """
        index, real = self.contest.index[classes], self.contest.real[classes]
        out = self._deviations[index] / np.sqrt(self.variances + rho)
        out[~real] = 0.0
        return np.asarray(out)


class LeaveOneOutAtRho:
    """Losses of left-out samples in one metric.

    Parameters
    ----------
    contest : Contest
        The samples that take part.
    whitened : ndarray of shape (n_samples, d)
        The samples of the contest in the metric.
    deviations : ndarray of shape (n_probes, d)
        Deviations u of the samples that are left out.
    own_weight : float
        Factor of the response of its own class, for rule "cosine".
    """

    def __init__(
        self,
        contest: Contest,
        whitened: Array,
        deviations: Array,
        own_weight: float,
        *,
        only_span: bool = False,
    ) -> None:
        self.contest, self.own_weight, self.only_span = contest, own_weight, only_span
        self.Z, self.U = unit_rows(whitened), deviations
        self._whitened = whitened
        self._typical_norm = float(np.sqrt(np.mean(whitened**2) * whitened.shape[1]))
        self.own = self.Z[contest.index]
        self.gram = self.Z.T @ self.Z
        # 1 / (1 - u'u): without the sample, squared norms grow by (z'u)^2 times this.
        rest = 1.0 - np.einsum("ij,ij->i", deviations, deviations)
        self.growth = 1.0 / np.maximum(rest, _LEAST_DENOMINATOR)

    @cached_property
    def _spanning(self) -> Array:
        """Samples in coordinates in which their scatter is nearly the identity.

        The scatter is that of the samples with a large constant as a further
        coordinate, so that combinations of samples have weights that add up to about
        one, plus a tiny ridge.
        """
        rows = self._whitened / self._typical_norm
        rows = np.pad(rows, [(0, 0), (0, 1)], constant_values=_SPAN_CONSTANT)
        shifted = rows.T @ rows
        shifted[np.diag_indices_from(shifted)] += _SPAN_RIDGE
        factor, _ = dpotrf(shifted, lower=1)
        moved = solve_triangular(factor, rows.T, lower=True, check_finite=False)
        return np.asarray(moved.T)

    def span_norms(self, places: Index) -> Array:
        """Norms that samples have in coordinates of all other samples.

        They are relative to their norms in the present coordinates. The distance of a
        sample from the plane through all others is lost, and the centre is that of the
        others. The squared distance is the limit, for a small ridge e, of
        e z'(Z'Z + e I)^-1 z without the sample in Z.
        """
        if not self.only_span:
            return np.ones(places.size)
        rows = self._spanning[places]
        squares = np.einsum("ij,ij->i", rows, rows)
        rest = np.maximum(1.0 - squares, _LEAST_DENOMINATOR)
        n_samples = len(self._whitened)
        grown = 1.0 + 1.0 / max(n_samples - 1, 1)
        rows = grown * self._whitened[places]
        return self._relative_norms(rows, _SPAN_RIDGE * squares / rest, places)

    def class_span_norms(self, classes: Index, n_each: int) -> Array:
        """The same for classes that are left out as a whole, padded."""
        index, real = self.contest.index[classes], self.contest.real[classes]
        n_each = min(n_each, index.shape[1])
        if not self.only_span:
            return np.ones((classes.size, n_each))
        own = self._spanning[index]
        own[~real] = 0.0
        inner = np.eye(own.shape[1]) - own @ own.transpose(0, 2, 1)
        probes = own[:, :n_each].transpose(0, 2, 1)
        against = own @ probes
        squares = np.einsum("cjk,cjk->ck", probes, probes)
        squares += np.einsum("cmk,cmk->ck", against, np.linalg.solve(inner, against))
        sums = np.einsum("cm,cmj->cj", real, self._whitened[index])
        n_others = np.maximum(len(self._whitened) - real.sum(axis=1), 1)
        places = index[:, :n_each]
        rows = self._whitened[places] + (sums / n_others[:, None])[:, None]
        return self._relative_norms(rows, _SPAN_RIDGE * squares, places)

    def _relative_norms(self, rows: Array, lost: Array, places: Index) -> Array:
        """Norms of rows that lose some energy, relative to those of the samples."""
        before = np.einsum("...j,...j->...", *(2 * [self._whitened[places]]))
        after = np.einsum("...j,...j->...", rows, rows)
        after -= lost * self._typical_norm**2
        before = np.maximum(before, _LEAST_DENOMINATOR)
        return np.sqrt(np.maximum(after / before, _LEAST_SPANNED))

    def losses(
        self, lam: float, rules: Sequence[Rule], *, quick: bool = False
    ) -> Array:
        """Log ranks of the true classes of all left-out samples.

        Parameters
        ----------
        lam : float
            As in QML: the weight of the energy relative to the ridge.
        rules : sequence of {"cosine", "max"}
            Decision rules.
        quick : bool, default=False
            Whether one gallery is enough.

        Returns
        -------
        ndarray of shape (2, n_rules, n_probes)
            The losses in the fair gallery and in that of all other samples. A rule that
            is judged by one gallery has its losses twice.
        """
        contest = self.contest
        out = np.empty((2, len(rules), contest.probes.size))
        # Rule "cosine" needs the fair gallery only to be compared with another rule.
        fair = contest.has_fair_gallery and (quick or "max" in rules)
        everyone = None
        if not fair or ("cosine" in rules and not quick):
            everyone = GalleryFilters(self, lam, None)
        for slot, classes, part in contest.parts():
            galleries = [] if everyone is None else [everyone]
            if fair:
                galleries.insert(0, GalleryFilters(self, lam, slot))
            for g, filters in enumerate(galleries):
                left_out = LeftOutSlot(filters, slot, classes, part)
                for r, rule in enumerate(rules):
                    if g == 0 or rule == "cosine":
                        out[g:, r, part] = rank_loss(left_out.scores(rule), classes)
        return out


class GalleryFilters:
    """Filters of all classes, learnt from a gallery at one lam.

    All vectors are in coordinates in which R is the identity.

    Parameters
    ----------
    at : LeaveOneOutAtRho
        The samples in the metric.
    lam : float
        The weight of the energy relative to the ridge.
    slot : int or None
        The slot whose samples are not in the gallery; None if all samples are.
    """

    def __init__(self, at: LeaveOneOutAtRho, lam: float, slot: int | None) -> None:
        self.at, self.lam, self.slot = at, lam, slot
        contest = at.contest
        self.used = contest.real
        # The matrix is symmetric: its transpose is the same matrix in LAPACK's order.
        shifted = at.gram.copy().T
        if slot is not None:
            missing = contest.left_out(slot)
            self.used = contest.real.copy()
            self.used[missing, slot] = False
            rows = at.Z[contest.index[missing, slot]]
            shifted -= rows.T @ rows
        shifted[np.diag_indices_from(shifted)] += 1.0 / lam
        self.factor, _ = dpotrf(shifted, lower=1, overwrite_a=1)
        self.T = self.solved(at.Z)
        self.own = self.T[contest.index]
        if not contest.real.all():
            self.own[~contest.real] = 0.0
        self.blocks = self.own @ self.own.transpose(0, 2, 1)
        weights = self.weights(self.blocks, self.used, self.used.astype(np.float64))
        self.filters = (weights[:, None] @ self.own)[:, 0]

    def solved(self, rows: Array) -> Array:
        """Rows in coordinates in which R is the identity."""
        moved = solve_triangular(self.factor, rows.T, lower=True, check_finite=False)
        return np.asarray(moved.T)

    @staticmethod
    def weights(blocks: Array, used: Mask, targets: Array) -> Array:
        """Weights ``B^-1 targets`` of the used samples of each class; others zero."""
        system = np.where(used[:, :, None] & used[:, None, :], blocks, 0.0)
        traces = np.einsum("cii->c", system)
        # A class whose samples are all zero has no trace of its own.
        ridge = np.maximum(traces, _COPY_RIDGE * float(traces.max(initial=1.0)))
        diagonal = np.where(used, _COPY_RIDGE * ridge[:, None], 1.0)
        system += diagonal[:, :, None] * np.eye(used.shape[1])
        solved = np.linalg.solve(system, np.where(used, targets, 0.0)[..., None])
        return np.asarray(solved[..., 0])

    @cached_property
    def energies(self) -> Array:
        """Mean squared response of each filter over the samples of other classes."""
        sizes = self.used.sum(axis=1)
        # In these coordinates Z'Z is I - R/lam, and each filter has the response 1 to
        # the samples of its own class.
        moved = solve_triangular(
            self.factor, self.filters.T, lower=True, trans="T", check_finite=False
        )
        everyone = np.einsum("cj,cj->c", self.filters, self.filters)
        everyone -= np.einsum("jc,jc->c", moved, moved) / self.lam
        others = np.maximum(sizes.sum() - sizes, 1)
        return np.asarray(np.maximum(everyone - sizes, 0.0) / others)

    @cached_property
    def correlation(self) -> float | None:
        """Correlation of samples of one class; None if all classes have one size."""
        sizes = self.used.sum(axis=1)
        if (sizes == sizes[0]).all() or not self.energies.any():
            return None
        return pooled_correlation(self.energies, sizes)

    @cached_property
    def profiles(self) -> Array:
        """Responses of all filters to all samples."""
        return np.asarray(self.T @ self.filters.T)

    @cached_property
    def centred_profiles(self) -> tuple[Array, Array]:
        """Centred profiles of all samples at unit norm, and the mean of the gallery."""
        contest = self.at.contest
        profiles = self.profiles.copy()
        profiles[np.arange(len(profiles)), contest.codes] = self.at.own_weight
        mean = profiles[contest.index[self.used]].mean(axis=0)
        return unit_rows(profiles - mean), mean


class LeftOutSlot:
    """The samples of a slot, each left out in turn.

    Parameters
    ----------
    filters : GalleryFilters
        Filters learnt from a gallery without these samples, or with them.
    slot : int
        The slot.
    classes : ndarray of shape (n_left_out,)
        The classes of its samples.
    part : slice
        Where the samples are among all samples that are left out.
    """

    def __init__(
        self, filters: GalleryFilters, slot: int, classes: Index, part: slice
    ) -> None:
        self.filters, self.slot, self.classes = filters, slot, classes
        at, contest = filters.at, filters.at.contest
        self.places = contest.index[classes]
        self.own = _take(filters.own, classes)
        # The gallery of its own class, without the sample itself.
        self.used = filters.used[classes].copy()
        self.used[:, slot] = False
        deviations = at.U[part]
        sample = self.own[:, slot]
        # V of every sample: the sample if it is in the gallery, and its deviation.
        self.V = np.stack(
            [
                np.zeros_like(sample) if filters.slot is not None else sample,
                filters.solved(deviations) / np.sqrt(filters.lam),
            ],
            axis=1,
        )
        V_T = self.V.transpose(0, 2, 1)
        self.inverse = _inverse_complement(self.V @ V_T)
        #: X R V (I - V'RV)^-1 for the samples X of its own class.
        self.against = self.own @ V_T
        self.change = self.against @ self.inverse
        along = (_take(at.own, classes) @ deviations[:, :, None])[..., 0]
        #: Norms of the samples of its own class in the metric without the sample.
        self.norms = np.sqrt(1.0 + along**2 * at.growth[part, None])
        step = self.change[:, slot]
        #: R_i z_i at unit norm in the metric without the sample.
        self.probes = sample + (step[:, None] @ self.V)[:, 0]
        self.probes /= self.norms[:, slot, None]
        if at.only_span:
            self.probes /= at.span_norms(self.places[:, slot])[:, None]

    def scores(self, rule: Rule) -> Array:
        """Scores of all classes for the left-out samples, by a decision rule."""
        return self.cosines() if rule == "cosine" else self.scaled_responses()

    def scaled_responses(self) -> Array:
        """Responses, comparable between classes of different sizes."""
        correlation = self.filters.correlation
        if correlation is None:
            return self.responses
        sizes = self.filters.used.sum(axis=1)
        n_classes = sizes.size
        # The own class of a left-out sample has another size without it.
        every_size = np.concatenate([sizes, self.used.sum(axis=1)])
        scales = scales_of_sizes(every_size, correlation)
        out = self.responses / scales[:n_classes]
        rows = np.arange(self.classes.size)
        out[rows, self.classes] = (
            self.responses[rows, self.classes] / scales[n_classes:]
        )
        return np.asarray(out)

    @cached_property
    def responses(self) -> Array:
        """Responses of the filters of all classes to the left-out samples."""
        out = self.probes @ self.filters.filters.T
        # Its own class needs the filter without the sample, in the metric without it.
        blocks = _take(self.filters.blocks, self.classes)
        blocks = blocks + self.change @ self.against.transpose(0, 2, 1)
        # The constraints hold for samples at unit norm in the new metric.
        weights = self.filters.weights(blocks, self.used, self.norms)
        products = (self.own @ self.probes[:, :, None])[..., 0]
        own = np.einsum("cm,cm->c", weights, products)
        out[np.arange(self.classes.size), self.classes] = own
        return np.asarray(out)

    @cached_property
    def single_responses(self) -> Array:
        """Mean response of a left-out sample to other single samples of its class."""
        products = (self.own @ self.probes[:, :, None])[..., 0]
        squares = np.einsum("cmj,cmj->cm", self.own, self.own)
        single = np.where(self.used, products / np.where(self.used, squares, 1.0), 0.0)
        return np.asarray(single.sum(axis=1) / self.used.sum(axis=1))

    def cosines(self) -> Array:
        """Largest cosines of profiles with those of the samples of each class.

        A profile is the vector of the responses to all filters, centred. Those of the
        samples of its own class are computed without the left-out sample.
        """
        filters, contest = self.filters, self.filters.at.contest
        gallery, mean = filters.centred_profiles
        probes = unit_rows(self.responses - mean)
        similarities = probes @ gallery.T
        n_classes, largest = contest.index.shape
        step = max(1, _PROFILE_BYTES // (8 * n_classes * largest))
        for first in range(0, self.classes.size, step):
            here = np.arange(first, min(first + step, self.classes.size))
            cosines = self._own_cosines(here, probes[here], mean)
            used = self.used[here]
            row = np.broadcast_to(here[:, None], used.shape)
            similarities[row[used], self.places[here][used]] = cosines[used]
        # Not the left-out sample itself.
        itself = self.places[:, self.slot]
        similarities[np.arange(self.classes.size), itself] = -np.inf
        out = np.full((self.classes.size, n_classes), -np.inf)
        for j in range(largest):
            used = filters.used[:, j]
            found = similarities[:, contest.index[used, j]]
            out[:, used] = np.maximum(out[:, used], found)
        return out

    def _own_cosines(self, here: Index, probes: Array, mean: Array) -> Array:
        """Cosines of some left-out samples with the profiles of their own class."""
        filters, classes = self.filters, self.classes[here]
        # One product of two matrices is faster than many small ones.
        rows = self.V[here].reshape(2 * here.size, -1)
        of_changes = (rows @ filters.filters.T).reshape(here.size, 2, -1)
        profiles = filters.profiles[self.places[here]]
        profiles += self.change[here] @ of_changes
        profiles /= self.norms[here, :, None]
        profiles[np.arange(here.size), :, classes] = filters.at.own_weight
        profiles -= mean
        cosines = (profiles @ probes[:, :, None])[..., 0]
        norms = np.einsum("cmk,cmk->cm", profiles, profiles)
        return np.asarray(cosines / np.sqrt(np.where(norms > 0.0, norms, 1.0)))


class LeftOutPeople:
    """Samples of some classes, each class left out as a whole: they are strangers.

    Without class c, the scatter loses Z_c'Z_c and the metric the deviations of all its
    samples. So R changes as for one left-out sample, with more columns in V.

    Parameters
    ----------
    filters : GalleryFilters
        Filters learnt from a gallery.
    deviations : ndarray of shape (n_chosen, largest class, d)
        Deviations of the samples of the classes, from `LeaveOneOut.class_deviations`.
    classes : ndarray of shape (n_chosen,)
        The classes that are left out in turn.
    n_each : int
        Number of samples of each class that are compared with the other classes.
    n_other_people : int, default=0
        Number of other people whose mean counts in the centre of the coordinates.

    Notes
    -----
    The centre of the coordinates changes too, as the class was part of it. That moves
    all other classes towards the left-out sample, by the share of its class times its
    response to its own class. That response is between 1, for the sample itself, and
    the correlation of samples of one class, for which a usual value is taken.
    """

    def __init__(
        self,
        filters: GalleryFilters,
        deviations: Array,
        classes: Index,
        n_each: int,
        *,
        n_other_people: int = 0,
    ) -> None:
        self.filters = filters
        contest = filters.at.contest
        largest, d = deviations.shape[1:]
        own = _take(filters.own, classes)
        moved = filters.solved(deviations.reshape(-1, d)).reshape(deviations.shape)
        in_gallery = np.where(filters.used[classes][:, :, None], own, 0.0)
        V = np.concatenate([in_gallery, moved / np.sqrt(filters.lam)], axis=1)
        V_T = V.transpose(0, 2, 1)
        probes = own[:, :n_each]
        change = np.linalg.solve(
            np.eye(2 * largest) - V @ V_T, V @ probes.transpose(0, 2, 1)
        )
        probes = probes + change.transpose(0, 2, 1) @ V
        # In the metric I - UU' squared norms grow by z'U (I - U'U)^-1 U'z.
        along = deviations @ _take(filters.at.own, classes)[:, :n_each].transpose(
            0, 2, 1
        )
        inner = np.eye(largest) - deviations @ deviations.transpose(0, 2, 1)
        growth = np.einsum("cmk,cmk->ck", along, np.linalg.solve(inner, along))
        probes = probes / np.sqrt(1.0 + np.maximum(growth, 0.0))[:, :, None]
        probes /= filters.at.class_span_norms(classes, n_each)[:, :, None]
        real = contest.real[classes][:, :n_each]
        #: Places of the strangers in the contest, and their classes.
        self.places = contest.index[classes][:, :n_each][real]
        self.own_classes = np.repeat(classes, real.sum(axis=1))
        self.probes = probes[real]
        sizes = contest.real.sum(axis=1)
        shares = sizes / np.maximum(sizes.sum() - sizes, 1)
        if n_other_people:
            # Then the centre is the mean of people.
            shares = np.full(sizes.size, 1.0 / (sizes.size + n_other_people - 1))
        own = _USUAL_CORRELATION + (1.0 - _USUAL_CORRELATION) / sizes
        #: What the responses of the strangers lack, as they were part of the centre.
        self.shifts = (shares * own)[self.own_classes]

    def responses(self) -> Array:
        """Responses to all classes, comparable between sizes; own classes -inf."""
        filters = self.filters
        out = self.probes @ filters.filters.T + self.shifts[:, None]
        if filters.correlation is not None:
            out /= scales_of_sizes(filters.used.sum(axis=1), filters.correlation)
        out[np.arange(len(out)), self.own_classes] = -np.inf
        return np.asarray(out)


def _take(array: Array, classes: Index) -> Array:
    """The part of some classes; the array itself, not a copy, if it is all of it."""
    return array if classes.size == len(array) else array[classes]


def _inverse_complement(products: Array) -> Array:
    """(I - V'RV)^-1 of matrices of two rows."""
    first, both, second = products[:, 0, 0], products[:, 0, 1], products[:, 1, 1]
    determinant = (1.0 - first) * (1.0 - second) - both * both
    determinant = np.maximum(determinant, _LEAST_DENOMINATOR)
    out = np.empty_like(products)
    out[:, 0, 0], out[:, 1, 1] = 1.0 - second, 1.0 - first
    out[:, 0, 1] = out[:, 1, 0] = both
    return np.asarray(out / determinant[:, None, None])
