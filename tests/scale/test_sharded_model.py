"""Models in shards: answers, files, and files that were damaged or made to do harm."""

import copy
import json
import os
import resource
import shutil
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from dualqml import DualQML, DualQMLClassifier, DualQMLW, DualQMLWCV
from dualqml.exceptions import FileError, MethodError, ModelFileError
from dualqml.recognition import Recognizer
from dualqml.recognition.exact_scorer import ArrayScorer
from dualqml.recognition.folded_search import FoldedGallery
from dualqml.scale import ShardedModel, fit_blocks, model_head
from dualqml.scale.model_head import HEAD
from tests.persistence.sealed import Forged
from tests.recognition.scorers import sorted_scores

SIZE = 8
#: People with one to five photos each.
COUNTS = np.random.default_rng(1).integers(1, 6, size=40)


def make_samples(counts=COUNTS, *, text=True, seed=0):
    """Vectors of people in random order, and their names."""
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    rows = 2.0 * rng.normal(size=(len(counts), SIZE))[codes]
    rows += 0.5 * rng.normal(size=rows.shape)
    names = np.array([f"p{'x' * (n % 7)}{n:02}" for n in range(len(counts))])
    return rows, names[codes] if text else 5 - 3 * codes


X, NAMES = make_samples()
NUMBERS = make_samples(text=False)[1]
KINDS = {
    "DualQML": DualQML(0.3),
    "signed-root": DualQML(0.3, features="signed-root"),
    "max": DualQMLClassifier(0.3, rule="max"),
    "cosine": DualQMLClassifier(0.3, rule="cosine", centre=True),
    "DualQMLW": DualQMLW(kernel="linear", rule="max"),
    "DualQMLW, cosine": DualQMLW(kernel="linear", rule="cosine"),
    "DualQMLWCV": DualQMLWCV(kernel="linear", random_state=0, rhos=(0.1, 0.5)),
    "Recognizer": Recognizer(),
}
DECIDING = [name for name in KINDS if name not in ("DualQML", "signed-root")]


def fitted(name, labels=NAMES, *, part_bytes=2_500, scale=1.0):
    return fit_blocks(KINDS[name], scale * X, labels, part_bytes=part_bytes)


@pytest.fixture(scope="module")
def models():
    """A model of every kind, in several shards."""
    return {name: fitted(name) for name in KINDS}


@pytest.fixture
def model(models):
    """One that is used by most tests."""
    return models["Recognizer"]


def names_in(folder):
    """Names of all files but the lock, which stays."""
    return {p.name for p in folder.iterdir() if not p.name.endswith(".lock")}


