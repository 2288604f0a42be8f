"""The plot of an explanation."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from dualqml import DualQML
from dualqml.exceptions import (
    MissingDependencyError,
    NoThresholdError,
    RecognitionError,
)
from dualqml.extractors import Background
from dualqml.recognition import Recognizer, WhyDisplay
from tests.evaluation.test_displays import draw
from tests.people import make_people, make_vectors
from tests.recognition.test_recognizer import enrolled, vectors


@pytest.fixture
def ax():
    figure = pytest.importorskip("matplotlib.figure")
    return figure.Figure(figsize=(8.0, 4.8)).add_subplot()


@pytest.fixture(scope="module")
def people():
    return make_people(n_images=4, size=16, noise=0.8).images.reshape(6, 4, 16, 16)


@pytest.fixture(scope="module")
def images(people):
    recognizer = Recognizer(size=(16, 16), threshold=0.0)
    for number, own in enumerate(people):
        recognizer.enroll(f"person {number}", own[:3])
    return recognizer


def test_it_keeps_what_the_explanation_says(images, people):
    explained = images.explain(people[2, 3], top=4)
    display = WhyDisplay.from_estimator(images, people[2, 3], top=4)
    assert display.explanation == explained
    candidates = explained.identification.candidates
    assert display.subjects == [one.subject for one in candidates]
    assert display.scores.tolist() == [one.score for one in candidates]
    assert display.threshold == 0.0
    assert display.part_names == [part.name for part in explained.parts]
    sums = display.part_values.sum(axis=0)
    np.testing.assert_allclose(sums, display.scores[:2], atol=1e-9)


def test_pictures_are_those_of_the_samples(images, people):
    others = 0
    for number in range(6):
        display = WhyDisplay.from_estimator(images, people[number, 3])
        np.testing.assert_array_equal(display.probe, people[number, 3])
        near = display.explanation.nearest
        expected = people[int(near.subject[-1]), near.index]
        np.testing.assert_array_equal(display.nearest, expected)
        other = display.explanation.nearest_of_all
        assert (display.nearest_of_all is None) == (other is None)
        if other is not None:
            others += 1
            expected = people[int(other.subject[-1]), other.index]
            np.testing.assert_array_equal(display.nearest_of_all, expected)
    assert others < 6


def test_an_image_of_floats_and_of_another_size_is_read_as_by_the_recogniser(
    images, people
):
    large = np.kron(people[1, 3], np.ones((2, 2))) / 255.0
    display = WhyDisplay.from_estimator(images, large)
    assert display.probe.shape == (16, 16)
    assert display.subjects[0] == images.identify(large).candidates[0].subject


def test_drawing_a_match(ax, images, people):
    display = WhyDisplay.from_estimator(images, people[2, 3])
    assert display.plot(ax) is display
    draw(ax)
    assert display.figure_ is ax.figure
    top, bottom = display.candidates_ax_, display.parts_ax_
    assert top.get_title(loc="left") == "match: person 2"
    assert [label.get_text() for label in top.get_yticklabels()] == display.subjects
    (points,) = (one for one in top.collections if len(one.get_offsets()) == 5)
    assert points.get_offsets()[:, 0].tolist() == display.scores.tolist()
    low, high = top.get_xlim()
    assert low < min(display.scores.min(), 0.0)
    assert high > display.scores.max()
    assert set(top.lines[0].get_xdata()) == {0.0}
    assert "threshold 0.00" in [text.get_text() for text in top.texts]
    names = [label.get_text() for label in bottom.get_yticklabels()]
    assert names == [*display.part_names, "score"]
    widths = [bar.get_width() for bar in bottom.patches]
    expected = np.vstack([display.part_values, display.part_values.sum(axis=0)])
    np.testing.assert_allclose(widths, expected.T.ravel())
    first, second = display.picture_axes_[:2]
    assert first.get_title() == "the image"
    assert second.get_title().startswith("most similar image of person 2\n(cosine 0.")
    np.testing.assert_array_equal(first.images[0].get_array(), people[2, 3])
    assert first.images[0].get_clim() == (0, 255)


def test_drawing_unknown(ax, images, people):
    display = WhyDisplay.from_estimator(images, people[2, 3], threshold=1e3).plot(ax)
    draw(ax)
    assert display.candidates_ax_.get_title(loc="left") == "unknown"
    assert display.candidates_ax_.get_xlim()[1] > 1e3


def test_nothing_overlaps(ax, images, people):
    explained = images.explain(people[2, 3])
    other = replace(explained.nearest, subject="person 4")
    display = WhyDisplay.from_explanation(
        replace(explained, nearest_of_all=other),
        probe=people[2, 3],
        nearest=people[2, 0],
        nearest_of_all=people[4, 0],
    ).plot(ax)
    draw(ax)
    assert len(display.picture_axes_) == 3
    title = display.picture_axes_[2].get_title()
    assert title.startswith("more similar, but of person 4\n")
    renderer = ax.figure.canvas.get_renderer()
    axes = [*display.picture_axes_, display.candidates_ax_, display.parts_ax_]
    boxes = [one.get_tightbbox(renderer) for one in axes]
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(next_box) for next_box in boxes[place + 1 :])


def test_the_legend_of_the_parts_is_free_of_other_text(ax, images, people):
    display = WhyDisplay.from_estimator(images, people[2, 3]).plot(ax)
    draw(ax)
    renderer = ax.figure.canvas.get_renderer()
    text_class = pytest.importorskip("matplotlib.text").Text
    parts = display.parts_ax_
    legend = parts.get_legend().get_window_extent(renderer)
    texts = [one for one in parts.findobj(text_class) if one.get_text()]
    texts = [one for one in texts if one not in parts.get_legend().findobj(text_class)]
    assert len(texts) > 5
    for text in texts:
        assert not text.get_window_extent(renderer).overlaps(legend), text


def test_vectors_have_no_pictures(ax):
    people = vectors()
    recognizer = enrolled(people)
    display = WhyDisplay.from_estimator(recognizer, people[1, 3], top=2).plot(ax)
    draw(ax)
    assert display.probe is display.nearest is display.nearest_of_all is None
    assert display.picture_axes_ == []
    assert display.subjects[0] == "person 1"
    assert len(display.subjects) == 2
    # With pictures of somebody who has them.
    explained = recognizer.explain(people[1, 3])
    display = WhyDisplay.from_explanation(explained, probe=np.zeros((9, 7, 3))).plot(ax)
    assert len(display.picture_axes_) == 1


def test_labels_are_inside_a_new_figure(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.setitem(matplotlib.rcParams, "backend", "agg")
    from matplotlib import pyplot

    recognizer = enrolled(vectors(), cosine_weight=0.5)
    display = WhyDisplay.from_estimator(recognizer, vectors()[1, 3]).plot()
    try:
        draw(display.candidates_ax_)
        renderer = display.figure_.canvas.get_renderer()
        assert "cosine to the mean" in display.part_names
        for axes in (display.candidates_ax_, display.parts_ax_):
            box, whole = axes.get_tightbbox(renderer), display.figure_.bbox
            assert box.x0 >= whole.x0
            assert box.x1 <= whole.x1
            assert box.y0 >= whole.y0
            assert box.y1 <= whole.y1
    finally:
        pyplot.close(display.figure_)


def test_one_person_has_no_runner_up(ax):
    others = Background.from_samples(*make_vectors(40, 3, size=40, noise=0.4, seed=5))
    recognizer = Recognizer(threshold=0.0, background=others)
    recognizer.enroll("Ann", vectors()[0, :2])
    display = WhyDisplay.from_estimator(recognizer, vectors()[0, 3]).plot(ax)
    draw(ax)
    assert display.part_values.shape == (len(display.part_names), 1)
    assert len(display.parts_ax_.patches) == len(display.part_names) + 1


def test_long_names_are_cut(ax):
    people = vectors()
    recognizer = Recognizer(threshold=0.5, cosine_weight=0.0)
    for number, own in enumerate(people):
        recognizer.enroll(f"{number} {'x' * 100}", own[:3])
    display = WhyDisplay.from_estimator(recognizer, people[0, 3]).plot(ax)
    draw(ax)
    labels = [one.get_text() for one in display.candidates_ax_.get_yticklabels()]
    assert labels[0] == "0 " + "x" * 15 + "…"
    assert len(display.subjects[0]) == 102


def test_what_is_wrong_is_said(images, people):
    recognizer = Recognizer()
    recognizer.enroll("Ann", vectors()[0])
    recognizer.enroll("Bob", vectors()[1])
    with pytest.raises(NoThresholdError):
        WhyDisplay.from_estimator(recognizer, vectors()[0, 0])
    explained = images.explain(people[0, 0])
    with pytest.raises(RecognitionError, match="have 40 values, not 39"):
        WhyDisplay.from_estimator(recognizer, vectors()[0, 0][1:], threshold=0.0)
    with pytest.raises(TypeError, match="not of DualQML"):
        WhyDisplay.from_estimator(DualQML(), vectors()[0, 0])
    with pytest.raises(TypeError, match=r"Recognizer\.explain returns, got Ident"):
        WhyDisplay(explained.identification)
    with pytest.raises(TypeError, match="ax must be one matplotlib Axes"):
        WhyDisplay(explained).plot([1, 2])
    with pytest.raises(ValueError, match="nearest must be an image"):
        WhyDisplay.from_explanation(explained, nearest=np.zeros(64))


def test_on_given_axes_pyplot_keeps_nothing(ax, images, people):
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    display = WhyDisplay.from_estimator(images, people[2, 3]).plot(ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert pyplot.get_fignums() == before


def test_without_matplotlib_it_is_said_what_to_install(images, people, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    display = WhyDisplay.from_estimator(images, people[2, 3])
    with pytest.raises(MissingDependencyError, match=r"install dualqml\[plot\]"):
        display.plot()
