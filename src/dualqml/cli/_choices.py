# SPDX-License-Identifier: BSD-3-Clause
"""Values of options whose own modules take long to import.

Help and typing errors are answered without them. Tests hold the values against the
types in those modules.
"""

#: Values of `dualqml.images.photometry.Photometry`.
PHOTOMETRIES = (
    "unit-norm",
    "mean-removed",
    "z-score",
    "equalise",
    "tan-triggs",
    "none",
)
#: Values of `dualqml.experiments.protocol.ProtocolKind`.
PROTOCOLS = ("random", "visits", "fixed")
