"""One sample is erased as if it had never been enrolled."""

import copy
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualqml.exceptions import RecognitionError, UnknownSubjectError
from dualqml.recognition import Recognizer
from dualqml.recognition.gallery import Gallery
from tests.people import make_people
from tests.recognition.test_recognizer import vectors
from tests.recognition.test_with_background import OTHERS, people_of

VECTORS = vectors(n_people=5, n_samples=4)
CROPS = make_people(n_people=5, n_images=4, noise=0.2).images.reshape(5, 4, 8, 8)
#: Samples of people by name, and settings for them.
KINDS = {
    "vectors": (VECTORS, {}),
    "crops": (CROPS, {"size": (8, 8)}),
    "other method": (VECTORS, {"method": "LDA"}),
    "background": (people_of(5, 4), {"background": OTHERS}),
}


def enrolled(kind, without=(), *, names=True, **options):
    """A recogniser of everybody, but for some pairs of a person and a sample."""
    people, more = KINDS[kind]
    recognizer = Recognizer(**{"threshold": 0.5} | more | options)
    for number, own in enumerate(people):
        kept = [k for k in range(len(own)) if (number, k) not in without]
        if kept:
            given = [f"secret {number} {k}" for k in kept] if names else None
            recognizer.enroll(f"p{number}", own[kept], names=given)
    return recognizer


def content(recognizer, folder):
    recognizer.save(folder / "saved")
    return (folder / "saved").read_bytes()


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_file_is_that_of_a_recogniser_without_the_sample(
    tmp_path, kind, fitted, names
):
    recognizer = enrolled(kind, names=names)
    if fitted:
        recognizer.fit()
    recognizer.remove_sample("p2", 1)
    assert recognizer.n_samples == 19
    if names:
        assert recognizer.sample_names("p2") == [f"secret 2 {k}" for k in (0, 2, 3)]
    found = content(recognizer, tmp_path)
    assert found == content(enrolled(kind, {(2, 1)}, names=names), tmp_path)
    assert b"secret 2 1" not in found
    assert (b"secret 2 2" in found) == names


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_loaded_recognisers_too(tmp_path, kind, names):
    enrolled(kind, names=names).save(tmp_path / "model")
    loaded = Recognizer.load(tmp_path / "model")
    assert not loaded._gallery["p2"].flags.owndata
    loaded.remove_sample("p2", 3)
    # Nothing is a view of the file any more, which has the sample.
    assert all(loaded._gallery[s].flags.owndata for s in loaded.subjects())
    found = content(loaded, tmp_path)
    assert found == content(enrolled(kind, {(2, 3)}, names=names), tmp_path)
    # The same file may be written again, and the sample is gone from it.
    loaded.remove_sample("p2", 0)
    loaded.save(tmp_path / "model")
    again = Recognizer.load(tmp_path / "model")
    assert len(again.samples("p2")) == 2
    again.remove_sample("p0", 2)
    wanted = enrolled(kind, {(2, 3), (2, 0), (0, 2)}, names=names)
    assert content(again, tmp_path) == content(wanted, tmp_path)


@pytest.mark.parametrize("index", [0, 3])
def test_first_and_last_samples(tmp_path, index):
    recognizer = enrolled("vectors").fit()
    recognizer.remove_sample("p4", index)
    rows = np.delete(VECTORS[4], index, axis=0).astype(np.float32)
    np.testing.assert_array_equal(recognizer.samples("p4"), rows)
    wanted = enrolled("vectors", {(4, index)})
    assert content(recognizer, tmp_path) == content(wanted, tmp_path)


