"""Clients that enrol, erase and identify at the same time, and check every answer.

Each client has people of its own, so that it knows what every answer must be.
"""

import base64
import http.client
import io
import json
import threading
import time
from collections import Counter

import numpy as np
from PIL import Image

#: Numbers of an embedding, and the noise of its samples.
WIDTH, NOISE = 128, 0.5


def person_vectors(person, count=3):
    """Samples of a person, who is a number."""
    rng = np.random.default_rng(person)
    centre = rng.normal(size=WIDTH)
    own = centre + NOISE * rng.normal(size=(count, WIDTH))
    return own.astype(np.float32).tolist()


def person_pictures(person, count=3):
    """Pictures of a person, who is a number, as base64."""
    rng = np.random.default_rng(person)
    coarse = rng.integers(40, 216, size=(8, 8), dtype=np.uint8)
    pixels = np.kron(coarse, np.ones((4, 4)))
    found = []
    for _ in range(count):
        noisy = np.clip(pixels + 20 * rng.normal(size=pixels.shape), 0, 255)
        stream = io.BytesIO()
        Image.fromarray(noisy.astype(np.uint8)).save(stream, "PNG")
        found.append(base64.b64encode(stream.getvalue()).decode())
    return found


def person_samples(inputs, person, count=3):
    """Samples of a person as requests have them."""
    if inputs == "crops":
        return [{"image": text} for text in person_pictures(person, count)]
    return [{"vector": row} for row in person_vectors(person, count)]


class Connection:
    """A connection that stays open, without the overhead of a larger client."""

    def __init__(self, url, key):
        self._host, self._port = url.removeprefix("http://").split(":")
        self._headers = {"x-api-key": key, "content-type": "application/json"}
        self._open = None

    def send(self, method, path, body=None):
        """Status and answer; raises OSError if the service is gone."""
        if self._open is None:
            self._open = http.client.HTTPConnection(
                self._host, int(self._port), timeout=60
            )
        content = None if body is None else json.dumps(body)
        try:
            self._open.request(method, path, content, self._headers)
            answer = self._open.getresponse()
            return answer.status, json.loads(answer.read())
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error

    def close(self):
        if self._open is not None:
            self._open.close()


class Client(threading.Thread):
    """A client: nine of ten requests identify, the others enrol or erase.

    Attributes
    ----------
    enrolled : dict of int to str
        People whose enrolment was confirmed, and who were not erased since.
    unsure : set of int
        People whose enrolment or erasure was sent and not confirmed.
    erased : dict of int to str
        People whose erasure was confirmed, with the ids that they had.
    seconds : dict of str to list of float
        Times of confirmed requests.
    faults : list of str
        Answers that were wrong.
    """

    def __init__(self, number, url, key, gallery, stop, probes, inputs):
        super().__init__(daemon=True)
        self._inputs = inputs
        self._rng = np.random.default_rng(number)
        self._connection = Connection(url, key)
        self._gallery, self._stop_event, self._probes = gallery, stop, probes
        self._next = 1_000_000 * (number + 1)
        self.enrolled, self.erased, self.unsure = {}, {}, set()
        self.seconds = {"identify": [], "enrol": [], "erase": []}
        self.statuses, self.faults = Counter(), []

    def run(self):
        try:
            while not self._stop_event.is_set():
                choice = self._rng.random()
                if choice < 0.9:
                    self._identify()
                elif choice < 0.95 or not self.enrolled:
                    self._enrol()
                else:
                    self._erase()
        except OSError:
            # The service was killed; what was not confirmed is unsure.
            pass
        finally:
            self._connection.close()

    def _send(self, kind, *request):
        begin = time.perf_counter()
        status, answer = self._connection.send(*request)
        self.seconds[kind].append(time.perf_counter() - begin)
        self.statuses[kind, status] += 1
        if status >= 400:
            self.faults.append(f"{kind}: {status} {answer.get('detail')}")
        return answer if status < 400 else None

    def _identify(self):
        # Half of the searches are for people who were erased, if there are any.
        gone = list(self.erased)
        if gone and self._rng.random() < 0.5:
            person = int(self._rng.choice(gone))
            probe = person_samples(self._inputs, person)[0]
        else:
            probe = self._probes[int(self._rng.integers(len(self._probes)))]
        known = set(self.erased.values())
        answer = self._send("identify", "POST", f"{self._gallery}/identify", probe)
        if answer is None:
            return
        found = {c["subject_id"] for c in answer["faces"][0]["candidates"]}
        if found & known:
            self.faults.append("an erased person is still known")

    def _enrol(self):
        person, self._next = self._next, self._next + 1
        self.unsure.add(person)
        samples = [
            {"subject": f"person {person}"} | sample
            for sample in person_samples(self._inputs, person)
        ]
        answer = self._send(
            "enrol", "POST", f"{self._gallery}/samples", {"samples": samples}
        )
        if answer is not None:
            self.enrolled[person] = answer["outcomes"][0]["subject_id"]
            self.unsure.discard(person)

    def _erase(self):
        person = int(self._rng.choice(list(self.enrolled)))
        subject = self.enrolled.pop(person)
        self.unsure.add(person)
        answer = self._send("erase", "DELETE", f"{self._gallery}/subjects/{subject}")
        if answer is not None:
            self.erased[person] = subject
            self.unsure.discard(person)


