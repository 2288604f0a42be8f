"""Broken images, bombs, wrong types and slow bodies are refused, and nothing else."""

import numpy as np
import pytest

from tests.service.malformed import MemoryWatch, SlowSender, send_all
from tests.service.process import ServiceProcess

#: ``python -m benchmarks.service uploads`` sends 2,000.
N_REQUESTS = 400
MOST_MEMORY = 10**9


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uploads")
    with ServiceProcess(folder, "--body-seconds", "3", "--quiet") as running:
        yield running


@pytest.fixture(scope="module")
def galleries(service):
    """The paths of a gallery of each kind, of which that of vectors has people."""
    found = {}
    with service.client() as client:
        for inputs in ("photographs", "crops", "vectors"):
            body = {"name": inputs, "inputs": inputs}
            made = client.post("/v1/galleries", json=body)
            found[inputs] = f"/v1/galleries/{made.json()['id']}"
        people = np.random.default_rng(0).normal(size=(6, 16))
        samples = [
            {"subject": f"P{number}", "vector": (row + shift).tolist()}
            for number, row in enumerate(people)
            for shift in (0.0, 0.1)
        ]
        place = f"{found['vectors']}/samples?wait=model"
        client.post(place, json={"samples": samples}).raise_for_status()
    return found


def test_malformed_uploads_are_refused_with_a_code(service, galleries):
    paths = [
        f"{galleries['photographs']}/identify",
        f"{galleries['photographs']}/detect",
        f"{galleries['photographs']}/samples",
        f"{galleries['crops']}/samples",
        f"{galleries['vectors']}/identify",
        f"{galleries['vectors']}/verify",
    ]
    with MemoryWatch(service.process.pid) as memory:
        statuses, faults = send_all(service.url, service.key, paths, 0, N_REQUESTS)
    assert faults == []
    assert sum(statuses.values()) == N_REQUESTS
    kinds = {kind for kind, _ in statuses}
    assert {"damaged jpeg", "damaged webp", "bomb", "file", "body"} <= kinds
    assert 0 < memory.most < MOST_MEMORY
    with service.client() as client:
        assert client.get("/readyz").status_code == 200
        # No form or picture has made a person.
        for place in (galleries["photographs"], galleries["vectors"]):
            names = client.get(f"{place}/subjects").json()["items"]
            assert all(one["name"].startswith("P") for one in names)


def test_slow_bodies_are_cut_off_and_hold_nobody_up(service, galleries):
    place = f"{galleries['photographs']}/identify"
    slow = [SlowSender(service.url, service.key, place) for _ in range(20)]
    for sender in slow:
        sender.start()
    vector = np.random.default_rng(0).normal(size=(6, 16))[2].tolist()
    with service.client() as client:
        while any(sender.is_alive() for sender in slow):
            answer = client.post(
                f"{galleries['vectors']}/identify", json={"vector": vector}
            )
            assert answer.json()["faces"][0]["subject"]["name"] == "P2"
    assert all(b" 408 " in sender.answer for sender in slow)
    assert all(b'"too-slow"' in sender.answer for sender in slow)


def test_a_form_with_too_much_is_refused(service, galleries):
    with service.client() as client:
        place = f"{galleries['photographs']}/samples"
        many = [("files", (f"P/{n}.jpg", b"x")) for n in range(201)]
        assert client.post(place, files=many).json()["code"] == "bad-request"
        large = {"file": ("a.jpg", bytes(16_000_001))}
        answer = client.post(f"{galleries['photographs']}/identify", files=large)
        assert answer.json()["code"] == "too-large"
        huge = {"file": ("a.jpg", bytes(64_000_001))}
        answer = client.post(f"{galleries['photographs']}/identify", files=huge)
        assert answer.status_code == 413
