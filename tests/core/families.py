"""Small problems of many kinds, most of them degenerate, and an exact check.

Each family makes rows, class sizes and a lambda from a random generator. The check
computes the duality gap and the violation of factors and multipliers as they are
stored, in 60 digits. It shares no code with the certificate.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np

DIGITS = 60


@dataclass(frozen=True)
class Problem:
    """Rows sorted by class, the size of each class, and lambda."""

    X: np.ndarray
    sizes: np.ndarray
    lam: float

    @property
    def labels(self):
        return np.repeat(np.arange(self.sizes.size), self.sizes)

    @property
    def members(self):
        return np.split(np.arange(self.sizes.sum()), np.cumsum(self.sizes)[:-1])


def _sizes(rng, low=1, high=4, n_low=2, n_high=5):
    return rng.integers(low, high + 1, size=rng.integers(n_low, n_high + 1))


def _lam(rng):
    return float(10.0 ** rng.uniform(-6.0, 8.0))


def _rows(rng, sizes, p):
    """Gaussian classes around Gaussian means, as they are or of unit norm."""
    labels = np.repeat(np.arange(sizes.size), sizes)
    means = rng.normal(size=(sizes.size, p))
    noise = 10.0 ** rng.uniform(-1.5, 0.5)
    X = means[labels] + noise * rng.normal(size=(labels.size, p))
    if rng.random() < 0.5:
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X


def _made(rng, sizes, change=None, p=None):
    X = _rows(rng, sizes, p or int(rng.integers(3, 13)))
    if change is not None:
        X = change(X)
    return Problem(np.ascontiguousarray(X), sizes, _lam(rng))


def _pair(rng, sizes, within):
    """Two rows of one class (the first with two), or of two classes."""
    n = int(sizes.sum())
    labels = np.repeat(np.arange(sizes.size), sizes)
    pairs = [
        (i, j)
        for i in range(n)
        for j in range(i + 1, n)
        if (labels[i] == labels[j]) == within
    ]
    return pairs[rng.integers(len(pairs))]


def plain(rng):
    return _made(rng, _sizes(rng))


def duplicates_in_a_class(rng):
    sizes = _sizes(rng, low=2)
    i, j = _pair(rng, sizes, True)
    return _made(rng, sizes, lambda X: _with_row(X, j, X[i]))


def duplicates_across_classes(rng):
    sizes = _sizes(rng)
    i, j = _pair(rng, sizes, False)
    return _made(rng, sizes, lambda X: _with_row(X, j, X[i]))


def near_duplicates_in_a_class(rng):
    sizes = _sizes(rng, low=2)
    i, j = _pair(rng, sizes, True)
    return _made(rng, sizes, lambda X: _with_row(X, j, _nearly(rng, X[i])))


def near_duplicates_across_classes(rng):
    sizes = _sizes(rng)
    i, j = _pair(rng, sizes, False)
    return _made(rng, sizes, lambda X: _with_row(X, j, _nearly(rng, X[i])))


def _with_row(X, j, row):
    X = X.copy()
    X[j] = row
    return X


def _nearly(rng, row):
    return row + 10.0 ** rng.uniform(-12.0, -2.0) * rng.normal(size=row.size)


def collinear(rng):
    sizes = _sizes(rng)

    def change(X):
        i, j = rng.choice(X.shape[0], 2, replace=False)
        return _with_row(X, j, rng.uniform(-3.0, 3.0) * X[i])

    return _made(rng, sizes, change)


def one_sample_in_the_span_of_others(rng):
    sizes = _sizes(rng)

    def change(X):
        j = int(rng.integers(X.shape[0]))
        others = np.delete(X, j, axis=0)[: max(1, X.shape[1] - 1)]
        return _with_row(X, j, rng.normal(size=others.shape[0]) @ others)

    return _made(rng, sizes, change)


def more_samples_than_features(rng):
    return _made(rng, _sizes(rng, low=3, high=8, n_high=4), p=int(rng.integers(2, 5)))


def spread_norms(rng):
    sizes = _sizes(rng)
    factors = 10.0 ** rng.uniform(-3.0, 3.0, size=(int(sizes.sum()), 1))
    return _made(rng, sizes, lambda X: factors * X)


def one_feature(rng):
    return _made(rng, _sizes(rng), p=1)


def two_features(rng):
    return _made(rng, _sizes(rng), p=2)


def singletons(rng):
    return _made(rng, np.ones(rng.integers(2, 9), dtype=np.int64))


def single_precision(rng):
    return _made(rng, _sizes(rng), lambda X: X.astype(np.float32).astype(np.float64))


def orthogonal(rng):
    sizes = _sizes(rng, high=3, n_high=4)
    p = int(sizes.sum()) + int(rng.integers(0, 3))

    def change(X):
        Q, _ = np.linalg.qr(rng.normal(size=(p, p)))
        return Q[: X.shape[0]] * 10.0 ** rng.uniform(-1.0, 1.0, size=(X.shape[0], 1))

    return _made(rng, sizes, change, p=p)


def integers(rng):
    sizes = _sizes(rng)
    p = int(rng.integers(3, 9))
    X = rng.integers(-4, 5, size=(int(sizes.sum()), p)).astype(np.float64)
    X[~X.any(axis=1), 0] = 1.0
    return Problem(X, sizes, _lam(rng))


def all_scaled(rng):
    scale = 10.0 ** rng.uniform(-3.0, 3.0)
    return _made(rng, _sizes(rng), lambda X: scale * X)


def two_classes(rng):
    return _made(rng, _sizes(rng, n_low=2, n_high=2))


def large_classes(rng):
    return _made(rng, _sizes(rng, low=6, high=14, n_high=3))


FAMILIES: dict[str, Callable[[np.random.Generator], Problem]] = {
    family.__name__: family
    for family in (
        plain,
        duplicates_in_a_class,
        duplicates_across_classes,
        collinear,
        one_sample_in_the_span_of_others,
        more_samples_than_features,
        spread_norms,
        one_feature,
        two_features,
        singletons,
        single_precision,
        near_duplicates_in_a_class,
        near_duplicates_across_classes,
        orthogonal,
        integers,
        all_scaled,
        two_classes,
        large_classes,
    )
}


def near_identical(rng):
    """Unit-norm rows that differ by 3e-8 to 3e-6, and a large lambda."""
    sizes = _sizes(rng, low=1, high=4, n_low=2, n_high=5)
    p = int(rng.integers(3, 13))
    common = rng.normal(size=p)
    common /= np.linalg.norm(common)
    spread = 10.0 ** rng.uniform(np.log10(3e-8), np.log10(3e-6))
    X = common + spread * rng.normal(size=(int(sizes.sum()), p))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Problem(X, sizes, float(10.0 ** rng.uniform(5.0, 8.0)))


def true_gap_and_violation(X, own, lam, components, dual):
    """Relative duality gap and violation of one class, in 60 digits.

    `own` are the class's rows of X, `components` the rows whose outer products sum
    up to P, `dual` the multipliers of the own samples. Everything is taken as the
    exact numbers that the floats are.
    """
    with mpmath.workdps(DIGITS):
        rows = [[mpmath.mpf(float(x)) for x in row] for row in X]
        factors = [[mpmath.mpf(float(x)) for x in row] for row in components]
        u = [mpmath.mpf(float(x)) for x in dual]
        lam = mpmath.mpf(float(lam))
        is_own = np.zeros(len(rows), dtype=bool)
        is_own[own] = True
        energy = [mpmath.fsum(mpmath.fdot(f, x) ** 2 for f in factors) for x in rows]
        lowest = min(energy[i] for i in own)
        violation = max(mpmath.mpf(0), 1 - lowest)
        if lowest <= 0:
            return np.inf, float(violation)
        scale = max(mpmath.mpf(1), 1 / lowest)
        squared = mpmath.fsum(mpmath.fdot(f, g) ** 2 for f in factors for g in factors)
        extra = mpmath.fsum(
            e for e, mine in zip(energy, is_own, strict=True) if not mine
        )
        primal = squared * scale**2 / 2 + lam * extra * scale
        p = X.shape[1]
        M = mpmath.matrix(p, p)
        weights = [lam] * len(rows)
        for i, multiplier in zip(own, u, strict=True):
            weights[i] = -multiplier
        for a in range(p):
            weighted = [w * x[a] for w, x in zip(weights, rows, strict=True)]
            for b in range(a, p):
                M[a, b] = M[b, a] = mpmath.fdot(weighted, [x[b] for x in rows])
        eigenvalues = mpmath.eigsy(M, eigvals_only=True)
        negative = mpmath.fsum(w**2 for w in eigenvalues if w < 0)
        dual_value = mpmath.fsum(u) - negative / 2
        return float((primal - dual_value) / primal), float(violation)
