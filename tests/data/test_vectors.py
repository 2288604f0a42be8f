import sys

import numpy as np
import pytest

from dualqml.data import VectorDatabase, holds_vectors, load_vectors
from dualqml.data.vectors import read_vectors
from dualqml.exceptions import DatabaseError, DualQMLError, MissingDependencyError

ROWS = np.arange(12.0).reshape(4, 3)
NAMES = ["Zoë", "Ann", "Zoë", "Ann"]


def save_npz(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("names", [("embeddings", "labels"), ("X", "y")])
def test_npz(tmp_path, names):
    arrays = dict(zip(names, (ROWS, NAMES), strict=True))
    database = load_vectors(save_npz(tmp_path / "faces.npz", **arrays))
    assert isinstance(database, VectorDatabase)
    assert database.name == "faces"
    assert database.labels.tolist() == NAMES
    np.testing.assert_array_equal(database.vectors, ROWS)
    assert database.visits is None


def test_precision_is_kept_and_whole_numbers_become_decimals(tmp_path):
    for kind, wanted in [("f4", "f4"), ("f8", "f8"), ("f2", "f8"), ("i4", "f8")]:
        path = save_npz(tmp_path / "v.npz", embeddings=ROWS.astype(kind), labels=NAMES)
        database = load_vectors(path)
        assert database.vectors.dtype == wanted
        assert database.rows.dtype == np.float64


def test_visits(tmp_path):
    path = tmp_path / "v.npz"
    save_npz(path, embeddings=ROWS, labels=NAMES, visits=[1, 1, 2, 2])
    assert load_vectors(path).visits.tolist() == [1, 1, 2, 2]
    save_npz(path, embeddings=ROWS, labels=NAMES, visits=[0.5, 1, 2, 2])
    with pytest.raises(DatabaseError, match="visits must be integers"):
        load_vectors(path)


@pytest.mark.parametrize(
    ("labels", "known"),
    [
        (np.array(["Zoë".encode(), b"Ann", b"a", b"b"]), ["Zoë", "Ann", "a", "b"]),
        (np.array([3, 1, 10, 2]), ["3", "1", "10", "2"]),
        (np.array([3.0, 1.0, 10.0, 2.0]), ["3", "1", "10", "2"]),
        (np.array([["a"], ["b"], ["c"], ["d"]]), ["a", "b", "c", "d"]),
    ],
)
def test_labels_of_all_kinds(tmp_path, labels, known):
    path = save_npz(tmp_path / "f.npz", embeddings=ROWS, labels=labels)
    assert load_vectors(path).labels.tolist() == known


def test_npy_with_labels_beside(tmp_path):
    path = tmp_path / "faces.npy"
    np.save(path, ROWS)
    with pytest.raises(DatabaseError, match=r"does not say who is who.*--labels"):
        load_vectors(path)
    vectors, labels, visits = read_vectors(path)
    assert vectors.shape == (4, 3)
    assert (labels, visits) == (None, None)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(NAMES) + "\n\n", encoding="utf-8")
    assert load_vectors(path, names).labels.tolist() == NAMES
    np.save(tmp_path / "names.npy", NAMES)
    assert load_vectors(path, tmp_path / "names.npy").labels.tolist() == NAMES
    with pytest.raises(DatabaseError, match=r"labels cannot be read: .*nobody"):
        load_vectors(path, tmp_path / "nobody.txt")


def parquet(tmp_path, **columns):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "faces.parquet"
    pandas.DataFrame(columns).to_parquet(path)
    return path


@pytest.mark.parametrize("name", ["subject", "label", "labels", "y"])
def test_parquet_with_a_column_for_each_coordinate(tmp_path, name):
    columns = {f"x{k}": ROWS[:, k] for k in range(3)}
    assert read_vectors(parquet(tmp_path, **columns))[1] is None
    database = load_vectors(parquet(tmp_path, **{name: NAMES}, **columns))
    assert database.labels.tolist() == NAMES
    np.testing.assert_array_equal(database.vectors, ROWS)


def test_parquet_with_a_column_of_lists(tmp_path):
    path = parquet(tmp_path, label=NAMES, embedding=list(ROWS), visit=[1, 2, 1, 2])
    database = load_vectors(path)
    np.testing.assert_array_equal(database.vectors, ROWS)
    assert database.visits.tolist() == [1, 2, 1, 2]
    ragged = [[1.0, 2.0], [1.0], [2.0], [3.0]]
    with pytest.raises(DatabaseError, match="'embedding' have different lengths"):
        load_vectors(parquet(tmp_path, label=NAMES, embedding=ragged))


