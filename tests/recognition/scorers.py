"""Made-up models for searches, and the answers of a full sort."""

import numpy as np

from dualqml._linalg import unit_rows
from dualqml.recognition.exact_scorer import ArrayScorer
from dualqml.recognition.score_scale import ScoreScale


def made_up_scorer(
    n_classes=300,
    *,
    size=6,
    n_coordinates=4,
    ranks=(1,),
    cosine_weight=0.7,
    scaled=False,
    whole_numbers=False,
    copies=0,
    seed=0,
):
    """A model with random numbers.

    With whole numbers, many scores are equal. Copies are classes that are equal to
    others, in random places.
    """
    rng = np.random.default_rng(seed)

    def numbers(*shape):
        if whole_numbers:
            return rng.integers(-2, 3, size=shape).astype(np.float64)
        return rng.normal(size=shape)

    ranks = rng.choice(ranks, size=n_classes)
    factors = [numbers(rank, n_coordinates) for rank in ranks]
    responses = [numbers(rank) for rank in ranks]
    means = numbers(n_classes, size)
    scales = 0.5 + rng.random(n_classes)
    for copy, of in rng.integers(0, n_classes, size=(copies, 2)):
        ranks[copy], scales[copy], means[copy] = ranks[of], scales[of], means[of]
        factors[copy], responses[copy] = factors[of], responses[of]
    return ArrayScorer(
        mean=0.1 * numbers(size),
        coefficients=numbers(size, n_coordinates) + np.eye(size, n_coordinates),
        components=np.concatenate(factors),
        ranks=ranks.astype(np.int64),
        mean_responses=np.concatenate(responses),
        class_scale=scales if scaled else None,
        means=unit_rows(means),
        scale=ScoreScale(
            spread=0.4,
            cosine_weight=cosine_weight,
            cosine_mean=0.1,
            cosine_spread=0.3,
            mean=0.2,
            scale=1.3,
            slope=2.1,
            offset=-4.0,
        ),
    )


def sorted_scores(scorer, rows, top):
    """The best classes by a full stable sort of all scores in double precision."""
    everyone = np.arange(scorer.n_classes)
    z, units = scorer.queries(rows)
    classes, scores, sums = [], [], []
    for own in zip(z, units, strict=True):
        found = scorer.scores_of(*own, everyone)
        first = np.argsort(-found, kind="stable")[:top]
        classes.append(first)
        scores.append(found[first])
        sums.append(np.logaddexp.reduce(found))
    return np.array(classes), np.array(scores), np.array(sums)


def plain_scores(scorer, z, unit):
    """Scores of all classes, from the definition, one after the other."""
    scores, start, scale = [], 0, scorer.scale
    for number, rank in enumerate(scorer.ranks):
        own = slice(start, start + rank)
        start += rank
        products = scorer.components[own] @ z
        towards_mean = float(scorer.mean_responses[own] @ products)
        response = np.sqrt(float(products @ products))
        response = -response if towards_mean < 0.0 else response
        if scorer.class_scale is not None:
            response /= scorer.class_scale[number]
        total = response / scale.spread
        if scale.cosine_weight:
            cosine = float(scorer.means[number] @ unit)
            standard = (cosine - scale.cosine_mean) / scale.cosine_spread
            total += scale.cosine_weight * standard
        standard = (total - scale.mean) / scale.scale
        scores.append(scale.slope * standard + scale.offset)
    return np.array(scores)
