# SPDX-License-Identifier: BSD-3-Clause
"""
In a scikit-learn pipeline, with a grid search and pandas
=========================================================

All estimators follow the conventions of scikit-learn. So pipelines, grid searches and
data frames work as usual. Here we search for the best number of principal components
and the best lambda together.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer

from dualqml import DualQMLClassifier
from dualqml.data import load_orl

# %%
# The data as a data frame: one row for each image, one named column for each pixel.

faces = load_orl()
pixels = [f"pixel_{row:02}_{column:02}" for row in range(32) for column in range(32)]
table = pd.DataFrame(faces.rows, columns=pixels)
person = pd.Series(faces.labels, name="person")
X_train, X_test, y_train, y_test = train_test_split(
    table, person, train_size=160, stratify=person, random_state=0
)
print(table.iloc[:3, :3])

# %%
# The pipeline subtracts the mean and keeps some principal components, scales every row
# to unit norm, and learns the matrices. The grid has parameters of two steps.

pipeline = Pipeline(
    [
        ("components", PCA(random_state=0)),
        ("normalise", Normalizer()),
        ("qml", DualQMLClassifier()),
    ]
)
grid = {
    "components__n_components": [10, 20, 40, 80],
    "qml__lam": [0.1, 1.0, 10.0, 100.0],
}
folds = StratifiedKFold(3, shuffle=True, random_state=0)
search = GridSearchCV(pipeline, grid, cv=folds).fit(X_train, y_train)
print(search.best_params_)
print(f"{100 * (1 - search.score(X_test, y_test)):.1f} % errors on new images")

# %%
# The results of the search are a table, which pandas turns into a grid.

results = pd.DataFrame(search.cv_results_)
errors = 100 * (
    1
    - results.pivot_table(
        "mean_test_score", "param_components__n_components", "param_qml__lam"
    )
)
print(errors.round(1))

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
picture = ax.imshow(errors, cmap="Blues_r", norm="log")
for (row, column), value in np.ndenumerate(errors.to_numpy()):
    is_dark = value < 1.5 * errors.to_numpy().min()
    ax.text(
        column,
        row,
        f"{value:.1f}",
        ha="center",
        va="center",
        color="white" if is_dark else "black",
    )
ax.set_xticks(range(errors.shape[1]), [f"{lam:g}" for lam in errors.columns])
ax.set_yticks(range(errors.shape[0]), errors.index)
ax.set(xlabel="lambda", ylabel="principal components")
ax.set_title("errors in the cross-validation, %", fontsize=10)

# %%
# The search over lambda alone is built in, and much faster than ``GridSearchCV``: in
# each fold all values share one eigendecomposition. See
# :class:`~dualqml.DualQMLClassifierCV`. And :class:`~dualqml.DualQMLWCV` has nothing to
# set at all.