def assert_equal(one, other):
    """The same answers and certificates, to the last bit."""
    assert one.transform(X).tobytes() == other.transform(X).tobytes()
    for name in ("classes_", "counts_", "ranks_", "duality_gap_", "violation_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.rounding_limited_, other.rounding_limited_)
    np.testing.assert_array_equal(one.status_, other.status_)
    assert one.describe() == other.describe()
    assert (one.lam_, one.tol) == (other.lam_, other.tol)
    assert one.n_searched_classes_ == other.n_searched_classes_
    assert one.search_.keys() == other.search_.keys()


class TestRoundTrip:
    @pytest.mark.parametrize("verify", [True, False])
    @pytest.mark.parametrize("name", KINDS)
    def test_every_kind(self, models, tmp_path, name, verify):
        model = models[name]
        model.save(tmp_path)
        loaded = ShardedModel.load(tmp_path, verify=verify)
        assert loaded.n_shards > 3
        assert_equal(model, loaded)
        if name in DECIDING:
            np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
            np.testing.assert_array_equal(loaded.class_scores(X), model.class_scores(X))
        loaded.save(tmp_path / "again")
        assert {
            p.name: p.read_bytes() for p in (tmp_path / "again").glob("*.saf*")
        } == {p.name: p.read_bytes() for p in tmp_path.glob("*.saf*")}

    @pytest.mark.parametrize("name", KINDS)
    def test_labels_as_numbers(self, tmp_path, name):
        model = fitted(name, NUMBERS)
        model.save(tmp_path)
        loaded = ShardedModel.load(tmp_path)
        assert loaded.classes_.dtype == np.int64
        assert_equal(model, loaded)

    def test_text_keeps_its_width(self, models, tmp_path):
        models["max"].save(tmp_path)
        assert ShardedModel.load(tmp_path).classes_.dtype == "<U9"

    @pytest.mark.parametrize("name", ["max", "DualQMLW", "Recognizer"])
    def test_one_shard(self, tmp_path, name):
        model = fitted(name, part_bytes=1 << 30)
        model.save(tmp_path)
        loaded = ShardedModel.load(tmp_path)
        assert loaded.n_shards == 1
        assert "in 1 shard." in loaded.describe()
        assert_equal(model, loaded)

    @pytest.mark.parametrize("name", ["max", "DualQMLW, cosine", "Recognizer"])
    def test_two_classes_in_many_shards(self, tmp_path, name):
        rows, codes = make_samples([20, 9], text=False)
        model = fit_blocks(KINDS[name], rows, codes, part_bytes=200)
        assert model.n_shards > 9
        model.save(tmp_path)
        loaded = ShardedModel.load(tmp_path)
        assert loaded.transform(rows).tobytes() == model.transform(rows).tobytes()
        assert set(loaded.predict(rows)) == {2, 5}

    def test_the_search(self, models, tmp_path):
        model = models["DualQMLWCV"]
        model.save(tmp_path)
        loaded = ShardedModel.load(tmp_path)
        assert loaded.search_["best_params_"] == model.search_["best_params_"]
        assert loaded.search_["best_rho_"] == model.search_["best_rho_"]
        assert "Parameters were chosen on the samples of 40 classes." in (
            loaded.describe()
        )
        assert models["max"].search_ == {}

    @pytest.mark.parametrize("name", [n for n in KINDS if n != "Recognizer"])
    def test_to_local(self, models, tmp_path, name):
        models[name].save(tmp_path)
        local = ShardedModel.load(tmp_path).to_local()
        usual = KINDS[name].fit(X, NAMES)
        assert type(local) is type(usual)
        np.testing.assert_allclose(local.transform(X), usual.transform(X), atol=1e-8)
        found, wanted = (getattr(m, "qml_", m) for m in (local, usual))
        np.testing.assert_allclose(found.dual_coef_, wanted.dual_coef_, atol=1e-7)
        if name in DECIDING:
            np.testing.assert_array_equal(local.predict(X), usual.predict(X))

    def test_the_files_have_no_objects_of_python(self, models, tmp_path):
        """Every byte is in a header in JSON, or in an array of numbers."""
        oracle = pytest.importorskip("safetensors.numpy")
        for name, model in models.items():
            model.save(tmp_path / name)
            for path in (tmp_path / name).glob("*.safetensors"):
                oracle.load_file(path)


class TestAnswers:
    @pytest.mark.parametrize("name", KINDS)
    def test_some_classes_in_any_order(self, models, name):
        model = models[name]
        order = np.random.default_rng(0).permutation(40)[:17]
        wanted = model.classes_[order]
        np.testing.assert_allclose(
            model.transform(X, wanted), model.transform(X)[:, order], atol=1e-12
        )
        if name in DECIDING:
            found = model.class_scores(X, wanted.tolist())
            np.testing.assert_allclose(
                found, model.class_scores(X)[:, order], atol=1e-11
            )

    def test_a_class_may_be_asked_for_twice(self, model):
        label = model.classes_[3]
        found = model.transform(X, [label, label])
        np.testing.assert_array_equal(found[:, 0], found[:, 1])

    def test_no_classes(self, model):
        assert model.transform(X, []).shape == (len(X), 0)
        assert model.class_scores(X, []).shape == (len(X), 0)

    @pytest.mark.parametrize(
        "classes",
        [
            ["nobody"],
            ["pxxx03", ""],
            [1],
            [1.5],
            [np.nan],
            [None],
            "pxxx03",
            [["pxxx03"]],
            np.array(["pxxx03", 1], dtype=object),
        ],
    )
    def test_unknown_labels_are_refused(self, model, classes):
        assert "pxxx03" in model.classes_
        for method in (model.transform, model.class_scores):
            with pytest.raises(ValueError, match="labels of the model"):
                method(X, classes)

    def test_unknown_numbers_are_refused(self):
        model = fitted("max", NUMBERS)
        assert model.transform(X, [5, -1]).shape == (len(X), 2)
        for classes in ([4], [1 << 70], [5.5], ["5"], [None]):
            with pytest.raises(ValueError, match="labels of the model"):
                model.transform(X, classes)

    @pytest.mark.parametrize("name", ["DualQML", "signed-root"])
    def test_nothing_is_decided(self, models, name):
        for method in (models[name].predict, models[name].class_scores):
            with pytest.raises(MethodError, match="decides nothing"):
                method(X)

    @pytest.mark.parametrize("name", DECIDING)
    def test_samples_that_cannot_be_used(self, models, name):
        model = models[name]
        bad = X.copy()
        bad[3, 2] = np.nan
        for method in (model.transform, model.predict, model.class_scores):
            with pytest.raises(ValueError, match="NaN"):
                method(bad)
            with pytest.raises(ValueError, match=r"7 features.*fitted to 8"):
                method(X[:, :7])
            with pytest.raises(ValueError, match="2D array"):
                method(X[0])

    @pytest.mark.parametrize("name", ["max", "DualQMLW", "Recognizer"])
    def test_predict_in_chunks(self, models, name, monkeypatch):
        model = models[name]
        best = model.classes_[model.class_scores(X).argmax(axis=1)]
        np.testing.assert_array_equal(model.predict(X), best)
        monkeypatch.setattr("dualqml.scale.sharded_model._SCORE_BYTES", 8 * 40 * 7)
        np.testing.assert_array_equal(model.predict(X), best)
        assert len(set(best)) > 20

    def test_ties_go_to_the_first_class(self):
        """Two people of the same photos, in different shards."""
        rows, codes = make_samples(np.full(30, 3), text=False)
        pairs = np.concatenate([rows, rows])
        labels = np.concatenate([codes, 1000 + codes])
        model = fit_blocks(KINDS["max"], pairs, labels, part_bytes=1_000)
        assert (model.head.shard_sizes > 0).sum() > 3
        scores = model.class_scores(rows)
        assert (scores[:, :30] == scores[:, 30:]).any(axis=1).all()
        assert model.predict(rows).max() < 1000

    def test_single_precision(self, models):
        found = models["max"].transform(X.astype(np.float32))
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, models["max"].transform(X), atol=1e-5)

    def test_a_recogniser_has_no_local_model(self, model):
        with pytest.raises(MethodError, match="fit_recognizer"):
            model.to_local()

    def test_threads_share_a_model(self, models, tmp_path):
        models["DualQMLWCV"].save(tmp_path)
        wanted = models["DualQMLWCV"].predict(X)
        loaded = ShardedModel.load(tmp_path, verify=False)
        found, start = [], threading.Barrier(6)

        def work():
            start.wait()
            found.append((loaded.predict(X), loaded.status_, loaded.to_local()))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 6
        assert all((labels == wanted).all() for labels, *_ in found)

    def test_describe(self, models):
        words = models["max"].describe()
        assert words.startswith(
            f"DualQMLClassifier of 40 classes and {len(X)} samples in 4 shards. "
            "40 classes are proven optimal; the largest duality gap is "
        )


