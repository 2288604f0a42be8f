import os
import signal

import hypothesis
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from tests.datasets import has_database

# A shell that starts the tests in the background makes them, and every process that
# they start, deaf to Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The same examples in every run: a test must not fail by chance after a change that it
# has nothing to do with. HYPOTHESIS_PROFILE=explore looks for new ones.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", derandomize=False, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(autouse=True, scope="session")
def _one_blas_thread_each():
    # Tests run in parallel processes; more BLAS threads would only collide.
    with threadpool_limits(1, user_api="blas"):
        yield


def pytest_runtest_setup(item):
    marker = item.get_closest_marker("realdata")
    if marker:
        missing = [name for name in marker.args if not has_database(name)]
        if missing:
            pytest.skip(
                f"research database {', '.join(missing)} not available; set "
                "DUALQML_DATA to the folder that has it"
            )


@pytest.fixture
def rng():
    return np.random.default_rng(0)
