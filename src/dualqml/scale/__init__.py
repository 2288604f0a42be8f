# SPDX-License-Identifier: BSD-3-Clause
"""Work that is too large for one process: fits in blocks, clusters, search."""

from dualqml._lazy import lazy_names

TYPE_CHECKING = False  # as in the module typing, which takes long to import
if TYPE_CHECKING:
    from dualqml.exceptions import BlockError, ClusterError
    from dualqml.scale.blocks import row_blocks
    from dualqml.scale.cluster import connected, prepare_process, worker_task
    from dualqml.scale.experiments import run_divisions, run_units
    from dualqml.scale.fitting import fit_blocks, fit_recognizer
    from dualqml.scale.sharded_model import ShardedModel
    from dualqml.scale.shortlist import Recall, Shortlist

__all__ = [
    "BlockError",
    "ClusterError",
    "Recall",
    "ShardedModel",
    "Shortlist",
    "connected",
    "fit_blocks",
    "fit_recognizer",
    "prepare_process",
    "row_blocks",
    "run_divisions",
    "run_units",
    "worker_task",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "dualqml.exceptions": "BlockError ClusterError",
        "dualqml.scale.cluster": "connected prepare_process worker_task",
        "dualqml.scale.experiments": "run_divisions run_units",
        "dualqml.scale.fitting": "fit_blocks fit_recognizer",
        "dualqml.scale.blocks": "row_blocks",
        "dualqml.scale.sharded_model": "ShardedModel",
        "dualqml.scale.shortlist": "Recall Shortlist",
    },
)
