# SPDX-License-Identifier: BSD-3-Clause
"""The paper's experiments and what it printed of them."""

from dualqml.experiments.paper import (
    ODDITIES,
    PaperResult,
    PaperTime,
    paper_cell,
    paper_results,
    paper_times,
)

__all__ = [
    "ODDITIES",
    "PaperResult",
    "PaperTime",
    "paper_cell",
    "paper_results",
    "paper_times",
]