class TestScorer:
    @pytest.fixture(params=["DualQMLW", "Recognizer"])
    def kind(self, request):
        return request.param

    def test_scores(self, models, kind):
        """Those of the whole model, and of a model with arrays in memory."""
        model = models[kind]
        scorer, rows = model.exact_scorer(), X.astype(np.float32)
        assert scorer.n_classes == 40
        np.testing.assert_array_equal(scorer.labels, model.classes_)
        z, units = scorer.queries(rows)
        wanted = model.class_scores(rows)
        order = np.random.default_rng(0).permutation(40)[:21]
        for query in range(len(rows)):
            found = scorer.scores_of(z[query], units[query], order)
            np.testing.assert_allclose(found, wanted[query, order], atol=1e-9)
            one = scorer.scores_of(z[query], units[query], order[4:5])
            assert one[0] == found[4]

    def test_scores_of_a_recogniser(self, models):
        usual = Recognizer(threshold=1.0)
        usual.enroll_many(X.astype(np.float32), NAMES.tolist())
        usual.fit()
        model, other = models["Recognizer"], usual._fitted_matcher().exact_scorer()
        assert isinstance(other, ArrayScorer)
        scorer = model.exact_scorer()
        for row in X[:20]:
            scores = []
            for one in (scorer, other):
                z, unit = one.queries(row[None].astype(np.float32))
                scores.append(one.scores_of(z[0], unit[0], np.arange(40)))
            np.testing.assert_allclose(*scores, atol=1e-9)
        np.testing.assert_allclose(
            model.class_scores(X[:20]), usual.scores(X[:20]), atol=1e-9
        )

    def test_blocks(self, models, kind, monkeypatch):
        monkeypatch.setattr("dualqml.scale.sharded_model._CLASSES", 9)
        scorer = models[kind].exact_scorer()
        blocks = list(scorer.class_blocks())
        assert [block.classes.start for block in blocks] == [0, 9, 18, 27, 36]
        ranks = np.concatenate([block.ranks for block in blocks])
        np.testing.assert_array_equal(ranks, models[kind].ranks_)
        whole = models[kind].solution()
        np.testing.assert_array_equal(
            np.concatenate([block.components for block in blocks]), whole.components
        )

    def test_folded_search(self, models, kind):
        scorer = models[kind].exact_scorer()
        rows = X.astype(np.float32)
        found = FoldedGallery(scorer).search(rows, top=5)
        classes, scores, _ = sorted_scores(scorer, rows, 5)
        np.testing.assert_array_equal(found.classes, classes)
        np.testing.assert_allclose(found.scores, scores, atol=1e-9)

    def test_the_fingerprint_depends_on_all_numbers(self, models, tmp_path):
        model = models["Recognizer"]
        model.save(tmp_path)
        assert model.exact_scorer().fingerprint == model.exact_scorer().fingerprint
        seen = {model.exact_scorer().fingerprint}
        assert ShardedModel.load(tmp_path).exact_scorer().fingerprint in seen
        changes = [
            lambda f: bump(f, "chosen.mean"),
            lambda f: bump(f, "chosen.coefficients"),
            lambda f: bump(f, "class_scale"),
            lambda f: f.state["scale"]["dict"].update(offset=0.25),
        ]
        shard = tmp_path / sorted(tmp_path.glob("shard-*"))[0].name
        for number, change in enumerate(changes):
            folder = shutil.copytree(tmp_path, tmp_path.with_name(f"head {number}"))
            forge(folder, change)
            seen.add(ShardedModel.load(folder).exact_scorer().fingerprint)
        for number, name in enumerate(("components", "mean_responses", "means")):
            folder = shutil.copytree(tmp_path, tmp_path.with_name(f"shard {number}"))
            forge_shard(folder, lambda a, n=name: a.update({n: bumped(a[n])}), shard)
            seen.add(ShardedModel.load(folder).exact_scorer().fingerprint)
        assert len(seen) == 8

    def test_what_has_no_scorer(self, models):
        for name in ("DualQML", "max", "DualQMLW, cosine"):
            with pytest.raises(MethodError, match="rule='max'"):
                models[name].exact_scorer()
        rows = np.linspace(-3, 3, 20)[:, None]
        single = fit_blocks(KINDS["DualQMLW"], rows, np.repeat([0, 1], 10))
        with pytest.raises(MethodError, match="A search needs"):
            single.exact_scorer()