def new_gallery(connection, n_people, inputs="vectors"):
    """A gallery with some people and a model; its path."""
    body = {"name": "Load", "inputs": inputs}
    status, answer = connection.send("POST", "/v1/galleries", body)
    assert status == 201, answer
    gallery = f"/v1/galleries/{answer['id']}"
    step = 500 if inputs == "vectors" else 60
    for begin in range(0, n_people, step):
        samples = [
            {"subject": f"person {person}"} | sample
            for person in range(begin, min(begin + step, n_people))
            for sample in person_samples(inputs, person)
        ]
        place = f"{gallery}/samples"
        status, answer = connection.send("POST", place, {"samples": samples})
        assert status == 201, answer
    while not connection.send("GET", gallery)[1]["model"]["current"]:
        time.sleep(0.05)
    return gallery


def run_clients(
    url, key, gallery, *, n_clients, seconds, n_people, seed=0, inputs="vectors"
):
    """Run clients for some time; the clients, after they have ended."""
    stop = threading.Event()
    known = range(min(n_people, 200))
    probes = [person_samples(inputs, person, 4)[3] for person in known]
    clients = [
        Client(seed + number, url, key, gallery, stop, probes, inputs)
        for number in range(n_clients)
    ]
    for client in clients:
        client.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(client.is_alive() for client in clients):
        time.sleep(0.01)
    stop.set()
    for client in clients:
        client.join()
    return clients


def people_of(connection, gallery):
    """Number of samples of each subject by name."""
    found, after = {}, ""
    while True:
        status, answer = connection.send("GET", f"{gallery}/subjects?limit=500{after}")
        assert status == 200, answer
        found |= {one["name"]: one["n_samples"] for one in answer["items"]}
        if answer["next"] is None:
            return found
        after = f"&after={answer['next']}"


def check_people(connection, gallery, n_people, clients):
    """What is wrong with the gallery: lost, half-made or kept people."""
    found, faults = people_of(connection, gallery), []
    sure = {f"person {p}" for p in range(n_people)}
    sure |= {f"person {p}" for client in clients for p in client.enrolled}
    unsure = {f"person {p}" for client in clients for p in client.unsure}
    faults += [f"{name} is lost" for name in sorted(sure - set(found))]
    faults += [f"{name} is still there" for name in sorted(set(found) - sure - unsure)]
    faults += [f"{name} has {n} samples" for name, n in found.items() if n != 3]
    return faults
