import json
import math
import mmap
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

import dualqml
from dualqml import data, extractors
from dualqml.exceptions import ModelFileError
from dualqml.extractors import NearestSample
from dualqml.extractors.methods import METHODS, make_method
from dualqml.extractors.tuning import RankSearchCV
from dualqml.persistence.model_files import FORMAT, load, save
from dualqml.persistence.tensors import write_tensors
from tests.people import make_people, make_vectors
from tests.persistence.sealed import Forged, edited, edited_model, join, split

# Made-up images do not make every solver converge.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ROOT = Path(__file__).resolve().parents[2]


def pixels(**options):
    people = make_people(n_people=5, n_images=4, size=8, **options)
    return people.images.reshape(len(people.images), -1).astype(float), people.labels


X, y = pixels()
PROBES, _ = pixels(seed=1)
OTHERS = extractors.Background.from_samples(
    *make_vectors(12, 3, size=64, noise=0.3, seed=2)
)


def assert_same(one, other, path="model"):
    """The same types and values, to the last bit and at any depth."""
    assert type(one) is type(other), path
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, path
        assert one.shape == other.shape, path
        same = one.tolist() == other.tolist() if one.dtype == object else None
        assert same or one.tobytes() == other.tobytes(), path
    elif isinstance(one, dict):
        assert list(one) == list(other), path
        for key in one:
            assert_same(one[key], other[key], f"{path}[{key!r}]")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{path}[{place}]")
    elif hasattr(one, "__dict__"):
        mine, theirs = vars(one), vars(other)
        assert set(mine) == set(theirs), path
        for key in mine:
            assert_same(mine[key], theirs[key], f"{path}.{key}")
    else:
        assert one == other or (math.isnan(one) and math.isnan(other)), path


def arrays_in(value):
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from arrays_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from arrays_in(item)
    elif hasattr(value, "__dict__"):
        yield from arrays_in(vars(value))


def few_folds(name):
    """Parameters that keep the cross-validated methods quick."""
    if name == "DualQML-W":
        return {"rhos": (0.1, 1.0), "lams": (0.1,)}
    return {"cv": 2, "lams": (1.0, 10.0)} if name.startswith("DualQML") else {}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture
def saved(path):
    """The file of a small model."""
    save(NearestSample().fit([[1.0, 0.0], [0.0, 1.0]], ["anna", "bert"]), path)
    return path


class TestMethods:
    @pytest.mark.parametrize("tune", [False, True], ids=["plain", "tuned"])
    @pytest.mark.parametrize("name", METHODS)
    def test_every_method_comes_back(self, path, name, tune):
        model = make_method(name, tune=tune, image_shape=(8, 8), **few_folds(name))
        model.fit(X, y)
        save(model, path)
        loaded = load(path)
        assert_same(model, loaded)
        scores = model.decision_function(PROBES)
        assert scores.tobytes() == loaded.decision_function(PROBES).tobytes()
        assert (model.predict(PROBES) == loaded.predict(PROBES)).all()
        assert_same(model.get_params(deep=False), loaded.get_params(deep=False))

    @pytest.mark.parametrize("name", ["LDA", "DualQML-W"])
    def test_models_with_local_descriptors_come_back(self, path, name):
        model = make_method(name, preprocessing="local", image_shape=(8, 8))
        save(model.fit(X, y), path)
        scores = load(path).decision_function(PROBES)
        assert scores.tobytes() == model.decision_function(PROBES).tobytes()

    @pytest.mark.parametrize("name", ["K-LDA", "MLE", "DualQML", "DualQML-W"])
    def test_a_loaded_model_can_be_cloned_and_fitted_again(self, path, name):
        model = make_method(name, **few_folds(name)).fit(X, y)
        save(model, path)
        again = clone(load(path)).fit(X, y)
        assert_same(model, again)
        loaded = load(path)
        assert_same(loaded.fit(X[::-1], y[::-1]), clone(model).fit(X[::-1], y[::-1]))
        save(loaded, path)

    def test_a_search_can_be_fitted_again(self, path):
        grid = {"nearestsample__metric": np.array(["cosine", "euclidean"])}
        pipeline = make_pipeline(StandardScaler(), NearestSample())
        search = RankSearchCV(pipeline, grid).fit(X, y)
        save(search, path)
        assert_same(search, load(path))
        assert_same(search, clone(load(path)).fit(X, y))


