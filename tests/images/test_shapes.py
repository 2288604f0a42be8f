import numpy as np
import pytest

from dualqml.extractors import (
    APCA,
    CFA,
    ERE,
    ERKDA,
    GTDA,
    MFA,
    DualQMLW,
    DualQMLWCV,
    Fisherfaces,
    KernelLDA,
    WithinMetric,
)
from dualqml.images import shapes
from dualqml.images.descriptors import LocalDescriptors
from dualqml.images.shapes import (
    at_unit_scale,
    is_square,
    read_size,
    resolved_shape,
    row_blocks,
    shape_or_row,
)

#: The same height and width in every form that users may give.
SIZES = [(9, 8), [9, 8], np.array([9, 8]), np.array([9, 8], np.uint8), (np.int64(9), 8)]


@pytest.mark.parametrize("size", SIZES, ids=repr)
def test_a_size_is_two_whole_numbers(size):
    found = read_size(size)
    assert found == (9, 8)
    assert [type(side) for side in found] == [int, int]
    assert shape_or_row(size, 72) == resolved_shape(size, 72, without="") == (9, 8)


@pytest.mark.parametrize(
    "size",
    [
        *(9, None, "98", (9,), (9, 8, 1), (9.0, 8), (0, 8), (-9, -8), (True, 8)),
        *({9, 8}, np.array(9), np.array([[9, 8]]), np.array([9.0, 8.0]), ("9", "8")),
    ],
    ids=repr,
)
def test_what_is_no_size_is_named(size):
    with pytest.raises(ValueError, match=r"^box=.* is not a height and a width"):
        read_size(size, "box")


@pytest.mark.parametrize(("n", "shape"), [(64, (8, 8)), (49, (7, 7)), (60, (1, 60))])
def test_rows_are_square_images_or_one_row(n, shape):
    assert shape_or_row(None, n) == shape


def test_images_are_square_or_said_to_be_otherwise():
    assert resolved_shape(None, 64, without="") == (8, 8)
    assert resolved_shape((1, 127), 127, without="") == (1, 127)
    for n_features in (1, 2, 4, 49, 63, 65, 127, 128, 512):
        with pytest.raises(
            ValueError, match=f"have {n_features} features.*image_shape"
        ):
            resolved_shape(None, n_features, without="")
    with pytest.raises(ValueError, match=r"\(8, 9\) has 72 pixels.* have 64"):
        resolved_shape([8, 9], 64, without="")


def data(n_features=72):
    rng = np.random.default_rng(0)
    return rng.random((20, n_features)), np.repeat(np.arange(5), 4)


#: All estimators with an image_shape, with parameters that make them use it.
ESTIMATORS = [
    APCA(tangents=0.1),
    CFA(filter="otf"),
    DualQMLW(descriptor="local"),
    DualQMLW(),
    DualQMLWCV(descriptor="local", random_state=0),
    ERE(tangents=0.1),
    ERKDA(kernel="igo"),
    Fisherfaces(tangents=0.1),
    GTDA(n_dims=(3, 2)),
    KernelLDA(kernel="igo"),
    KernelLDA(tangents=0.1),
    LocalDescriptors(),
    MFA(tangents=0.1),
    WithinMetric(descriptor="local"),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_every_form_of_a_shape_is_as_good(estimator):
    X, y = data()
    features = []
    for size in SIZES:
        model = type(estimator)(**estimator.get_params() | {"image_shape": size})
        features.append(model.fit(X, y).transform(X))
        assert model.image_shape is size
    for other in features[1:]:
        np.testing.assert_array_equal(other, features[0])


def test_every_form_of_reduced_sides_is_as_good():
    X, y = data()
    for dims in ((3, 2), [3, 2], np.array([3, 2])):
        model = GTDA(image_shape=[9, 8], n_dims=dims).fit(X, y)
        assert (model.row_basis_.shape, model.column_basis_.shape) == ((9, 3), (8, 2))
    with pytest.raises(ValueError, match=r"n_dims=\(10, 2\) must be at most the sides"):
        GTDA(image_shape=(9, 8), n_dims=(10, 2)).fit(X, y)
    with pytest.raises(ValueError, match=r"n_dims=\(0, 2\) is not a height"):
        GTDA(image_shape=(9, 8), n_dims=(0, 2)).fit(X, y)


#: Estimators that need images, and what to use instead.
NEED_IMAGES = [
    (APCA(tangents=0.1), "tangents=0"),
    (DualQMLW(descriptor="local"), "descriptor=None"),
    (DualQMLWCV(descriptor="local"), "descriptor=None"),
    (ERKDA(kernel="igo"), "kernel='rbf'"),
    (Fisherfaces(tangents=0.1), "tangents=0"),
    (KernelLDA(kernel="igo"), "kernel='rbf'"),
    (KernelLDA(tangents=0.1), "tangents=0"),
    (LocalDescriptors(), "the rows as they are"),
    (WithinMetric(descriptor="local"), "descriptor=None"),
]


@pytest.mark.parametrize(("estimator", "instead"), NEED_IMAGES, ids=repr)
@pytest.mark.parametrize("n_features", [49, 127, 128])
def test_rows_that_are_no_images_are_refused(estimator, instead, n_features):
    with pytest.raises(
        ValueError, match=f"have {n_features} features.*image_shape"
    ) as e:
        estimator.fit(*data(n_features))
    assert instead in str(e.value)


def test_vectors_are_tensors_too():
    model = GTDA().fit(*data(127))
    assert (model.row_basis_.shape, model.column_basis_.shape) == ((1, 1), (127, 64))


def test_squares():
    assert [n for n in range(30) if is_square(n)] == [0, 1, 4, 9, 16, 25]
    assert is_square(10**20)
    assert not is_square(10**20 + 1)


@pytest.mark.parametrize(
    ("bytes_per_row", "sizes"),
    [(10, [3, 3, 1]), (30, [1] * 7), (100, [1] * 7), (1, [7])],
)
def test_blocks_have_all_rows_once_and_are_bounded(monkeypatch, bytes_per_row, sizes):
    monkeypatch.setattr(shapes, "_TEMPORARY_BYTES", 30)
    rows = np.arange(7)
    blocks = [rows[block] for block in row_blocks(7, bytes_per_row)]
    assert [block.size for block in blocks] == sizes
    np.testing.assert_array_equal(np.concatenate(blocks), rows)


def test_unit_scale_only_changes_exponents():
    X = np.array([[3.0, -5.0], [3e300, 5e299], [0.0, 0.0]])
    scaled = at_unit_scale(X)
    largest = np.abs(scaled[:2]).max(axis=1)
    assert ((largest >= 0.5) & (largest < 1.0)).all()
    np.testing.assert_array_equal(scaled[2], 0.0)
    np.testing.assert_array_equal(scaled[0], X[0] / 8.0)
    assert scaled[1, 0] / scaled[1, 1] == X[1, 0] / X[1, 1]
