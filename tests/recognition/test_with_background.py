"""Recognisers that know how other people differ, and what their scores mean."""

import json
import subprocess
import sys

import numpy as np
import pytest

from dualqml import DualQMLWCV
from dualqml._linalg import unit_rows
from dualqml.evaluation import fnir_at_fpir
from dualqml.exceptions import RecognitionError
from dualqml.extractors import Background, NearestSample
from dualqml.recognition import Recognizer
from tests.datasets import load_samples
from tests.people import make_people, make_vectors

SIZE, NOISE = 40, 0.4


def people_of(n_people, n_samples, seed=0):
    rows, _ = make_vectors(n_people, n_samples, size=SIZE, noise=NOISE, seed=seed)
    return rows.reshape(n_people, n_samples, SIZE)


OTHERS = Background.from_samples(*make_vectors(60, 4, size=SIZE, noise=NOISE, seed=100))


def recogniser_of(people, n_samples=None, **options):
    recognizer = Recognizer(**{"threshold": 0.0} | options)
    for number, own in enumerate(people):
        recognizer.enroll(f"{number:03d}", own[:n_samples])
    return recognizer


class TestOnePerson:
    def test_one_sample_is_enough(self, tmp_path):
        person = people_of(1, 5)[0]
        strangers = people_of(200, 1, seed=7)[:, 0]
        recognizer = Recognizer(threshold=0.0, background=OTHERS)
        recognizer.enroll("Ann", person[0])
        answers = recognizer.verify_many(["Ann"] * 4, person[1:])
        assert [answer.decision for answer in answers] == ["match"] * 4
        found = recognizer.identify_many(strangers)
        assert np.mean([f.decision == "unknown" for f in found]) > 0.9
        assert len(found[0].candidates) == 1
        recognizer.save(tmp_path / "one")
        loaded = Recognizer.load(tmp_path / "one")
        np.testing.assert_array_equal(
            loaded.scores(strangers), recognizer.scores(strangers)
        )
        assert loaded.background.n_people == OTHERS.n_people
        assert loaded.model_id == recognizer.model_id
        for present in (recognizer, loaded):
            present.remove("Ann")
            with pytest.raises(RecognitionError, match="Nobody is enrolled"):
                present.identify(strangers[0])
            # The background stays, but the kind of samples is open again.
            assert present.background is not None
        recognizer.background = None
        recognizer.enroll("Ann", person[0])
        with pytest.raises(RecognitionError, match="or one and give a background"):
            recognizer.identify(strangers[0])

    def test_with_rule_cosine_two_are_needed(self, tmp_path):
        recognizer = Recognizer(threshold=0.0, background=OTHERS, rule="cosine")
        recognizer.enroll("Ann", people_of(1, 3)[0])
        with pytest.raises(RecognitionError, match="at least two subjects"):
            recognizer.fit()
        # It can be kept until the second comes.
        recognizer.save(tmp_path / "one")
        loaded = Recognizer.load(tmp_path / "one")
        loaded.enroll("Bob", people_of(2, 3)[1])
        assert loaded.scores(people_of(2, 3)[:, 0]).shape == (2, 2)

    def test_images(self):
        people = make_people(n_people=24, n_images=4, size=16)
        images = people.images.reshape(24, 4, 16, 16)
        others = Background.from_samples(
            images[4:].reshape(-1, 16, 16), np.repeat(np.arange(20), 4)
        )
        recognizer = Recognizer(threshold=0.0, size=(16, 16), background=others)
        recognizer.enroll("Ann", images[0, 0])
        own = recognizer.scores(images[0, 1:])
        assert own.min() > recognizer.scores(images[1:4].reshape(-1, 16, 16)).max()


@pytest.mark.parametrize("n_people", [1, 2, 8])
def test_people_unlike_the_background(n_people):
    """One or two people do not show what they are; more of them do."""
    far = 6.0 + people_of(n_people, 2, seed=3)
    recognizer = recogniser_of(far, 1, background=OTHERS)
    weight = recognizer.chosen_parameters["background_weight"]
    assert weight == (1.0 if n_people < 3 else 0.0)
    assert np.isfinite(recognizer.scores(far[:, 1])).all()
    assert Recognizer(background=OTHERS).chosen_parameters == {}
    near = recogniser_of(people_of(n_people, 2, seed=3), 1, background=OTHERS)
    assert near.chosen_parameters["background_weight"] == 1.0