SETTINGS = {
    "APCA()": extractors.APCA(whiten=False),
    "CFA(1d)": extractors.CFA(filter="otf", mode="1d"),
    "DualQML(signed-root)": extractors.DualQML(10.0, features="signed-root"),
    "DualQMLClassifier(max)": extractors.DualQMLClassifier(rule="max"),
    "DualQMLClassifier(centre)": extractors.DualQMLClassifier(centre=True),
    "DualQMLClassifier(probability)": extractors.DualQMLClassifier(
        probability=True, lam_scale="auto"
    ),
    "DualQMLW(linear)": extractors.DualQMLW(kernel="linear", rule="max"),
    "DualQMLW(background)": extractors.DualQMLW(background=OTHERS, rule="max"),
    "DualQMLWCV(one rule)": extractors.DualQMLWCV(rules=["max"], rhos=np.ones(1)),
    "KernelLDA(igo)": extractors.KernelLDA(kernel="igo"),
    "MLE(lda)": extractors.MLE(lda=True, theta=math.inf),
    "NearestSample(euclidean)": NearestSample(metric="euclidean"),
    "LocalDescriptors(list)": extractors.LocalDescriptors(parts=["pixels"], stride=2),
    "WithinMetric(images)": extractors.WithinMetric(image_shape=[8, 8]),
    "Cropper": data.Cropper(box=(0, 1, 4, 5)),
    "GreyConverter": data.GreyConverter(image_shape=(8, 8)),
    "Normalizer": Normalizer(norm="l1"),
    "PhotometricNormaliser": data.PhotometricNormaliser(method="tan-triggs"),
    "Resizer": data.Resizer(size=[4, 4]),
    "StandardScaler": StandardScaler(),
    "StandardScaler(nothing)": StandardScaler(with_mean=False, with_std=False),
}
SETTINGS |= {
    kind.__name__: kind()
    for kind in (getattr(extractors, name) for name in extractors.__all__)
    if issubclass(kind, BaseEstimator)
}
# Pixels as they are take it long.
SETTINGS["DualQMLClassifierCV"].set_params(cv=2, lams=[1e-6], lam_scale="auto")


class TestEstimators:
    @pytest.mark.parametrize("name", SETTINGS)
    def test_every_estimator_comes_back(self, path, name):
        model = clone(SETTINGS[name]).fit(X, y)
        save(model, path)
        loaded = load(path)
        assert_same(model, loaded)
        for method in ("transform", "decision_function"):
            if hasattr(model, method):
                results = (getattr(m, method)(PROBES) for m in (model, loaded))
                one, other = (result.tobytes() for result in results)
                assert one == other

    def test_eye_aligners_come_back(self, path):
        rows = np.column_stack([X, np.tile([3.0, 2.0, 3.0, 5.0], (len(X), 1))])
        model = data.EyeAligner(size=(6, 6)).fit(rows)
        save(model, path)
        assert_same(model, load(path))
        assert (load(path).transform(rows) == model.transform(rows)).all()

    def test_steps_for_photographs_come_back(self, path):
        model = make_pipeline(data.FaceEmbedder(several="largest"), NearestSample())
        # Without photographs and a network: only the last step is fitted.
        model[-1].fit(X, y)
        save(model, path)
        assert_same(model, load(path))
        save(data.FaceCropper(size=(20, 20)), path)
        assert load(path).size == (20, 20)

    @pytest.mark.parametrize(
        "labels",
        [
            y,
            y.astype(object),
            np.repeat(np.arange(5), 4),
            np.repeat(np.arange(5), 4).astype(np.uint8),
            np.repeat([True, False], 10),
            np.repeat([0.0, 1.0], 10),
        ],
        ids=lambda labels: str(labels.dtype),
    )
    def test_labels_of_all_types_come_back(self, path, labels):
        for model in (NearestSample(), extractors.DualQMLClassifier()):
            model.fit(X, labels)
            save(model, path)
            found = load(path).predict(PROBES)
            assert found.dtype == labels.dtype
            assert (found == model.predict(PROBES)).all()

    def test_names_of_features_come_back(self, path):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(X, columns=[f"pixel {i}" for i in range(64)])
        model = make_pipeline(StandardScaler(), extractors.Fisherfaces())
        model.set_output(transform="pandas").fit(frame, y)
        save(model, path)
        loaded = load(path)
        assert_same(model, loaded)
        pandas.testing.assert_frame_equal(
            loaded.transform(frame), model.transform(frame)
        )
        with pytest.raises(ValueError, match="feature names"):
            loaded.transform(frame[frame.columns[::-1]])

    def test_a_search_over_a_pipeline_with_settings_of_its_output(self, path):
        pipeline = make_pipeline(extractors.Fisherfaces(), NearestSample())
        pipeline.set_output(transform="default")
        search = RankSearchCV(
            pipeline, {"fisherfaces__shrinkage": [0.1, np.float64(1)]}
        )
        save(search.fit(X, y), path)
        assert_same(search, load(path))


