"""Recognisers that threads share, and changes that are interrupted."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dualqml.recognition import Recognizer


def vectors(n_people=12, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_people, 1, 60)) + 0.4 * rng.normal(size=(n_people, 3, 60))
    return {f"s{number:02d}": own for number, own in enumerate(rows)}


def enrolled(people, **options):
    recognizer = Recognizer(threshold=0.0, **options)
    for name, rows in people.items():
        recognizer.enroll(name, rows)
    return recognizer


def test_several_threads_may_search_first_after_a_change():
    people = vectors()
    names = list(people)
    shared = enrolled(people)
    with ThreadPoolExecutor(6) as pool:
        for round_ in range(8):
            shared.remove(names[round_])
            present = {name: people[name] for name in names[round_ + 1 :]}
            start = threading.Barrier(6)

            def search(start=start):
                start.wait()
                return shared.scores(people["s11"])

            found = [pool.submit(search) for _ in range(6)]
            expected = enrolled(present).scores(people["s11"])
            for future in found:
                np.testing.assert_allclose(future.result(), expected, atol=1e-9)
            shared.enroll(names[round_], people[names[round_]])
            shared.remove(names[round_])


@pytest.mark.parametrize("refit", ["exact", "deferred"])
def test_a_search_sees_the_people_before_a_change_or_after_it(refit):
    people = vectors()
    shared = enrolled(people, refit=refit).fit()
    start, stop = threading.Barrier(3), threading.Event()
    known = {}

    def change():
        start.wait()
        try:
            for _ in range(30):
                shared.remove("s03")
                known[shared.model_id] = shared.subjects()
                shared.enroll("s03", people["s03"])
                known[shared.model_id] = shared.subjects()
        finally:
            stop.set()

    def search():
        answers = []
        start.wait()
        while True:
            # At least once, also if the changes are done before this thread's turn.
            answers.append(shared.identify(people["s03"][0], top=20))
            answers.append(shared.verify("s05", people["s05"][0]))
            if stop.is_set():
                return answers

    known[shared.model_id] = shared.subjects()
    with ThreadPoolExecutor(3) as pool:
        searches = [pool.submit(search) for _ in range(2)]
        pool.submit(change).result()
        answers = [answer for found in searches for answer in found.result()]
    for answer in answers:
        candidates = getattr(answer, "candidates", None)
        if candidates is None:
            assert answer.decision == "match"
        else:
            present = sorted(candidate.subject for candidate in candidates)
            assert present == known[answer.model_id]
            if "s03" in present:
                assert answer.subject == "s03"


@pytest.mark.parametrize("refit", ["exact", "deferred"])
@pytest.mark.parametrize("part", ["_gallery", "_cache"])
@pytest.mark.parametrize("verb", ["remove", "enroll"])
def test_an_interrupted_change_leaves_no_model_of_other_samples(
    monkeypatch, part, verb, refit
):
    people = vectors()
    recognizer = enrolled(people, refit=refit).fit()
    target = getattr(recognizer, part)
    method = "forget" if part == "_cache" else {"enroll": "add"}.get(verb, verb)

    def interrupted(*args):
        original(*args)
        raise KeyboardInterrupt

    original = getattr(target, method)
    monkeypatch.setattr(target, method, interrupted)
    arguments = ["s03"] if verb == "remove" else ["s03", people["s04"]]
    with pytest.raises(KeyboardInterrupt):
        getattr(recognizer, verb)(*arguments)
    monkeypatch.undo()
    found = recognizer._fitted_matcher()
    counts = [len(recognizer.samples(name)) for name in recognizer.subjects()]
    assert found.subjects == recognizer.subjects()
    assert found.model.qml_.dual_coef_.size == sum(counts)
    recognizer.fit()
    present = {name: recognizer.samples(name) for name in recognizer.subjects()}
    fresh = enrolled(present)
    np.testing.assert_array_equal(
        recognizer.scores(people["s05"]), fresh.scores(people["s05"])
    )
    assert recognizer.model_id == fresh.model_id


def test_a_removed_person_is_not_kept_by_a_file_that_was_loaded(tmp_path):
    people = vectors()
    enrolled(people).save(tmp_path / "people.dualqml")
    loaded = Recognizer.load(tmp_path / "people.dualqml")
    assert not loaded._gallery["s05"].flags.owndata
    loaded.remove("s03")
    # Views would hold the map of the whole file.
    for name in loaded.subjects():
        assert loaded._gallery[name].flags.owndata
        np.testing.assert_array_equal(loaded.samples(name), people[name].astype("f4"))


def test_a_copy_is_independent():
    people = vectors()
    first = enrolled(people).fit()
    second = copy.deepcopy(first)
    second.remove("s03")
    assert len(first.subjects()) == 12
    np.testing.assert_array_equal(
        first.scores(people["s03"]), enrolled(people).scores(people["s03"])
    )
    del people["s03"]
    np.testing.assert_array_equal(
        second.scores(people["s05"]), enrolled(people).scores(people["s05"])
    )