def test_a_model_with_a_background_is_loaded_by_another_process(tmp_path):
    """Its id must not depend on addresses in memory."""
    recognizer = recogniser_of(people_of(3, 2), background=OTHERS)
    recognizer.save(tmp_path / "model")
    program = (
        "import sys, json; from dualqml.recognition import Recognizer;"
        "found = Recognizer.load(sys.argv[1]);"
        "print(json.dumps([found.model_id, found.subjects()]))"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "model")],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    expected = [recognizer.model_id, ["000", "001", "002"]]
    assert [json.loads(answer) for answer in answers] == [expected] * 2
    assert recognizer.model_id != recogniser_of(people_of(3, 2)).model_id


def test_a_background_of_another_kind_is_refused():
    wide = Background.from_samples(*make_vectors(12, 3, size=41, noise=NOISE))
    recognizer = Recognizer(background=wide)
    with pytest.raises(RecognitionError, match=r"of vectors of 41 values, the samples"):
        recognizer.enroll("Ann", people_of(1, 1)[0])
    assert recognizer.subjects() == []
    assert recognizer.inputs is None
    recognizer.enroll("Ann", np.ones(41))
    with pytest.raises(RecognitionError, match=r"must be a Background.* not str"):
        recognizer.background = "others"
    recognizer.remove("Ann")
    with pytest.raises(RecognitionError, match=r"the samples are images of 32 x 32"):
        recognizer.enroll("Ann", np.zeros((32, 32), dtype=np.uint8))
    enrolled = recogniser_of(people_of(3, 2))
    before = enrolled.scores(people_of(3, 1)[:, 0])
    with pytest.raises(RecognitionError, match="make the background from samples"):
        enrolled.background = wide
    assert enrolled.background is None
    np.testing.assert_array_equal(enrolled.scores(people_of(3, 1)[:, 0]), before)
    with pytest.raises(RecognitionError, match="LDA has no use for a background"):
        Recognizer("LDA", background=OTHERS)


@pytest.mark.parametrize("background", [None, OTHERS])
@pytest.mark.parametrize("n_samples", [1, 2, 4])
def test_what_is_chosen_depends_on_the_present_people_only(
    tmp_path, background, n_samples
):
    people = people_of(9, n_samples)
    never = recogniser_of(people[:8], background=background)
    changed = recogniser_of(people, background=background)
    changed.fit()
    changed.remove("003")
    changed.fit()
    changed.remove("008")
    changed.enroll("003", people[3])
    probes = people_of(30, 1, seed=4)[:, 0]
    np.testing.assert_array_equal(changed.scores(probes), never.scores(probes))
    assert changed._matcher.parameters == never._matcher.parameters
    changed.save(tmp_path / "changed")
    never.save(tmp_path / "never")
    contents = [(tmp_path / name).read_bytes() for name in ("changed", "never")]
    assert contents[0] == contents[1]


@pytest.mark.parametrize("background", [None, OTHERS])
@pytest.mark.parametrize(
    "given",
    [
        {"rho": 0.7},
        {"lam": 0.3},
        {"cosine_weight": 0.123},
        {"rho": 1.1, "lam": 0.05, "cosine_weight": 2.0},
    ],
)
@pytest.mark.parametrize("n_samples", [1, 3])
def test_what_is_given_is_used_as_it_is(background, given, n_samples):
    recognizer = recogniser_of(people_of(6, n_samples), background=background, **given)
    recognizer.fit()
    matcher = recognizer._matcher
    used = matcher.parameters | {"cosine_weight": matcher.cosine_weight}
    for name, value in given.items():
        assert used[name] == value
    assert matcher.model.rho == used["rho"]
    assert matcher.model.lam == used["lam"]


def test_one_sample_each_takes_the_parameters_of_the_background():
    recognizer = recogniser_of(people_of(6, 1), background=OTHERS).fit()
    matcher = recognizer._matcher
    assert matcher.parameters["rho"] == OTHERS.rho
    assert matcher.parameters["lam"] == OTHERS.lam
    assert matcher.cosine_weight == OTHERS.cosine_weight
    assert matcher.parameters["background_weight"] == 1.0
    # With one person nothing can be left out, and the background says all.
    alone = recogniser_of(people_of(1, 1), background=OTHERS).fit()._matcher
    ratio = OTHERS.log_ratio(1)
    assert (alone.slope, alone.offset) == (ratio.slope, ratio.offset)