class TestBackground:
    @pytest.mark.parametrize("images", [False, True])
    def test_it_comes_back(self, path, images):
        people = make_people(n_people=12, n_images=3, size=8)
        rows = people.images if images else people.images.reshape(36, -1)
        background = extractors.Background.from_samples(rows, people.labels)
        save(background, path)
        loaded = load(path)
        assert_same(background, loaded)
        strangers = background.strangers(20)
        assert strangers.tobytes() == loaded.strangers(20).tobytes()

    def test_the_file_is_small_and_does_not_grow_with_the_people(self, path):
        sizes = []
        for n_people in (300, 600):
            rows, labels = make_vectors(n_people, 3, size=128, noise=0.5)
            save(extractors.Background.from_samples(rows, labels), path)
            sizes.append(path.stat().st_size)
        assert sizes[0] == sizes[1] < 400_000

    def test_the_file_has_no_names(self, path):
        people = make_people(n_people=12, n_images=3, size=8)
        save(extractors.Background.from_samples(people.images, people.labels), path)
        content = path.read_bytes()
        assert b"Background" in content
        assert b"person" not in content


class TestFile:
    def test_arrays_are_read_only_maps(self, path):
        save(make_method("DualQML-W", **few_folds("DualQML-W")).fit(X, y), path)
        loaded = load(path)
        arrays = list(arrays_in(loaded))
        assert len(arrays) >= 15
        for array in arrays:
            assert not array.flags.writeable
            base = array
            while isinstance(base, np.ndarray):
                base = base.base
            assert isinstance(base.obj, mmap.mmap)
        # What is held twice is stored once.
        classify = loaded["classify"]
        assert classify.metric_.classes_ is classify.classes_

    def test_other_programs_can_read_it(self, path):
        oracle = pytest.importorskip("safetensors.numpy")
        model = make_method("LDA").fit(X, y)
        save(model, path)
        found = oracle.load_file(path)["steps.0.1.components_"]
        np.testing.assert_array_equal(found, model["extract"].components_)

    def test_the_file_names_the_version_that_wrote_it(self, saved):
        header, _ = split(saved.read_bytes())
        strings = header["__metadata__"]
        assert strings["dualqml.format"] == str(FORMAT)
        assert strings["dualqml.version"] == dualqml.__version__
        assert (
            json.loads(strings["dualqml.model"])["object"]["class"] == "NearestSample"
        )

    def test_a_model_can_be_saved_over_the_file_it_came_from(self, saved):
        model = load(saved)
        save(model, saved)
        assert_same(load(saved), model)

    def test_pickle_is_not_used(self, path, monkeypatch):
        def forbidden(*args, **kwargs):
            raise AssertionError("pickle was used")

        model = make_method("MLE").fit(X, y)
        for name in ("load", "loads", "dump", "dumps", "Unpickler", "Pickler"):
            monkeypatch.setattr(pickle, name, forbidden)
        monkeypatch.setattr(np, "load", forbidden)
        save(model, path)
        assert_same(model, load(path))

    def test_the_file_is_not_a_pickle(self, path):
        save(make_method("MLE").fit(X, y), path)
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(path.read_bytes())

    def test_importing_the_package_does_not_import_persistence(self):
        script = (
            "import sys, dualqml; assert 'dualqml.persistence' not in sys.modules; "
            "dualqml.load; assert 'dualqml.persistence' in sys.modules"
        )
        subprocess.run([sys.executable, "-c", script], check=True)
        assert dualqml.save is save
        assert dualqml.load is load
        with pytest.raises(AttributeError, match="no attribute 'lod'"):
            _ = dualqml.lod


