# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.table5``: training and test times, as the paper's Table 5.

AR with two training images of each person, one BLAS thread, everything in one run. If
the database is not there, synthetic data of the same shape replace it. The paper's
seconds are from MATLAB on one core of a Xeon E5620. DualQML is timed with a fixed
lambda, because the paper's other times do not include a choice of parameters.
"""

from threadpoolctl import threadpool_limits

from benchmarks.timing import interleaved_medians, markdown_table
from dualqml import DualQMLClassifier
from dualqml.extractors.methods import METHODS, make_method
from tests.datasets import training_set

#: Seconds to train, and to test one image, as printed in the paper.
PAPER = {
    "APCA": (65.83, 0.008),
    "LDA": (83.54, 0.008),
    "K-LDA": (522.21, 3.501),
    "ER-KDA": (1031.53, 3.802),
    "DualQML": (5201.27, 1.431),
}


def pipeline(name: str) -> object:
    """The method with fixed parameters."""
    if name.startswith("DualQML"):
        model = make_method(name)
        rule = model["classify"].rule
        return model.set_params(classify=DualQMLClassifier(10.0, rule=rule))
    return make_method(name)


def main() -> None:
    """Print the table."""
    data = training_set("ar", 2)
    with threadpool_limits(1, user_api="blas"):
        models = {name: pipeline(name) for name in METHODS}
        fits = interleaved_medians(
            {n: lambda m=m: m.fit(data.X, data.y) for n, m in models.items()}, 5
        )
        tests = interleaved_medians(
            {n: lambda m=m: m.predict(data.X_test) for n, m in models.items()}, 5
        )
    rows = []
    for name in METHODS:
        paper_fit, paper_test = PAPER.get(name, (None, None))
        rows.append(
            [
                name,
                f"{fits[name]:.3f}",
                f"{fits[name] / fits['LDA']:.2f}",
                f"{1e3 * tests[name] / len(data.y_test):.4f}",
                "-" if paper_fit is None else f"{paper_fit:.2f}",
                "-" if paper_fit is None else f"{paper_fit / PAPER['LDA'][0]:.2f}",
                "-" if paper_test is None else f"{1e3 * paper_test:.0f}",
            ]
        )
    header = ["method", "train s", "/ LDA", "test ms an image"]
    header += ["paper: train s", "paper: / LDA", "paper: test ms an image"]
    print(
        f"{data.name}, {data.X.shape[0]} training and {len(data.y_test)} test images\n"
    )
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