def bumped(array):
    out = array.copy()
    out.flat[0] = np.nextafter(out.flat[0], 9.0)
    return out


def bump(forged, name):
    forged.arrays[name] = bumped(forged.arrays[name])


def forge(folder, change):
    """Change the head, with a checksum that fits."""
    path = folder / HEAD
    forged = Forged(path.read_bytes())
    change(forged)
    path.write_bytes(forged.seal())


class ForgedShard(Forged):
    """The arrays of a shard, which has no state."""

    def __init__(self, content):
        from tests.persistence.sealed import TYPES, split

        header, data = split(content)
        self.strings = header.pop("__metadata__")
        self.key, self.tree = "unused", None
        self.arrays = {
            name: np.frombuffer(
                data[slice(*entry["data_offsets"])], TYPES[entry["dtype"]]
            ).reshape(entry["shape"])
            for name, entry in header.items()
        }


def forge_shard(folder, change, shard=None):
    """Change the arrays of the first shard, with checksums that fit in all files."""
    path = folder / (shard or sorted(folder.glob("shard-*"))[0]).name
    forged = ForgedShard(path.read_bytes())
    change(forged.arrays)
    content = forged.seal()
    path.write_bytes(content)
    checksum = ForgedShard(content).strings["dualqml.sha256"]

    def name_checksum(head):
        head.state["shards"]["dict"][path.name] = checksum

    forge(folder, name_checksum)


@pytest.fixture
def saved(models, tmp_path):
    """The folder of a model of a recogniser."""
    models["Recognizer"].save(tmp_path / "saved")
    return tmp_path / "saved"


def assert_refused(folder):
    """By a clear error, and with little memory."""
    with pytest.raises(ModelFileError) as caught:
        ShardedModel.load(folder)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2000


class TestDamage:
    def test_every_region_of_every_file(self, saved):
        rng = np.random.default_rng(0)
        for path in saved.glob("*.safetensors"):
            content = path.read_bytes()
            edges = np.linspace(0, len(content), 40).astype(int)
            places = rng.integers(edges[:-1], edges[1:])
            for place in [*places, *range(8), len(content) - 1]:
                damaged = bytearray(content)
                damaged[place] ^= 1 << int(rng.integers(8))
                path.write_bytes(damaged)
                with pytest.raises(ModelFileError):
                    ShardedModel.load(saved)
            path.write_bytes(content)
        ShardedModel.load(saved)

    def test_files_that_are_too_short(self, saved):
        for path in saved.glob("*.safetensors"):
            content = path.read_bytes()
            for length in (0, 7, 100, len(content) // 2, len(content) - 1):
                path.write_bytes(content[:length])
                for verify in (True, False):
                    with pytest.raises(ModelFileError):
                        ShardedModel.load(saved, verify=verify)
            path.write_bytes(content)

    @pytest.mark.parametrize("verify", [True, False])
    def test_a_shard_of_another_model(self, saved, tmp_path, verify):
        fitted("Recognizer", scale=-1.0).save(tmp_path / "other")
        mine, other = (
            sorted(folder.glob("shard-*"))[1] for folder in (saved, tmp_path / "other")
        )
        mine.write_bytes(other.read_bytes())
        with pytest.raises(ModelFileError, match="not the shard that the model had"):
            ShardedModel.load(saved, verify=verify)

    def test_shards_in_another_order(self, saved):
        one, other = sorted(saved.glob("shard-*"))[1:3]
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
        assert_refused(saved)

    @pytest.mark.parametrize("verify", [True, False])
    def test_a_missing_file(self, saved, verify):
        for path in (sorted(saved.glob("shard-*"))[2], saved / HEAD):
            path.unlink()
            with pytest.raises(ModelFileError, match=path.name):
                ShardedModel.load(saved, verify=verify)

    def test_no_folder(self, tmp_path):
        with pytest.raises(ModelFileError, match="nowhere"):
            ShardedModel.load(tmp_path / "nowhere")

    def test_another_file_as_head(self, saved):
        shutil.copy(sorted(saved.glob("shard-*"))[0], saved / HEAD)
        with pytest.raises(ModelFileError, match="not that of a sharded model"):
            ShardedModel.load(saved)

    def test_a_newer_format(self, saved):
        forge(saved, lambda f: f.strings.update({"dualqml.sharded_model": "2"}))
        with pytest.raises(ModelFileError, match="has format '2'"):
            ShardedModel.load(saved)

    def test_a_damaged_shard_is_not_spread(self, saved, tmp_path):
        loaded = ShardedModel.load(saved)
        path = sorted(saved.glob("shard-*"))[1]
        content = bytearray(path.read_bytes())
        content[-5] ^= 4
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match="is damaged"):
            loaded.save(tmp_path / "other")
        with pytest.raises(ModelFileError, match="is damaged"):
            loaded.save(saved)
        assert not (tmp_path / "other" / HEAD).exists()


