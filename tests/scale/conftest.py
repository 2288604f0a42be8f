import pytest


@pytest.fixture(scope="module")
def client():
    """A cluster of two worker processes on this machine, for all tests of a module.

    Tests may kill workers: the cluster starts others. There is no limit of memory.
    """
    pytest.importorskip("distributed")
    from dualqml.scale import connected

    with connected("local", workers=2, memory_limit=0) as connection:
        yield connection