@pytest.mark.parametrize("n_samples", [1, 3])
@pytest.mark.parametrize("background", [None, OTHERS])
def test_probabilities_add_up_to_one(background, n_samples):
    people = people_of(7, n_samples + 1)
    recognizer = recogniser_of(people, n_samples, background=background)
    probes = np.concatenate([people[:, -1], people_of(5, 1, seed=3)[:, 0]])
    scores = recognizer.scores(probes)
    for prior in (0.1, 0.5, 0.999):
        found, unknown = recognizer.probabilities(probes, prior=prior)
        assert found.shape == (12, 7)
        np.testing.assert_allclose(found.sum(axis=1) + unknown, 1.0)
        # The rule of Bayes, with scores as logarithms of likelihood ratios.
        odds = found / unknown[:, None]
        np.testing.assert_allclose(
            np.log(odds), scores + np.log(prior / 7 / (1.0 - prior)), atol=1e-6
        )
    for prior in (0.0, 1.0, np.nan):
        with pytest.raises(RecognitionError, match="prior must be between 0 and 1"):
            recognizer.probabilities(probes, prior=prior)


def test_results_have_probabilities():
    people = people_of(7, 4)
    recognizer = recogniser_of(people, 3)
    found = recognizer.identify(people[2, 3], top=3)
    chances, unknown = recognizer.probabilities(people[2, 3])
    record = json.loads(json.dumps(found.as_dict()))
    assert record["unknown_probability"] == pytest.approx(unknown[0])
    order = np.argsort(-chances[0])[:3]
    stated = [candidate["probability"] for candidate in record["candidates"]]
    assert stated == pytest.approx(chances[0][order])
    assert record["candidates"][0]["subject"] == "002"
    claim = recognizer.verify("002", people[2, 3]).as_dict()
    assert claim["probability"] == pytest.approx(1.0 / (1.0 + np.exp(-claim["score"])))


def test_other_methods_have_no_probabilities():
    people = people_of(7, 4)
    for options in ({"method": "LDA"}, {"rule": "cosine"}):
        recognizer = recogniser_of(people, 3, **options)
        found = recognizer.identify(people[2, 3])
        assert found.unknown_probability is None
        assert found.candidates[0].probability is None
        assert recognizer.verify("002", people[2, 3]).probability is None
        with pytest.raises(RecognitionError, match='rule "max"'):
            recognizer.probabilities(people[2, 3])


def test_scores_of_other_methods_are_the_method_and_a_weighted_cosine():
    people = people_of(7, 4)
    recognizer = recogniser_of(people, 3, method="LDA")
    units = people / np.linalg.norm(people, axis=2, keepdims=True)
    means = units[:, :3].mean(axis=1)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    pairs = [
        row @ means[c] for k in range(7) for row in units[k, :3] for c in range(7)
        if c != k
    ]  # fmt: skip
    model = recognizer.fit()._matcher.model
    plain = model.decision_function(people[:, 3].astype(np.float32).astype(float))
    cosines = units[:, 3] @ means.T
    expected = plain + 0.8 * (cosines - np.mean(pairs)) / np.std(pairs)
    np.testing.assert_allclose(recognizer.scores(people[:, 3]), expected, atol=1e-4)


def test_scores_mean_the_same_in_galleries_of_all_sizes():
    """The ratio of the same pair of samples, among 4, 10 or 40 people."""
    own, strangers = {}, {}
    for seed in range(4):
        people = people_of(40, 3, seed=seed)
        others = people_of(100, 1, seed=seed + 50)[:, 0]
        for n_people in (4, 10, 40):
            recognizer = recogniser_of(people[:n_people], 2, background=OTHERS)
            scores = np.diag(recognizer.scores(people[:4, 2]))
            own.setdefault(n_people, []).extend(scores)
            found = recognizer.scores(others)[:, :4]
            strangers.setdefault(n_people, []).extend(found.ravel())
    few, some, many = (np.array(own[n]) for n in (4, 10, 40))
    for group in (few, some, many):
        assert group.min() > 1.0
    assert np.median(few) == pytest.approx(np.median(many), rel=0.35)
    assert np.median(some) == pytest.approx(np.median(many), rel=0.25)
    for found in strangers.values():
        found = np.array(found)
        for score in (1.0, 3.0):
            assert (found > score).mean() < np.exp(-score)


