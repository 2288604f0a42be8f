# SPDX-License-Identifier: BSD-3-Clause
"""``python -m dualqml`` is the ``dualqml`` command."""

import sys

from dualqml.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