class TestRefusalsOfSave:
    def test_models_that_are_not_fitted_are_refused(self, path):
        with pytest.raises(NotFittedError):
            save(NearestSample(), path)
        with pytest.raises(NotFittedError):
            save(make_method("LDA"), path)

    @pytest.mark.parametrize("value", [None, 3, [NearestSample()], np.zeros(3), "a"])
    def test_objects_that_are_not_estimators_are_refused(self, path, value):
        with pytest.raises(ModelFileError, match=r"cannot be saved|not an estimator"):
            save(value, path)

    @pytest.mark.parametrize(
        ("model", "message"),
        [
            (
                make_pipeline(MinMaxScaler(), NearestSample()),
                r"Pipeline cannot be saved: steps\.0\.1 is of type MinMaxScaler",
            ),
            (
                Pipeline([("classify", NearestSample())], memory="cache"),
                "memory is not None",
            ),
            (
                extractors.DualQMLClassifierCV([1.0], cv=StratifiedKFold(2)),
                "cv is of type StratifiedKFold",
            ),
            (
                extractors.MLE(random_state=np.random.RandomState(0)),
                "random_state is of type RandomState",
            ),
        ],
    )
    def test_values_that_a_file_cannot_hold_are_named(
        self, saved, tmp_path, model, message
    ):
        if model.get_params().get("memory"):
            model.set_params(memory=str(tmp_path / "cache"))
        before = saved.read_bytes()
        model.fit(X, y)
        with pytest.raises(ModelFileError, match=message):
            save(model, saved)
        assert saved.read_bytes() == before

    def test_unknown_attributes_are_refused(self, path):
        model = NearestSample().fit(X, y)
        model.note_ = "mine"
        with pytest.raises(ModelFileError, match="note_ is an attribute that a file"):
            save(model, path)
        model = NearestSample().fit(X, y)
        del model.codes_
        with pytest.raises(ModelFileError, match="codes_ is missing"):
            save(model, path)
        model = NearestSample().fit(X, y)
        model.metric = "cubic"
        with pytest.raises(ModelFileError, match="not a valid NearestSample"):
            save(model, path)
        assert not path.exists()


def inside(model):
    return model["object"]


MODEL_CHANGES = [
    (lambda m: m.update(object=1), "is not a value"),
    (lambda m: inside(m).update({"class": "Nobody"}), "'Nobody', which is not known"),
    (lambda m: inside(m).update({"class": "os.system"}), "which is not known"),
    (lambda m: inside(m).update({"class": "KernelLDA"}), "metric is a parameter that"),
    (lambda m: inside(m).pop("attributes"), "is not a value"),
    (lambda m: inside(m)["attributes"].clear(), "does not use"),
    (
        lambda m: inside(m)["attributes"].pop("effective_metric_"),
        "effective_metric_ is missing",
    ),
    (
        lambda m: inside(m)["attributes"].update(effective_metric_=1),
        "effective_metric_ is not str",
    ),
    (
        lambda m: inside(m)["attributes"].update(effective_metric_=[]),
        "effective_metric_ is not str",
    ),
    (
        lambda m: inside(m)["attributes"].update(n_features_in_=True),
        "n_features_in_ is not a whole number",
    ),
    (
        lambda m: inside(m)["attributes"].update(
            gallery_=inside(m)["attributes"]["codes_"]
        ),
        "gallery_ is not a matrix",
    ),
    (
        lambda m: inside(m)["attributes"]["gallery_"]["array"].update(tensor="nope"),
        "gallery_ needs the array 'nope', which is not there",
    ),
    (
        lambda m: inside(m)["attributes"].update(predict="x"),
        "predict is an attribute that NearestSample does not have",
    ),
    (
        lambda m: inside(m)["attributes"].update(__class__="x"),
        "__class__ is an attribute",
    ),
    (
        lambda m: inside(m)["parameters"].update(metric="cubic"),
        "is not a valid NearestSample",
    ),
    (
        lambda m: inside(m)["parameters"].update(metric=[1]),
        "is not a valid NearestSample",
    ),
]


