# SPDX-License-Identifier: BSD-3-Clause
"""Threads of our own beside those of the BLAS library."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    # Looking for the loaded libraries takes milliseconds: once is enough.
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Cap BLAS to one thread: many small matrices gain nothing from more.

    It also makes results independent of the number of our own threads.
    """
    context: AbstractContextManager[Any] = _controller().limit(
        limits=1, user_api="blas"
    )
    return context
