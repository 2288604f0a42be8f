# SPDX-License-Identifier: BSD-3-Clause
"""A contract for import-linter: private modules stay in their room."""

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output


class PrivateModulesContract(Contract):
    """No room imports a private module of another room.

    A room is a folder below ``dualqml``, and a module is private if its name begins
    with an underscore. Private modules beside the rooms are for all of them.
    """

    type_name = "private_modules"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look at every module that imports a private one."""
        broken = [
            f"{importer} imports {module}"
            for module in sorted(graph.modules)
            for importer in sorted(graph.find_modules_that_directly_import(module))
            if _is_private(module) and _room(importer) != _room(module)
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name the imports that break it."""
        for line in check.metadata["broken"]:
            output.print_error(line)


def _is_private(module: str) -> bool:
    parts = module.split(".")
    return len(parts) > 2 and any(part.startswith("_") for part in parts[2:])


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])