class TestRefusalsOfLoad:
    @pytest.mark.parametrize(("change", "message"), MODEL_CHANGES)
    def test_impossible_models_are_refused(self, saved, change, message):
        edited_model(saved, change)
        with pytest.raises(ModelFileError) as caught:
            load(saved)
        assert message in str(caught.value)
        assert str(saved) in str(caught.value)

    def test_a_pipeline_without_steps_is_refused(self, path):
        save(make_pipeline(Normalizer(), NearestSample()).fit(X, y), path)
        content = path.read_bytes()
        scaler = {"class": "StandardScaler", "parameters": {}, "attributes": {}}
        for steps in (
            [],
            {"tuple": []},
            [1],
            [{"tuple": ["a", 1]}],
            [{"tuple": ["a", "b"]}],
            [{"tuple": [1, None]}],
            [{"tuple": ["a", None]}] * 2,
            [{"tuple": ["a", {"object": scaler}]}],
        ):
            path.write_bytes(content)
            edited_model(
                path, lambda m, steps=steps: inside(m)["parameters"].update(steps=steps)
            )
            with pytest.raises(ModelFileError):
                load(path)
        path.write_bytes(content)
        edited_model(path, lambda m: inside(m)["parameters"].update(memory="/tmp"))
        with pytest.raises(ModelFileError, match="memory is not None"):
            load(path)

    def test_another_format_is_refused(self, saved):
        edited(saved, lambda h: h["__metadata__"].update({"dualqml.format": "2"}))
        with pytest.raises(ModelFileError, match=r"has format '2'.*reads format 1"):
            load(saved)

    def test_files_without_a_model_are_refused(self, path):
        write_tensors(path, {"a": np.zeros(3)}, {"who": "Anna"})
        with pytest.raises(ModelFileError, match="no model of dualqml"):
            load(path)
        with pytest.raises(ModelFileError, match="No such file"):
            load(path.with_name("absent"))

    def test_too_many_objects_are_refused(self, path):
        save(make_pipeline(Normalizer(), NearestSample()).fit(X, y), path)
        scaler = {"class": "StandardScaler", "parameters": {}, "attributes": {}}
        steps = [{"tuple": [f"s{n}", {"object": scaler}]} for n in range(200)]
        edited_model(path, lambda m: inside(m)["parameters"].update(steps=steps))
        with pytest.raises(ModelFileError, match="one of more than 100 objects"):
            load(path)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_numbers_that_are_not_finite_are_refused(self, saved, value):
        forged = Forged(saved.read_bytes())
        forged.arrays["gallery_"] = np.full((2, 2), value)
        saved.write_bytes(forged.seal())
        with pytest.raises(ModelFileError, match="gallery_ has numbers that are not"):
            load(saved)
        # Whoever wrote the file may leave its numbers unread.
        assert isinstance(load(saved, verify=False), NearestSample)

    @pytest.mark.parametrize("output", ["arrow", ["pandas"], {"dict": {}}, None])
    def test_unknown_output_containers_are_refused(self, saved, output):
        config = {"dict": {"transform": output}}
        edited_model(
            saved,
            lambda m: inside(m)["attributes"].update(_sklearn_output_config=config),
        )
        with pytest.raises(ModelFileError, match="is not a choice of"):
            load(saved)

    def test_too_many_strings_are_refused(self, path):
        save(NearestSample().fit(X, y.astype(object)), path)
        forged = Forged(path.read_bytes())
        forged.arrays["classes_"] = np.full((1_000_001, 1), 65, np.uint32)
        path.write_bytes(forged.seal())
        with pytest.raises(ModelFileError, match="more than 1,000,000 strings"):
            load(path)

    def test_unused_arrays_are_refused(self, saved):
        header, content = split(saved.read_bytes())
        place = [len(content), len(content) + 1]
        header["more"] = {"dtype": "U8", "shape": [1], "data_offsets": place}
        saved.write_bytes(join(header, content + b"\0"))
        with pytest.raises(ModelFileError, match="more is an array that the model"):
            load(saved)

    def test_damage_is_found_unless_verify_is_false(self, path):
        save(NearestSample().fit(X, y), path)
        content = bytearray(path.read_bytes())
        # The last array has labels; those before it have the most bytes.
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match="checksum"):
            load(path)
        assert isinstance(load(path, verify=False), NearestSample)


