# SPDX-License-Identifier: BSD-3-Clause
"""The paper's experiments: protocol, runner, results, and what the paper printed."""

from dualqml._lazy import lazy_names

TYPE_CHECKING = False  # as in the module typing, which takes long to import
if TYPE_CHECKING:
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "dualqml.exceptions": "RunError StoreError",
        "dualqml.experiments.paper": (
            "ODDITIES PaperResult PaperTime paper_cell paper_results paper_times"
        ),
        "dualqml.experiments.protocol": "Experiment Protocol Unit",
        "dualqml.experiments.results": "Comparison Result Results Setting",
        "dualqml.experiments.runner": "Progress Summary run_experiment",
        "dualqml.experiments.store": "ResultStore read_results",
    },
)
