# SPDX-License-Identifier: BSD-3-Clause
"""The ``dualqml`` command: one module for each group of commands.

``main`` has the table of all commands. A group imports other rooms inside the
functions that need them, so that help and typing errors are answered at once.
"""
