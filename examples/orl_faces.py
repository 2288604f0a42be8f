# SPDX-License-Identifier: BSD-3-Clause
"""Recognise the ORL faces: error, time and certificate of DualQML.

40 people, 10 images of 32 x 32 pixels each; m images of each person at random
train, the others test, repeated over random splits. All parameters are chosen
by cross-validation on the training images alone.
"""

import argparse
import time

import numpy as np
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from dualqml import DualQML, DualQMLClassifierCV, DualQMLWCV
from dualqml.data import load_orl


def with_preprocessing(estimator):
    """Mean-removed rows of unit norm in front of an estimator."""
    return make_pipeline(StandardScaler(with_std=False), Normalizer(), estimator)


METHODS = {
    "LDA (scikit-learn's default)": with_preprocessing(LinearDiscriminantAnalysis()),
    "LDA (shrinkage 0.1)": with_preprocessing(
        LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.1)
    ),
    "DualQML (max)": with_preprocessing(DualQMLClassifierCV(rule="max")),
    "DualQML": with_preprocessing(DualQMLClassifierCV()),
    "DualQML-W": DualQMLWCV(image_shape=(32, 32)),
    "DualQML-W, local descriptors": DualQMLWCV(
        image_shape=(32, 32), descriptor="local"
    ),
}


def main():
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--per-person", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--splits", type=int, default=5)
    options = parser.parse_args()

    faces = load_orl()
    X, y = faces.rows, faces.labels
    print(f"{faces.name} faces: {X.shape[0]} images of {np.unique(y).size} people.")
    print(faces.citation)
    for m in options.per_person:
        print(f"\nm = {m} training images each, {options.splits} random splits")
        print("(the time to fit DualQML includes its choice of parameters)")
        print(f"{'method':30} {'error %':>13}  {'fit s':>7}  {'test ms/image':>13}")
        for name, estimator in METHODS.items():
            errors, fit_times, test_times = [], [], []
            for seed in range(options.splits):
                X_train, X_test, y_train, y_test = train_test_split(
                    X, y, train_size=40 * m, stratify=y, random_state=seed
                )
                model = clone(estimator)
                start = time.perf_counter()
                model.fit(X_train, y_train)
                fitted = time.perf_counter()
                errors.append(100.0 * (1.0 - model.score(X_test, y_test)))
                test_times.append(1e3 * (time.perf_counter() - fitted) / len(y_test))
                fit_times.append(fitted - start)
            print(
                f"{name:30} {np.mean(errors):6.2f} ± {np.std(errors):4.2f}  "
                f"{np.median(fit_times):7.3f}  {np.median(test_times):13.3f}"
            )

    m = options.per_person[-1]
    X_train, _, y_train, _ = train_test_split(
        X, y, train_size=40 * m, stratify=y, random_state=0
    )
    model = with_preprocessing(DualQML(lam=10.0))
    start = time.perf_counter()
    model.fit(X_train, y_train)
    seconds = time.perf_counter() - start
    qml = model[-1]
    print(
        f"\nCertificate at m = {m}, lambda = {qml.lam_:g}, fitted in {seconds:.3f} s:"
    )
    print(f"  classes solved          {np.sum(qml.status_ == 'optimal')} of 40")
    print(f"  largest duality gap     {qml.duality_gap_.max():.1e}")
    print(f"  largest violation       {qml.violation_.max():.1e}")
    print(f"  ranks of the matrices   {qml.ranks_.min()} to {qml.ranks_.max()}")
    size, full = qml.components_.nbytes / 1e6, 8e-6 * 40 * X.shape[1] ** 2
    print(f"  size of the model       {size:.2f} MB; full matrices: {full:.0f} MB")


if __name__ == "__main__":
    main()