class TestCalibration:
    def test_few_people_are_calibrated_by_the_background(self):
        recognizer = recogniser_of(people_of(3, 2), background=OTHERS, threshold=None)
        found = recognizer.calibrate(fpir=0.1)
        assert found.source == "strangers simulated from a background of 60 people"
        assert (found.kind, found.n_comparisons, found.n_mated) == ("fpir", 3000, 0)
        assert found.prior
        assert 0.0 == found.low <= found.achieved <= 0.1
        assert found.achieved < found.high
        alarms = recognizer.identify_many(people_of(600, 1, seed=9)[:, 0])
        rate = np.mean([answer.decision == "match" for answer in alarms])
        assert rate <= 0.1
        with pytest.warns(UserWarning, match="3000 non-mated comparisons are too few"):
            recognizer.calibrate(fpir=0.0005)
        assert recognizer.calibrate(fmr=0.01).n_comparisons == 9000

    def test_many_people_are_left_out_in_turn(self):
        recognizer = recogniser_of(people_of(20, 2), background=OTHERS)
        found = recognizer.calibrate(fpir=0.1)
        assert found.source == "20 enrolled subjects left out in turn"
        assert found.n_comparisons == 40
        assert found.n_mated == 60

    def test_samples_of_strangers_come_first(self):
        recognizer = recogniser_of(people_of(3, 2), background=OTHERS)
        rows = people_of(50, 1, seed=9)[:, 0]
        found = recognizer.calibrate(rows, [f"x{n}" for n in range(50)], fpir=0.1)
        assert found.source == "50 samples of people who are not enrolled"
        assert found.n_comparisons == 50


def divisions():
    """45 known people and 44 others, whose photographs are years apart."""
    X, y = load_samples("agegap_sface")
    people = np.array([c for c in np.unique(y) if np.sum(y == c) >= 3])
    for seed in range(3):
        rng = np.random.default_rng(seed)
        order = rng.permutation(people)
        rows = {c: rng.permutation(np.flatnonzero(y == c)) for c in order}
        yield X, y, rows, order[:45], order[45:]


@pytest.mark.realdata("agegap_sface")
def test_searches_for_real_people_miss_fewer_than_the_cosine():
    missed = []
    for X, _, rows, known, others in divisions():
        known = np.sort(known)
        recognizer = Recognizer()
        for c in known:
            recognizer.enroll(f"{c:06d}", X[rows[c][:2]])
        probes = np.concatenate([rows[c][2:] for c in known])
        codes = np.repeat(np.arange(45), [rows[c].size - 2 for c in known])
        strangers = np.concatenate([rows[c] for c in others])
        units = unit_rows(X)
        means = unit_rows(np.array([units[rows[c][:2]].sum(axis=0) for c in known]))
        missed.append(
            [
                fnir_at_fpir(one, codes, other, fpir=0.1).fnir
                for one, other in (
                    (recognizer.scores(X[probes]), recognizer.scores(X[strangers])),
                    (units[probes] @ means.T, units[strangers] @ means.T),
                )
            ]
        )
    ours, cosine = np.mean(missed, axis=0)
    assert ours < cosine - 0.05


@pytest.mark.realdata("agegap_sface")
def test_a_background_of_real_people_helps_with_single_images():
    errors = []
    for X, y, rows, known, others in divisions():
        background = Background.from_samples(
            X[np.isin(y, others)], y[np.isin(y, others)]
        )
        train = np.array([rows[c][0] for c in known])
        test = np.concatenate([rows[c][1:] for c in known])
        models = DualQMLWCV(background=background), DualQMLWCV(), NearestSample()
        errors.append(
            [1 - m.fit(X[train], y[train]).score(X[test], y[test]) for m in models]
        )
    helped, alone, nearest = np.mean(errors, axis=0)
    assert helped < min(alone, nearest) - 0.03