NAN = {"float": "nan"}
LONG = "x" * 1_000_000
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m"
#: In the place of any field of the head.
WRONG = {
    "none": None,
    "true": True,
    "zero": 0,
    "minus": -1,
    "large": 2**63,
    "real": 2.5,
    "nan": NAN,
    "text": "x",
    "escapes": ESCAPES,
    "long": LONG,
    "list": [],
    "numbers": [1.0] * 1000,
    "tuple": {"tuple": [1, 2]},
    "dict": {"dict": {}},
    "self": {"dict": {"self": 1}},
    "array": {"array": {"tensor": "counts"}},
    "text of numbers": {"array": {"tensor": "places", "as": "text"}},
    "missing array": {"array": {"tensor": "nowhere"}},
    "scalar": {"scalar": {"dtype": "float32", "value": 1.0}},
    "object": {
        "object": {"class": "NearestSample", "parameters": {}, "attributes": {}}
    },
    "another estimator": {
        "object": {"class": "DualQMLClassifierCV", "parameters": {}, "attributes": {}}
    },
    "function": {"object": {"class": "os.system", "parameters": {}, "attributes": {}}},
    "deep": json.loads("[" * 60 + "]" * 60),
}
#: In the place of any array.
CHANGES = {
    "nan": lambda a: np.full(a.shape, np.nan) if a.dtype.kind == "f" else a - 1,
    "infinite": lambda a: np.full(a.shape, np.inf) if a.dtype.kind == "f" else a + 1,
    "first nan": lambda a: with_first(a, np.nan if a.dtype.kind == "f" else -1),
    "large": lambda a: with_first(a, 1e308 if a.dtype.kind == "f" else 2**31 - 1),
    "zero": lambda a: np.zeros_like(a),
    "negative": lambda a: (
        -1 - a if a.dtype.kind == "i" else np.negative(a, dtype=float)
    ),
    "wrapping": lambda a: a + np.int64(2**62) if a.dtype == np.int64 else a[:-1],
    "single": lambda a: a.astype(np.float32 if a.dtype.kind == "f" else np.int32),
    "unsigned": lambda a: a.astype(np.uint64),
    "bytes": lambda a: a.astype(np.uint8),
    "booleans": lambda a: a.astype(bool),
    "turned": lambda a: np.ascontiguousarray(a.T) if a.ndim == 2 else a[::-1],
    "shorter": lambda a: a[:-1],
    "longer": lambda a: np.concatenate([a, a[:1]]),
    "empty": lambda a: a[:0],
    "number": lambda a: np.zeros((), a.dtype),
    "no columns": lambda a: a[..., :0],
    "column": lambda a: a.reshape(-1, 1),
    "three": lambda a: a.reshape(1, 1, -1),
}
#: Changes that give another valid model, or reports that predictions do not use.
REPORTS = {"multipliers", "gap", "violation", "rounding_limited", "n_iter", "energies"}


def with_first(array, value):
    out = array.copy()
    with np.errstate(all="ignore"):
        out.flat[:1] = np.array(value).astype(out.dtype)
    return out


def is_same(new, old):
    """Whether nothing was changed, or only the shape of nothing."""
    if new.dtype != old.dtype or new.size != old.size:
        return False
    return not old.size or (new.shape == old.shape and bool((new == old).all()))


def set_at(path, value):
    def change(forged):
        *inside, last = path
        found = forged.tree["dict"]
        for key in inside:
            found = found[key]
        found[last] = copy.deepcopy(value)

    return change


def fields_of(forged):
    """The paths and the values of all fields of a head."""
    for name, field in forged.tree["dict"].items():
        yield (name,), field
        inside = field.get("dict") if isinstance(field, dict) else None
        for key, value in (inside or {}).items():
            yield (name, "dict", key), value


