# SPDX-License-Identifier: BSD-3-Clause
"""The paper's experiments: protocol, runner, results, and what the paper printed."""

from dualqml.exceptions import RunError, StoreError
from dualqml.experiments.paper import (
    ODDITIES,
    PaperResult,
    PaperTime,
    paper_cell,
    paper_results,
    paper_times,
)
from dualqml.experiments.protocol import Experiment, Protocol, Unit
from dualqml.experiments.results import Comparison, Result, Results, Setting
from dualqml.experiments.runner import Progress, Summary, run_experiment
from dualqml.experiments.store import ResultStore, read_results

__all__ = [
    "ODDITIES",
    "Comparison",
    "Experiment",
    "PaperResult",
    "PaperTime",
    "Progress",
    "Protocol",
    "Result",
    "ResultStore",
    "Results",
    "RunError",
    "Setting",
    "StoreError",
    "Summary",
    "Unit",
    "paper_cell",
    "paper_results",
    "paper_times",
    "read_results",
    "run_experiment",
]