def test_parquet_with_other_columns(tmp_path):
    path = parquet(tmp_path, subject=NAMES, x=ROWS[:, 0], city=["a", "b", "c", "d"])
    with pytest.raises(DatabaseError, match=r"a column of numbers.*; found city"):
        load_vectors(path)
    with pytest.raises(DatabaseError, match="found nothing"):
        load_vectors(parquet(tmp_path, subject=NAMES))


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_parquet_without_what_reads_it(tmp_path, monkeypatch, package):
    path = parquet(tmp_path, subject=NAMES, x=ROWS[:, 0])
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match="pip install pandas pyarrow"):
        load_vectors(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"faces": ROWS}, "no array 'embeddings' or 'X'; it has faces"),
        ({"embeddings": np.ones(3)}, r"a row for each sample, not shape \(3,\)"),
        ({"embeddings": np.array([["a"]])}, "embeddings are numbers, not <U1"),
        ({"embeddings": ROWS, "labels": ["Ann"]}, "has 4 vectors and 1 labels"),
        ({"embeddings": ROWS, "labels": [0.5, 1, 2, 3]}, "text or whole numbers"),
        ({"embeddings": np.array([[None]]), "labels": ["a"]}, "cannot be read"),
    ],
)
def test_wrong_arrays(tmp_path, arrays, message):
    with pytest.raises(DatabaseError, match=message):
        load_vectors(save_npz(tmp_path / "f.npz", **arrays))


def test_values_that_are_not_finite_are_named(tmp_path):
    rows = ROWS.copy()
    rows[2, 1] = np.nan
    path = save_npz(tmp_path / "f.npz", embeddings=rows, labels=NAMES)
    with pytest.raises(DatabaseError, match=r"1 vectors .* first is row 2"):
        load_vectors(path)


def test_files_that_are_no_vectors(tmp_path):
    (tmp_path / "f.txt").write_text("1 2 3")
    with pytest.raises(DatabaseError, match=r"\.npz, \.npy or \.parquet"):
        load_vectors(tmp_path / "f.txt")
    (tmp_path / "f.npy").write_text("1 2 3")
    with pytest.raises(DatabaseError, match="cannot be read"):
        load_vectors(tmp_path / "f.npy")
    with pytest.raises(DatabaseError, match="cannot be read"):
        load_vectors(tmp_path / "nowhere.npz")


def test_files_of_vectors_are_told_from_images(tmp_path):
    images = np.zeros((4, 8, 8), np.uint8)
    files = {
        "v.npz": {"embeddings": ROWS, "labels": NAMES},
        "x.npz": {"X": ROWS, "y": NAMES},
        "i.npz": {"images": images, "labels": NAMES},
        "both.npz": {"images": images, "embeddings": ROWS, "labels": NAMES},
        "o.npz": {"other": ROWS},
    }
    for name, arrays in files.items():
        save_npz(tmp_path / name, **arrays)
    np.save(tmp_path / "v.npy", ROWS)
    (tmp_path / "broken.npz").write_bytes(b"PK")
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "l.csv").write_text("path,subject\n")
    found = {p.name for p in tmp_path.iterdir() if holds_vectors(p)}
    assert found == {"v.npz", "x.npz", "v.npy"}
    assert not holds_vectors(tmp_path / "nowhere.npy")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vectors": ROWS[0]}, "must be floating-point numbers"),
        ({"vectors": ROWS.astype(int)}, "must be floating-point numbers"),
        ({"labels": np.array(["a"])}, r"4 vectors and labels of shape \(1,\)"),
    ],
)
def test_what_is_no_database_of_vectors(change, message):
    fields = {"name": "v", "vectors": ROWS, "labels": np.array(NAMES)} | change
    with pytest.raises(DualQMLError, match=message):
        VectorDatabase(**fields)


def test_a_database_of_vectors_is_used_as_one_of_images():
    database = VectorDatabase("v", ROWS[[0, 1, 0, 1]], np.array(["a", "a", "b", "b"]))
    assert database.copies == {"b": "a"}
    assert database.without_copies().labels.tolist() == ["a", "a"]
    part = database.subset(np.array([1, 3]))
    np.testing.assert_array_equal(part.vectors, ROWS[[1, 1]])
    assert part.codes.tolist() == [0, 1]
    assert database.image_shape is None
    assert database.samples is database.vectors