class TestForgedHeads:
    @pytest.fixture(params=["Recognizer", "DualQMLWCV", "cosine", "DualQML"])
    def folder(self, request, models, tmp_path):
        models[request.param].save(tmp_path / "saved")
        return tmp_path / "saved"

    def test_nothing_changed(self, folder):
        """Else the other tests would prove nothing."""
        forge(folder, lambda f: None)
        forge_shard(folder, lambda a: None)
        ShardedModel.load(folder).transform(X)

    def test_every_field(self, folder):
        content = (folder / HEAD).read_bytes()
        loaded = []
        for path, old in list(fields_of(Forged(content))):
            for name, value in WRONG.items():
                if value == old and type(value) is type(old):
                    continue
                (folder / HEAD).write_bytes(content)
                forge(folder, set_at(path, value))
                if self.is_refused(folder):
                    continue
                # What is not refused is a model with other numbers.
                loaded.append((path[-1], name))
                model = ShardedModel.load(folder)
                assert model.transform(X).shape == (len(X), 40)
                model.describe()
        assert {name for name, _ in loaded} <= {
            *("lam", "n_searched", "mean", "scale", "offset", "slope", "spread"),
            *("cosine_weight", "cosine_mean", "cosine_spread", "search"),
            *("best_score_", "best_params_", "best_width_", "best_descriptor_"),
            *("best_background_weight_", "best_rho_"),
            # They are the same.
            *("counts", "class_scale"),
        }

    @staticmethod
    def is_refused(folder):
        message = None
        try:
            ShardedModel.load(folder)
        except ModelFileError as error:
            message = str(error)
        if message is not None:
            assert message.isprintable()
            assert len(message) < 2000
        return message is not None

    def test_every_field_is_needed(self, folder):
        content = (folder / HEAD).read_bytes()
        for (*inside, last), _ in list(fields_of(Forged(content))):

            def drop(forged, inside=inside, last=last):
                found = forged.tree["dict"]
                for key in inside:
                    found = found[key]
                del found[last]

            (folder / HEAD).write_bytes(content)
            forge(folder, drop)
            assert_refused(folder)

    def test_every_array(self, folder):
        content = (folder / HEAD).read_bytes()
        kept = []
        for array in list(Forged(content).arrays):
            for name, change in CHANGES.items():
                forged = Forged(content)
                old = forged.arrays[array]
                forged.arrays[array] = change(old)
                if is_same(forged.arrays[array], old):
                    continue
                (folder / HEAD).write_bytes(forged.seal())
                if not self.is_refused(folder):
                    kept.append((array, name))
                    ShardedModel.load(folder).describe()
        # Other finite numbers are another model.
        real = ("chosen.mean", "chosen.coefficients", "class_scale")
        for array, name in kept:
            report = array.startswith(("search.", "profiles."))
            assert array in real or report, (array, name)
            assert report or name in ("zero", "negative", "large", "turned"), array


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_at(("shards", "dict"), {"../x": "0"}), "not a file of a shard|all shards"),
        (set_at(("counts",), {"array": {"tensor": "places"}}), "counts"),
        (set_at(("places",), {"array": {"tensor": "counts"}}), "places"),
        (set_at(("n_features",), 1 << 40), "do not fit the features"),
        (set_at(("n_samples",), 1 << 50), "counts"),
        (set_at(("estimator", "object", "class"), "DualQML"), "parameter"),
        (set_at(("estimator", "object", "parameters", "lam"), -1.0), "lam"),
        (set_at(("estimator", "object", "parameters", "kernel"), "rbf"), "Gaussian"),
        (set_at(("estimator", "object", "parameters", "n_jobs"), 10**6), "n_jobs"),
        (set_at(("estimator", "object", "parameters", "rule"), "cosine"), "rule"),
        (
            set_at(
                ("estimator", "object", "parameters", "image_shape"), {"tuple": [1, 8]}
            ),
            "vectors",
        ),
        (set_at(("estimator", "object", "attributes", "qml_"), 1), "qml_ is not"),
        (set_at(("search", "dict"), {"best_x": 1}), "not known"),
        (set_at(("chosen", "dict", "rule"), "cosine"), "rule"),
        (set_at(("chosen", "dict", "rule"), None), "rule"),
        (set_at(("scale", "dict", "slope"), -1.0), "positive"),
        (set_at(("scale", "dict", "spread"), 0.0), "positive"),
        (set_at(("class_scale",), None), "class_scale"),
        (set_at(("scale",), None), "of another model"),
        (lambda f: f.arrays.update(more=np.zeros(3)), "not used"),
        (lambda f: f.strings.update({"dualqml.state": "[" * 10_000}), "levels"),
    ],
)
def test_wrong_values_of_a_head(saved, change, message):
    forged = Forged((saved / HEAD).read_bytes())
    change(forged)
    state = forged.strings["dualqml.state"]
    content = forged.seal()
    if state.startswith("[["):
        forged.strings["dualqml.state"] = state
        forged.tree = None
        content = seal_as_it_is(forged)
    (saved / HEAD).write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        ShardedModel.load(saved)


def seal_as_it_is(forged):
    """With a state that is not JSON."""
    forged.key = "unused"
    return forged.seal()


@pytest.mark.parametrize(
    "name",
    [
        *("../shard-000000.safetensors", "/etc/passwd", "..", ".", "", "a\0b"),
        *("shard-000000.safetensors/..", "..\\x", ESCAPES, LONG, "\ud800"),
        *(HEAD, "shard-1.safetensors", "shard-000000.safetensors\n"),
    ],
)
def test_names_of_shards_stay_in_the_folder(saved, name):
    outside = saved.parent / "shard-000000.safetensors"
    first = sorted(saved.glob("shard-*"))[0]
    shutil.copy(first, outside)

    def rename(forged):
        shards = forged.state["shards"]["dict"]
        items = list(shards.items())
        forged.state["shards"]["dict"] = dict([(name, items[0][1]), *items[1:]])

    forge(saved, rename)
    with pytest.raises(ModelFileError, match=r"not a file of a shard|surrog"):
        ShardedModel.load(saved)


