"""The OpenAPI document tells the truth: schemathesis calls every operation.

Ids of addresses and bodies are mostly those of things that exist. Whatever an operation
removes or may use up is made anew for each request.
"""

import base64
import io
from contextlib import suppress

import numpy as np
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from PIL import Image
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dualqml.service.app import create_app
from dualqml.service.settings import Settings
from tests.service.live import running

# Not checked, because they contradict the design:
# - negative_data_rejection: unknown fields of a form are ignored, as clients of
#   CompreFace send some, and ids are any text;
# - positive_data_acceptance: a schema cannot tell that a vector must be as long as
#   those that are enrolled, that a file must be an image, or that a name is taken;
# - ignored_auth: test_isolation.py sends every operation without a key;
# - unsupported_method: some addresses of the page and the API share a path;
# - use_after_free, ensure_resource_availability: they follow links between operations,
#   and each request here has things of its own.
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
#: Requests with valid and with invalid data to each operation.
N_VALID, N_INVALID = 10, 6
#: As long as the vectors of the document's examples.
WIDTH = 3
DOCUMENT = create_app(Settings("unused")).openapi()
OPERATIONS = [
    f"{method.upper()} {path}"
    for path, methods in DOCUMENT["paths"].items()
    for method in methods
]


def picture(person, sample):
    rng = np.random.default_rng([person, sample])
    pixels = 40 * np.random.default_rng(person).random((16, 16)) + rng.random((16, 16))
    stream = io.BytesIO()
    Image.fromarray((5 * pixels).astype(np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def vector(person, sample):
    rng = np.random.default_rng([person, sample])
    centre = np.random.default_rng(person).normal(size=WIDTH)
    return (centre + 0.1 * rng.normal(size=WIDTH)).tolist()


class Things:
    """A gallery with people, a stranger, a job and a receipt, and their ids."""

    def __init__(self, client, inputs, n_people=6):
        self._client, self._inputs = client, inputs
        body = {"name": "Office", "inputs": inputs, "size": [16, 16]}
        self.gallery = self._made("/v1/galleries", body | {"keep_strangers": True})
        self.place = f"/v1/galleries/{self.gallery}"
        samples = [
            {"subject": f"P{person}"} | self.sample(person, sample)
            for person in range(n_people)
            for sample in range(2)
        ]
        answer = client.post(f"{self.place}/samples", json={"samples": samples})
        outcomes = answer.json()["outcomes"]
        gone = client.delete(f"{self.place}/samples/{outcomes[-1]['sample_id']}")
        stranger = client.post(f"{self.place}/strangers", json=self.sample(99, 0))
        job = client.post(f"{self.place}/health").json()["id"]
        key = {"label": "door", "scopes": ["admin"], "gallery_id": self.gallery}
        made = client.post("/v1/keys", json=key).json()
        self.key = made["key"]
        subject = outcomes[0]["subject_id"]
        self.ids = {
            "gallery_id": self.gallery,
            "subject_id": subject,
            "sample_id": outcomes[0]["sample_id"],
            "image_id": outcomes[0]["sample_id"],
            "erasure_id": gone.json()["id"],
            "stranger_id": stranger.json()["stranger_ids"][0],
            "job_id": job,
            "key_id": made["id"],
            "probe_id": "31-1",
            "subject": subject,
            "not_subject": subject,
        }

    def _made(self, path, body):
        answer = self._client.post(path, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def sample(self, person, sample):
        if self._inputs == "vectors":
            return {"vector": vector(person, sample)}
        return {"image": base64.b64encode(picture(person, sample)).decode()}


class World:
    """The service, things that stay, and things to remove."""

    def __init__(self, service, client):
        self._client = client
        self.url, self.key = service.url, service.key
        self._stay = {kind: Things(client, kind) for kind in ("vectors", "crops")}
        self.export = client.get(f"{self._stay['crops'].place}/export").content

    def things(self, label, inputs):
        method, path = label.split()
        uses_up = method in ("DELETE", "PATCH", "PUT") or path.endswith("/name")
        if uses_up and "{" in path:
            return Things(self._client, inputs, n_people=1)
        return self._stay[inputs]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    limits = {
        "requests_per_second": 1e6,
        "max_galleries": 10**6,
        "max_waiting_seconds": 20.0,
    }
    folder = str(tmp_path_factory.mktemp("service"))
    with running(Settings(folder, **limits)) as service, service.client() as client:
        yield World(service, client)


@pytest.fixture(scope="module")
def session():
    with requests.Session() as found:
        yield found


SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
#: Which gallery, how much of a request is real, and a number for everything else.
CHOICES = st.tuples(
    st.sampled_from(["vectors", "crops"]),
    st.sampled_from(["all", "all", "all", "ids", "none"]),
    st.integers(0, 5),
)


def fill(case, things, world, real, number):
    """Put real ids, samples and files in the place of generated ones."""
    if real == "none":
        return
    ids = things.ids | ({"subject": "P0"} if case.path.startswith("/api") else {})
    for name in case.path_parameters or {}:
        case.path_parameters[name] = ids[name]
    if not isinstance(case.body, dict):
        return
    person = things.sample(number, 2)
    content = world.export if case.path == "/v1/imports" else picture(number, 2)
    is_form = case.media_type == "multipart/form-data"
    samples = {
        "image": person.get("image"),
        "vector": person.get("vector"),
        "images": [person.get("image")] * 2,
        "vectors": [person.get("vector")] * 2,
        "samples": [{"subject": f"P{number}"} | person],
        "files": [content],
    }
    for name in ("file", "source_image", "target_image"):
        samples[name] = content if is_form else base64.b64encode(content).decode()
    for name in set(case.body) & set(ids):
        case.body[name] = ids[name]
    if real == "all":
        for name in set(case.body) & set(samples):
            case.body[name] = samples[name]
        wanted = "vector" if "vector" in person else "image"
        for name in {"image", "vector", "images", "vectors"} & set(case.body):
            if not name.startswith(wanted):
                del case.body[name]
        if case.path == "/v1/session":
            case.body["key"] = world.key


@pytest.mark.parametrize("mode", ["valid", "invalid"])
@pytest.mark.parametrize("label", OPERATIONS)
def test_answers_are_as_documented(world, session, label, mode):
    method, path = label.split()
    operation = SCHEMA[path][method]
    valid = mode == "valid"
    kind = (
        schemathesis.GenerationMode.POSITIVE
        if valid
        else schemathesis.GenerationMode.NEGATIVE
    )

    @seed(0)
    # Shrinking would repeat requests in another state of the service.
    @settings(
        max_examples=N_VALID if valid else N_INVALID,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(kind), CHOICES)
    def call(case, choice):
        inputs, real, number = choice
        things = world.things(label, inputs)
        fill(case, things, world, real, number)
        key = things.key if path.startswith("/api/") else world.key
        case.headers.pop("x-api-key", None)
        case.headers.pop("authorization", None)
        answer = case.call(
            base_url=world.url, session=session, headers={"x-api-key": key}
        )
        statuses.append(answer.status_code)
        case.validate_response(answer, checks=CHECKS)

    statuses = []
    # Nothing of an operation without parameters can be invalid.
    with suppress(Unsatisfiable):
        call()
    print(label, mode, statuses)
