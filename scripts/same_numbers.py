# SPDX-License-Identifier: BSD-3-Clause
"""Whether a change that must not change any number has changed one.

Keep the digests before the change, compare them after it, on the same machine::

    python -m scripts.same_numbers keep before.json
    python -m scripts.same_numbers compare before.json

A digest covers every bit of an array: features, certificates, decisions, scores and
tables. ``DUALQML_DATA`` names the folder of the research databases; what is not there
is left out.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dualqml
from dualqml import data, experiments, extractors, recognition
from dualqml.experiments.tables import error_table, to_markdown
from dualqml.extractors.methods import METHODS, make_method
from tests.datasets import has_database, load_samples

#: Sets, the training samples of each class and the shape of the images.
SETS = (
    ("orl", 4, (32, 32)),
    ("ar", 2, (32, 32)),
    ("ar", 8, (32, 32)),
    ("feret", 3, (32, 32)),
    ("lfw_embeddings", 3, None),
    ("lfw_sface", 2, None),
)


def split(labels: NDArray[np.int64], m: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The first m of a random order of each class for training, others for test."""
    rng = np.random.default_rng(3)
    train, test = [], []
    for label in np.unique(labels):
        own = rng.permutation(np.flatnonzero(labels == label))
        if own.size > m:
            train.append(own[:m])
            test.append(own[m : m + 4])
    return np.concatenate(train), np.concatenate(test)


def digest(value: Any) -> str:
    """A short digest of an array, or of what prints as text."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        content = f"{value.dtype}{value.shape}".encode()
        content += np.ascontiguousarray(value).tobytes()
    else:
        content = repr(value).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def numbers() -> Iterator[tuple[str, Any]]:
    """All that is compared, by name."""
    for name, m, shape in SETS:
        if not has_database(name):
            continue
        X, y = load_samples(name)
        train, test = split(y, m)
        yield from of_estimators(f"{name}-{m}", X, y, train, test, shape)
    yield from of_images()
    yield from of_recognition()
    yield from of_experiments()


def of_estimators(
    title: str, X: Any, y: Any, train: Any, test: Any, shape: Any
) -> Iterator[tuple[str, Any]]:
    """Features, certificates and decisions of all methods."""
    qml = extractors.DualQML().fit(X[train], y[train])
    for attribute in ("duality_gap_", "violation_", "dual_coef_", "ranks_", "status_"):
        yield f"{title} DualQML {attribute}", getattr(qml, attribute)
    yield f"{title} DualQML features", qml.transform(X[test])
    chosen = extractors.DualQMLClassifierCV(random_state=0).fit(X[train], y[train])
    yield f"{title} DualQMLClassifierCV", chosen.decision_function(X[test])
    kinds: list[dict[str, Any]] = [{"image_shape": shape}]
    if title == "orl-4":
        kinds += [{"descriptor": "local", "image_shape": shape}, {"kernel": "linear"}]
    for kind in kinds:
        model = extractors.DualQMLWCV(random_state=0, **kind).fit(X[train], y[train])
        yield f"{title} DualQMLWCV {kind}", model.decision_function(X[test])
        yield f"{title} DualQMLWCV {kind} features", model.transform(X[test])
        yield f"{title} DualQMLWCV {kind} gaps", model.qml_.duality_gap_
        found = (model.best_rho_, model.best_lam_, model.best_rule_, model.best_width_)
        yield f"{title} DualQMLWCV {kind} choice", found
    if title not in ("orl-4", "ar-2", "lfw_embeddings-3"):
        return
    for method in METHODS:
        if shape is None and method == "GTDA":
            continue
        for tune in (False, True) if title == "orl-4" else (False,):
            made = make_method(method, image_shape=shape, tune=tune)
            made.fit(X[train], y[train])
            scores = made.decision_function(X[test])
            yield f"{title} {method} tune={tune}", scores


def of_images() -> Iterator[tuple[str, Any]]:
    """What is done to images."""
    faces = data.load_orl(size=(112, 92))
    images = faces.images[:20]
    yield "images orl", faces.images
    yield "images resize", data.resize(images, (32, 32))
    yield "images resize float", data.resize(images / 3.0, (31, 44))
    yield "images crop", data.crop(images, (3, 5, 63, 55))
    colours = np.stack([images, images[::-1], images // 2], axis=-1)
    yield "images grey", data.to_grey(colours)
    aligned = data.align_eyes(images[0], (45, 30), (46.5, 66), size=(32, 32))
    yield "images align", aligned
    rows = images.reshape(20, -1)
    shape = images.shape[1:]
    for method in ("equalise", "tan-triggs"):
        step = data.PhotometricNormaliser(method=method, image_shape=shape)
        yield f"images {method}", step.fit_transform(rows)
    describe = extractors.LocalDescriptors(image_shape=shape)
    yield "images descriptors", describe.fit_transform(rows)
    steps = data.Resizer(size=(20, 16), image_shape=shape)
    yield "images resizer", steps.fit_transform(rows)


def of_recognition() -> Iterator[tuple[str, Any]]:
    """Scores, thresholds and decisions of recognisers."""
    faces = data.load_orl()
    known = np.flatnonzero(faces.codes < 30)
    for method, side in (("DualQML-W", 32), ("DualQML", 32), ("LDA", 24)):
        people = recognition.Recognizer(method=method, size=(side, side))
        enrolled = known[known % 10 < 5]
        subjects = [str(faces.labels[i]) for i in enrolled]
        people.enroll_many(faces.images[enrolled], subjects)
        people.calibrate(fpir=0.05)
        asked = faces.images[5::10]
        yield f"recognition {method} scores", people.scores(asked)
        yield f"recognition {method} threshold", people.threshold
        decisions = [a.decision for a in people.identify_many(asked)]
        yield f"recognition {method} decisions", decisions
        people.remove(subjects[0])
        yield f"recognition {method} after removal", people.scores(asked)
        with tempfile.TemporaryDirectory() as folder:
            people.save(Path(folder) / "model")
            again = recognition.Recognizer.load(Path(folder) / "model")
            yield f"recognition {method} loaded", again.scores(asked)


def of_experiments() -> Iterator[tuple[str, Any]]:
    """The table of a small experiment."""
    faces = data.load_orl()
    experiment = experiments.Experiment(
        {"orl": faces}, sizes=(2, 4), methods=("LDA", "DualQML"), repeats=2
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.jsonl"
        with experiments.ResultStore(file) as store:
            experiments.run_experiment(experiment, store)
        results = experiments.Results(experiments.read_results(file))
        yield "experiments", to_markdown(error_table(results))


def main() -> int:
    """Keep or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("keep", "compare"))
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    print(f"dualqml of {Path(dualqml.__file__).parent}")
    warnings.simplefilter("ignore")
    found = {}
    for name, value in numbers():
        found[name] = digest(value)
        print(found[name], name, flush=True)
    if options.action == "keep":
        options.file.write_text(json.dumps(found, indent=1))
        return 0
    kept = json.loads(options.file.read_text())
    changed = sorted(
        name for name in kept.keys() | found.keys() if kept.get(name) != found.get(name)
    )
    for name in changed:
        print(f"changed: {name}")
    print(f"{len(found)} digests, {len(changed)} changed")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