class TestForgedShards:
    @pytest.fixture(params=["Recognizer", "max", "DualQML"])
    def folder(self, request, models, tmp_path):
        models[request.param].save(tmp_path / "saved")
        return tmp_path / "saved"

    def test_every_array(self, folder):
        path = sorted(folder.glob("shard-*"))[0]
        head, content = (folder / HEAD).read_bytes(), path.read_bytes()
        kept = []
        for array, old in ForgedShard(content).arrays.items():
            for name, change in CHANGES.items():
                new = change(old)
                if is_same(new, old):
                    continue
                (folder / HEAD).write_bytes(head)
                path.write_bytes(content)
                forge_shard(folder, lambda a, k=array, v=new: a.update({k: v}))
                if TestForgedHeads.is_refused(folder):
                    continue
                model = ShardedModel.load(folder)
                kept.append((array, name))
                with np.errstate(all="ignore"):
                    model.transform(X)
                model.describe()
                model.solution()
        for array, name in kept:
            if (array, name) == ("numbers", "turned"):
                continue
            other = array in ("components", "mean_responses", "means")
            assert array in REPORTS or other, (array, name)
            # Numbers that are not finite are found, and numbers of other types.
            assert array in REPORTS or name in ("zero", "negative", "large", "turned")

    def test_every_array_is_needed(self, folder):
        path = sorted(folder.glob("shard-*"))[0]
        head, content = (folder / HEAD).read_bytes(), path.read_bytes()
        for array in ForgedShard(content).arrays:
            (folder / HEAD).write_bytes(head)
            path.write_bytes(content)
            forge_shard(folder, lambda a, k=array: a.pop(k))
            assert_refused(folder)

    @pytest.mark.parametrize(
        "change",
        [
            # Each has the right number of samples and factors.
            lambda a: a.update(numbers=np.full_like(a["numbers"], a["numbers"][0])),
            lambda a: a.update(numbers=with_first(a["numbers"], 2**40)),
            lambda a: a.update(labels=a["labels"][::-1].copy()),
            lambda a: a.update(counts=a["counts"][::-1].copy()),
            lambda a: a.update(ranks=swapped(a["ranks"])),
            lambda a: a.update(more=a["ranks"]),
            lambda a: a.clear(),
        ],
    )
    def test_numbers_that_do_not_fit(self, folder, change):
        forge_shard(folder, change)
        assert_refused(folder)

    def test_numbers_are_checked_when_they_are_used(self, models, tmp_path):
        models["max"].save(tmp_path)
        forge_shard(tmp_path, lambda a: a.update(numbers=0 * a["numbers"]))
        model = ShardedModel.load(tmp_path, verify=False)
        with pytest.raises(ModelFileError, match="each sample"):
            model.to_local()


def swapped(ranks):
    """The same sum, with a negative rank."""
    out = ranks.copy()
    out[:2] = [-1, out[0] + out[1] + 1]
    return out