def test_the_only_name_leaves_no_trace(tmp_path):
    recognizer, plain = Recognizer(threshold=0.0), Recognizer(threshold=0.0)
    recognizer.enroll("Ann", VECTORS[0, :3], names=["", "secret", ""])
    recognizer.enroll("Bob", VECTORS[1])
    recognizer.remove_sample("Ann", 1)
    plain.enroll("Ann", VECTORS[0, [0, 2]])
    plain.enroll("Bob", VECTORS[1])
    assert content(recognizer, tmp_path) == content(plain, tmp_path)


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 3)),
        min_size=1,
        max_size=14,
        unique=True,
    )
)
def test_any_samples_in_any_order(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("files")
    recognizer = enrolled("vectors")
    present = {number: list(range(4)) for number in range(5)}
    for step, (number, k) in enumerate(pairs):
        if step % 3 == 1 and len(recognizer.subjects()) > 1:
            recognizer.fit()
        recognizer.remove_sample(f"p{number}", present[number].index(k))
        present[number].remove(k)
    wanted = enrolled("vectors", set(pairs))
    assert recognizer.subjects() == wanted.subjects()
    assert content(recognizer, folder) == content(wanted, folder)


def test_the_memory_is_overwritten():
    recognizer = enrolled("vectors").fit()
    kept = recognizer._gallery["p1"]
    prepared = recognizer._cache._prepared["p1"]
    others = recognizer._gallery["p2"].copy()
    assert kept.any()
    assert prepared.inputs.any()
    recognizer.remove_sample("p1", 2)
    assert not kept.any()
    assert not prepared.inputs.any()
    assert recognizer.samples("p1").any(axis=1).all()
    np.testing.assert_array_equal(recognizer.samples("p2"), others)


def test_the_last_sample_takes_the_subject_along(tmp_path):
    recognizer, other = enrolled("crops"), enrolled("crops")
    for _ in range(4):
        recognizer.remove_sample("p3", 0)
    other.remove("p3")
    assert "p3" not in recognizer.subjects()
    assert content(recognizer, tmp_path) == content(other, tmp_path)
    with pytest.raises(UnknownSubjectError, match="'p3' is not enrolled; 4"):
        recognizer.remove_sample("p3", 0)
    for subject in recognizer.subjects():
        for _ in range(4):
            recognizer.remove_sample(subject, 0)
    # An empty recogniser may begin with another kind.
    assert recognizer.inputs is None
    recognizer.enroll("Ann", np.ones(3))


@pytest.mark.parametrize("index", [4, -1, 1.0, "1", True, None, np.int64(9)])
def test_wrong_numbers_change_nothing(tmp_path, index):
    recognizer = enrolled("vectors").fit()
    recognizer.calibrate(fpir=0.9)
    before, matcher = content(recognizer, tmp_path), recognizer._matcher
    with pytest.raises(RecognitionError, match="'p2' has no sample"):
        recognizer.remove_sample("p2", index)
    with pytest.raises(UnknownSubjectError, match="'nobody' is not enrolled"):
        recognizer.remove_sample("nobody", 0)
    assert recognizer._matcher is matcher
    assert content(recognizer, tmp_path) == before


def test_numbers_of_numpy_can_be_used():
    recognizer = enrolled("vectors")
    recognizer.remove_sample("p2", np.int64(1))
    assert recognizer.n_samples == 19


def test_galleries_check_the_number_too():
    gallery = Gallery()
    gallery.add("Ann", VECTORS[0])
    with pytest.raises(RecognitionError, match="numbered from 0, and the last"):
        gallery.remove("Ann", 4)
    assert len(gallery["Ann"]) == 4


class TestCalibration:
    def test_it_is_as_after_the_removal_of_a_person(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            recognizer = enrolled("vectors", threshold=None)
            found = recognizer.calibrate(fpir=0.3)
        other = copy.deepcopy(recognizer)
        recognizer.remove_sample("p1", 1)
        other.remove("p1")
        kept = recognizer.calibration
        assert kept == other.calibration
        assert (kept.kind, kept.threshold) == ("given", found.threshold)
        assert recognizer.calibration_is_stale

    def test_a_given_threshold_stays(self):
        recognizer = enrolled("vectors")
        before = recognizer.calibration
        recognizer.remove_sample("p1", 1)
        assert recognizer.calibration == before
        assert not recognizer.calibration_is_stale

    @pytest.mark.parametrize("ask", ["save", "threshold", "copy", "load"])
    def test_nothing_of_the_sample_is_in_a_prior(self, tmp_path, ask):
        recognizer = enrolled("background", threshold=None)
        before = recognizer.calibrate(fpir=0.1).threshold
        if ask == "load":
            recognizer.save(tmp_path / "model")
            recognizer = Recognizer.load(tmp_path / "model")
        recognizer.remove_sample("p1", 1)
        assert recognizer._matcher is None
        assert recognizer._prior_due == ("fpir", 0.1)
        assert recognizer._calibration is None
        if ask == "threshold":
            assert recognizer.threshold != before
        if ask == "copy":
            recognizer = copy.deepcopy(recognizer)
        fresh = enrolled("background", {(1, 1)}, threshold=None)
        fresh.calibrate(fpir=0.1)
        found = content(recognizer, tmp_path)
        assert found == content(fresh, tmp_path)
        assert repr(before).encode() not in found

    def test_a_prior_that_is_due_stays_due(self):
        recognizer = enrolled("background", threshold=None)
        recognizer.calibrate(fpir=0.1)
        recognizer.remove_sample("p1", 1)
        recognizer.remove_sample("p1", 0)
        recognizer.remove("p0")
        assert recognizer._prior_due == ("fpir", 0.1)
        assert recognizer.calibration == recognizer.calibrate(fpir=0.1)

    def test_an_empty_gallery_has_none(self):
        recognizer = Recognizer(background=OTHERS)
        recognizer.enroll("Ann", people_of(1, 1)[0])
        recognizer.calibrate(fpir=0.1)
        recognizer.remove_sample("Ann", 0)
        assert recognizer.calibration is None
