# SPDX-License-Identifier: BSD-3-Clause
"""The ``dualqml`` command, one file a command."""