class TestSaving:
    def test_a_model_is_replaced(self, models, tmp_path):
        models["max"].save(tmp_path)
        fitted("max", part_bytes=1 << 30).save(tmp_path)
        assert ShardedModel.load(tmp_path).n_shards == 1
        assert len(names_in(tmp_path)) == 2
        models["Recognizer"].save(tmp_path)
        assert_equal(ShardedModel.load(tmp_path), models["Recognizer"])
        assert len(names_in(tmp_path)) == 1 + models["Recognizer"].n_shards

    def test_into_its_own_folder(self, saved, monkeypatch):
        before = {p.name: p.read_bytes() for p in saved.glob("*.saf*")}
        loaded = ShardedModel.load(saved)
        loaded.save(saved)
        monkeypatch.chdir(saved)
        loaded.save(".")
        assert {p.name: p.read_bytes() for p in saved.glob("*.saf*")} == before
        loaded.save(saved.parent / "other")

    def test_into_its_own_scratch_folder(self, tmp_path):
        model = fit_blocks(
            KINDS["max"], X, NAMES, scratch=tmp_path / "s", part_bytes=2_500
        )
        before = model.transform(X)
        model.save(tmp_path / "s")
        model.save(tmp_path / "s")
        model.save(tmp_path / "other")
        for folder in ("s", "other"):
            found = ShardedModel.load(tmp_path / folder).transform(X)
            assert found.tobytes() == before.tobytes()
        assert len(names_in(tmp_path / "s")) == 1 + model.n_shards

    def test_a_model_that_was_replaced_cannot_be_saved(self, saved, models, tmp_path):
        loaded = ShardedModel.load(saved)
        models["max"].save(saved)
        # It can still be used: its files are open.
        assert_equal(loaded, models["Recognizer"])
        for folder in (saved, tmp_path / "other"):
            with pytest.raises(ModelFileError, match="any more"):
                loaded.save(folder)
        assert_equal(ShardedModel.load(saved), models["max"])

    def test_leftovers_are_removed(self, models, tmp_path):
        models["max"].save(tmp_path)
        wanted = names_in(tmp_path)
        for name in (
            ".shard-000000-0123456789abcdef.safetensors.00ff.tmp",
            f".{HEAD}.00ff.tmp",
            "shard-000007-0123456789abcdef.safetensors",
        ):
            (tmp_path / name).write_bytes(b"a face")
        (tmp_path / "notes.txt").write_text("mine")
        models["max"].save(tmp_path)
        assert names_in(tmp_path) == wanted | {"notes.txt"}

    def test_a_file_in_the_place_of_the_folder(self, model, tmp_path):
        (tmp_path / "file").write_text("x")
        with pytest.raises(FileError, match="cannot be made"):
            model.save(tmp_path / "file")

    @pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write"
    )
    def test_a_read_only_folder(self, models, saved):
        saved.chmod(0o500)
        try:
            with pytest.raises(FileError):
                models["max"].save(saved)
        finally:
            saved.chmod(0o700)
        assert_equal(ShardedModel.load(saved), models["Recognizer"])

    @pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
    def test_no_room(self, models, saved, tmp_path):
        fitted("max", part_bytes=1 << 30).save(tmp_path / "new")
        program = textwrap.dedent(
            """
            import resource, sys
            from dualqml.exceptions import FileError
            from dualqml.scale import ShardedModel
            model = ShardedModel.load("new")
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
            try:
                model.save("saved")
            except FileError as error:
                sys.exit(str(error))
            """
        )
        found = run_program(program, tmp_path)
        assert found.returncode == 1
        assert "cannot be written: File too large" in found.stderr
        before = models["Recognizer"]
        assert_equal(ShardedModel.load(saved), before)
        before.save(saved)
        assert len(names_in(saved)) == 1 + before.n_shards

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes of POSIX")
    def test_a_process_is_killed_while_it_saves(self, models, tmp_path):
        """At several moments; the old or the new model is left, whole."""
        names = ("max", "Recognizer", "DualQMLWCV")
        for name in names:
            models[name].save(tmp_path / name)
        folder = tmp_path / "folder"
        models["max"].save(folder)
        program = textwrap.dedent(
            """
            import itertools, os, random, select, signal, sys
            from dualqml import _files
            from dualqml.scale import ShardedModel
            models = [ShardedModel.load(name) for name in sys.argv[1:]]
            reader, writer = os.pipe()
            fsync = _files.os.fsync

            def say_and_sync(file):
                os.write(writer, b".")
                fsync(file)

            chance = random.Random(0)
            for _ in range(15):
                child = os.fork()
                if child == 0:
                    _files.os.fsync = say_and_sync
                    for model in itertools.cycle(models):
                        model.save("folder")
                # Two moments for each file: before it is there, and after.
                for _ in range(chance.randint(1, 40)):
                    os.read(reader, 1)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                while select.select([reader], [], [], 0)[0]:
                    os.read(reader, 100)
                print(ShardedModel.load("folder").describe())
            """
        )
        found = run_program(program, tmp_path, *names)
        assert not found.stderr
        seen = found.stdout.splitlines()
        assert len(seen) == 15
        assert set(seen) == {models[name].describe() for name in names}
        models["max"].save(folder)
        assert len(names_in(folder)) == 1 + models["max"].n_shards

    def test_a_model_is_replaced_while_it_is_loaded(
        self, models, tmp_path, monkeypatch
    ):
        models["max"].save(tmp_path)
        read = []

        def read_head(*arguments, **options):
            found = model_head.read_head(*arguments, **options)
            if not read:
                models["DualQMLW"].save(tmp_path)
            read.append(found)
            return found

        monkeypatch.setattr("dualqml.scale.sharded_model.read_head", read_head)
        assert_equal(ShardedModel.load(tmp_path), models["DualQMLW"])
        assert len(read) == 2

    def test_models_load_while_others_are_saved(self, models, tmp_path):
        wanted = [models[name].transform(X).tobytes() for name in ("max", "DualQMLW")]
        models["max"].save(tmp_path)
        stop, faults = threading.Event(), []

        def save():
            try:
                while not stop.is_set():
                    for name in ("DualQMLW", "max"):
                        models[name].save(tmp_path)
            except Exception as error:
                faults.append(error)

        thread = threading.Thread(target=save)
        thread.start()
        try:
            for number in range(40):
                model = ShardedModel.load(tmp_path, verify=bool(number % 2))
                assert model.transform(X).tobytes() in wanted
        finally:
            stop.set()
            thread.join()
        assert not faults


def run_program(program, folder, *arguments):
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_model_is_read_when_it_is_used(tmp_path):
    """One of 18 MB, of which only two classes are used."""
    rows = np.random.default_rng(0).normal(size=(9_000, 256))
    fit_blocks(DualQML(1.0), rows, np.arange(9_000)).save(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.glob("shard-*"))
    assert size > 18_000_000
    program = textwrap.dedent(
        """
        from pathlib import Path
        import numpy as np
        from dualqml.scale import ShardedModel
        def mapped():
            # Bytes of the shards that are in this process.
            total, inside = 0, False
            for line in Path("/proc/self/smaps").read_text().splitlines():
                if "-" in line.split()[0] and ":" not in line.split()[0]:
                    inside = "shard-" in line
                elif inside and line.startswith("Rss:"):
                    total += 1024 * int(line.split()[1])
            return total
        model = ShardedModel.load(".", verify=False)
        model.transform(np.ones((1, 256)), classes=[5, 7000])
        print(mapped())
        model.transform(np.ones((1, 256)))
        print(mapped())
        """
    )
    found = run_program(program, tmp_path)
    assert not found.stderr
    lazy, whole = map(int, found.stdout.split())
    # The system may read some megabytes around each place.
    assert lazy < size / 2
    assert whole > 0.9 * size


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
def test_forged_sizes_take_no_memory(saved):
    """Numbers of rows that are not there."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for change in (
        set_at(("n_features",), 1 << 45),
        set_at(("n_samples",), 1 << 52),
        set_at(("chosen", "dict", "n_searched"), 1 << 53),
    ):
        content = (saved / HEAD).read_bytes()
        forge(saved, change)
        assert_refused(saved)
        (saved / HEAD).write_bytes(content)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
