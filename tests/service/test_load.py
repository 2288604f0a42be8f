"""Many clients at once, and a service that is killed while they work."""

import threading
import time

import numpy as np
import pytest

from dualqml.service.transfer import model_of_export
from tests.service.load import Connection, check_people, new_gallery, run_clients
from tests.service.process import ServiceProcess

N_PEOPLE = 60
SECONDS = 4.0


@pytest.fixture
def service(tmp_path):
    with ServiceProcess(tmp_path, "--quiet") as running:
        yield running


def test_no_answer_is_wrong_and_no_write_is_lost(service):
    connection = Connection(service.url, service.key)
    gallery = new_gallery(connection, N_PEOPLE)
    clients = run_clients(
        service.url,
        service.key,
        gallery,
        n_clients=8,
        seconds=SECONDS,
        n_people=N_PEOPLE,
    )
    assert [fault for client in clients for fault in client.faults] == []
    assert sum(len(client.erased) for client in clients) > 0
    assert check_people(connection, gallery, N_PEOPLE, clients) == []
    connection.close()


def test_a_killed_service_has_all_that_it_confirmed(service):
    rng = np.random.default_rng(0)
    connection = Connection(service.url, service.key)
    gallery = new_gallery(connection, N_PEOPLE)
    connection.close()
    ended = []
    # ``python -m benchmarks.service kills`` does it twenty times.
    for kill in range(2):
        killer_waits = 0.5 + 1.5 * rng.random()
        clients = _run_until_killed(service, gallery, killer_waits, seed=100 * kill)
        ended += clients
        service.start()
        assert [f for client in clients for f in client.faults] == []
        connection = Connection(service.url, service.key)
        assert check_people(connection, gallery, N_PEOPLE, ended) == []
        connection.close()
        with service.client() as client:
            _wait_until_quiet(client, gallery)
            content = client.get(f"{gallery}/export").content
            wanted = client.get(gallery).json()["model"]["model_id"]
        assert model_of_export(content).model_id == wanted


def _run_until_killed(service, gallery, seconds, *, seed):
    threading.Timer(seconds, service.kill).start()
    return run_clients(
        service.url,
        service.key,
        gallery,
        n_clients=4,
        seconds=60.0,
        n_people=N_PEOPLE,
        seed=seed,
    )


def _wait_until_quiet(client, gallery):
    """Wait until no erasure is pending, and the threshold was measured again."""
    while True:
        found = client.get(gallery).json()
        if found["model"]["current"] and not found["calibration"]["stale"]:
            return
        time.sleep(0.05)