class TestUpgrades:
    """Files of other versions of the library, with the same format."""

    def test_parameters_of_later_versions_take_their_defaults(self, path):
        model = make_method("DualQML-W", **few_folds("DualQML-W")).fit(X, y)
        save(model, path)

        def without(model):
            steps = inside(model)["parameters"]["steps"]
            classify = inside(steps[-1]["tuple"][1])
            for name in ("own_weight", "n_jobs", "tol"):
                del classify["parameters"][name]

        edited_model(path, without)
        assert_same(model, load(path))

    def test_unknown_parameters_are_refused(self, saved):
        def more(model):
            inside(model)["parameters"]["weights"] = "distance"

        edited_model(saved, more)
        with pytest.raises(
            ModelFileError, match=r"weights is a parameter that .* newer version"
        ):
            load(saved)

    def test_a_missing_parameter_without_default_is_refused(self, path):
        search = RankSearchCV(NearestSample(), {"metric": ["cosine"]}).fit(X, y)
        save(search, path)
        edited_model(path, lambda m: inside(m)["parameters"].pop("param_grid"))
        with pytest.raises(ModelFileError, match="param_grid is missing"):
            load(path)

    def test_the_first_files_of_format_1_still_load(self, path):
        """Written by hand: whatever is changed, this file must load."""
        gallery = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        names = np.array([[65, 110], [66, 111]], dtype="<u4")
        codes = np.array([0, 1, 1], dtype="<i8")
        content = b"".join(
            array.tobytes() for array in (gallery.astype("<f8"), codes, names)
        )
        model = {
            "object": {
                "class": "NearestSample",
                "parameters": {"metric": "cosine"},
                "attributes": {
                    "n_features_in_": 2,
                    "classes_": {"array": {"tensor": "names", "as": "text"}},
                    "codes_": {"array": {"tensor": "codes"}},
                    "effective_metric_": "cosine",
                    "gallery_": {"array": {"tensor": "gallery"}},
                },
            }
        }
        header = {
            "__metadata__": {
                "dualqml.format": "1",
                "dualqml.version": "0.1.0",
                "dualqml.model": json.dumps(model),
                "dualqml.sha256": "0" * 64,
            },
            "gallery": {"dtype": "F64", "shape": [3, 2], "data_offsets": [0, 48]},
            "codes": {"dtype": "I64", "shape": [3], "data_offsets": [48, 72]},
            "names": {"dtype": "U32", "shape": [2, 2], "data_offsets": [72, 88]},
        }
        path.write_bytes(join(header, content))
        loaded = load(path)
        assert isinstance(loaded, BaseEstimator)
        assert loaded.predict([[5.0, 0.1], [0.1, 5.0]]).tolist() == ["An", "Bo"]


@pytest.mark.skipif(sys.platform == "win32", reason="kills and limits of POSIX")
class TestOtherProcesses:
    def run(self, *arguments):
        ended = subprocess.run(
            [sys.executable, "-m", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    def test_a_killed_process_leaves_the_old_or_the_new_file(self, path):
        seen = self.run("tests.persistence.kill_savers", path, 12)
        assert sum(seen.values()) == 12
        assert set(seen) <= {"1.0", "2.0"}

    def test_damaged_and_crafted_files_are_refused_or_work(self, tmp_path):
        """Thousands more by the same command with another number."""
        found = self.run("tests.persistence.fuzz_model_files", tmp_path, 700, 5)
        assert found["tried"] == 700 + found["crafted"]
        assert found["crafted"] > 200
        assert found["wrong"] == 0
        assert found["refused"] > 800
        # Not all at the first door.
        assert found["reasons"] > 60
        assert found["peak MB"] < 500
