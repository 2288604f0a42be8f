# SPDX-License-Identifier: BSD-3-Clause
"""The names of the methods, for those who need no more than the names.

The methods themselves are in ``dualqml.extractors.methods``, which needs scikit-learn.
"""

#: The keys of `dualqml.extractors.methods.METHODS`.
METHOD_NAMES = (
    "APCA",
    "LDA",
    "MFA",
    "CFA-OTF",
    "CFA-OEOTF",
    "GTDA",
    "ERE",
    "K-LDA",
    "MLE",
    "ER-KDA",
    "DualQML (max)",
    "DualQML",
    "DualQML-W",
)

#: The keys of `dualqml.extractors.methods.VECTOR_METHODS`.
VECTOR_METHOD_NAMES = (
    "NN-cosine",
    "Mean-cosine",
    "Linear-SVM",
    "Logistic",
    "LDA-shrunk",
)
