"""Two galleries, two keys: nobody sees, counts, times or changes the other's people.

All operations are taken from the OpenAPI document, so that a new one is tested too.
Each is called with ids of the other gallery and with ids that nobody has, and nothing
may tell the two apart.
"""

import re
import threading
import time
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import httpx
import numpy as np
import pytest
from sqlalchemy import event, select

from dualqml.service.app import create_app
from dualqml.service.middleware import Guard
from dualqml.service.security import COOKIE, CSRF_HEADER, RateLimiter, Scope
from dualqml.service.settings import Settings
from dualqml.service.tables import audit, galleries, metadata, new_id
from tests.service.live import running
from tests.service.process import ServiceProcess

#: As long as the vectors of the document's examples.
WIDTH = 3
N_PEOPLE = 6
#: The largest request.
MOST_BYTES = 1_000_000
DOCUMENT = create_app(Settings("unused")).openapi()
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
WITH_IDS = [label for label in OPERATIONS if "{" in label]
#: Fields of bodies, and parameters of queries, that name something.
NAMING = ("subject", "subject_id", "not_subject", "gallery_id")
#: The demo's pictures are the same for everybody.
SHARED = {"probe_id": "31-1"}
#: What needs no key.
OPEN = {"GET /v1", "POST /v1/session"}
#: What a key for recognition alone may do. Everything else is forbidden to it.
MAY_IDENTIFY = {
    "GET /v1/galleries",
    "GET /v1/galleries/{gallery_id}",
    "POST /v1/galleries/{gallery_id}/identify",
    "POST /v1/galleries/{gallery_id}/verify",
    "POST /v1/galleries/{gallery_id}/detect",
    "GET /v1/galleries/{gallery_id}/calibrations",
    "GET /v1/galleries/{gallery_id}/calibrations/current",
    "GET /v1/galleries/{gallery_id}/demo-probes",
    "GET /v1/galleries/{gallery_id}/demo-probes/{probe_id}/image",
    "POST /v1/galleries/{gallery_id}/strangers",
    "DELETE /v1/session",
    "POST /api/v1/recognition/recognize",
    "POST /api/v1/recognition/embeddings/recognize",
    "POST /api/v1/recognition/faces/{image_id}/verify",
    "POST /api/v1/recognition/embeddings/faces/{image_id}/verify",
    "POST /api/v1/detection/detect",
    "POST /api/v1/verification/verify",
    "POST /api/v1/verification/embeddings/verify",
}
#: What a key for enrolment may not do.
FOR_ADMIN = {
    "GET /v1/keys",
    "POST /v1/keys",
    "DELETE /v1/keys/{key_id}",
    "GET /v1/audit",
    "GET /v1/audit/check",
    "POST /v1/demo",
    "POST /v1/galleries",
    "PATCH /v1/galleries/{gallery_id}",
    "DELETE /v1/galleries/{gallery_id}",
    "POST /v1/galleries/{gallery_id}/calibrations",
    "GET /v1/galleries/{gallery_id}/export",
    "POST /v1/imports",
}
#: What needs a key for all galleries.
FOR_ALL = {
    "GET /v1/audit/check",
    "POST /v1/demo",
    "POST /v1/galleries",
    "POST /v1/imports",
}
#: What has no success in a gallery of vectors: there are no pictures in it.
FOR_PICTURES = ("/image", "/img", "/detect", "/recognize", "/verify", "/faces")
#: What such a small gallery does not have.
NOT_YET = {
    "GET /v1/galleries/{gallery_id}/evaluation": "not-found",
    "POST /v1/galleries/{gallery_id}/calibrations": "no-threshold",
}


def vector(person, sample):
    rng = np.random.default_rng([person, sample])
    centre = np.random.default_rng(person).normal(size=WIDTH)
    return (centre + 0.05 * rng.normal(size=WIDTH)).tolist()


class Side:
    """A gallery with people, a stranger, a job and a receipt, and its keys."""

    def __init__(self, admin, letter, n_people=N_PEOPLE):
        self.admin, self.letter = admin, letter
        body = {"name": f"Gallery {letter}", "inputs": "vectors"}
        made = admin.post("/v1/galleries", json=body | {"keep_strangers": True})
        self.gallery = made.json()["id"]
        self.place = f"/v1/galleries/{self.gallery}"
        key = self.new_key("admin")
        self.key, self.key_id = key["key"], key["id"]
        self.names = [f"Person {letter}{number}" for number in range(n_people)]
        base = 100 * ord(letter)
        samples = [
            {"subject": name, "vector": vector(base + number, sample)}
            for number, name in enumerate(self.names)
            for sample in range(3)
        ]
        answer = admin.post(
            f"{self.place}/samples?wait=model",
            json={"samples": samples},
            headers={"Idempotency-Key": f"enrolment {letter}"},
        )
        outcomes = answer.json()["outcomes"]
        receipt = admin.delete(f"{self.place}/samples/{outcomes[-1]['sample_id']}")
        stranger = admin.post(
            f"{self.place}/strangers", json={"vector": vector(base + 50, 0)}
        )
        job = admin.post(f"{self.place}/health").json()["id"]
        subject, sample = outcomes[0]["subject_id"], outcomes[0]["sample_id"]
        self.ids = SHARED | {
            "gallery_id": self.gallery,
            "subject_id": subject,
            "sample_id": sample,
            "image_id": str(uuid.UUID(hex=sample)),
            "erasure_id": receipt.json()["id"],
            "stranger_id": stranger.json()["stranger_ids"][0],
            "job_id": job,
            "key_id": self.new_key("enrol")["id"],
            "subject": self.names[0],
        }

    def new_key(self, scope: Scope, **options):
        body = {"label": f"{scope} {self.letter}", "scopes": [scope]}
        body |= {"gallery_id": self.gallery} | options
        return self.admin.post("/v1/keys", json=body).json()

    def settle(self):
        """Wait until everything that happens by itself has happened."""
        end, before = time.monotonic() + 60.0, None
        while time.monotonic() < end:
            answer = self.admin.get(f"{self.place}/calibrations/current").json()
            jobs = self.admin.get(f"{self.place}/jobs").json()["items"]
            model = self.admin.get(self.place).json()["model"]
            busy = any(job["state"] in ("queued", "running") for job in jobs)
            state = None if busy or not model["current"] else (answer, model)
            # A threshold is measured again some time after the last change.
            if answer.get("curve") and state is not None and state == before:
                return
            before = state
            time.sleep(0.5)
        raise AssertionError("the gallery is busy all the time")


def unknown_ids():
    """Ids of nothing, which look like those of something."""
    made = {
        "gallery_id": new_id(),
        "subject_id": new_id(),
        "sample_id": new_id(),
        "image_id": str(uuid.uuid4()),
        "erasure_id": new_id(),
        "stranger_id": new_id(),
        "job_id": new_id(),
        "key_id": new_id(),
        "subject": "Person X0",
    }
    return SHARED | made


def resolved(schema):
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def example(schema):
    """A value that fits a schema."""
    schema = resolved(schema)
    if "examples" in schema:
        return schema["examples"][0]
    if "anyOf" in schema:
        return example(schema["anyOf"][0])
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        members = schema.get("properties", {})
        wanted = schema.get("required") or list(members)[:1]
        return {name: example(members[name]) for name in wanted}
    if schema["type"] == "array":
        if schema["items"] == {"type": "number"}:
            return [0.1, -0.2, 0.3]
        return [example(schema["items"])]
    return {"number": 0.1, "integer": 1, "boolean": True, "string": "Zoe"}[
        schema["type"]
    ]


def content_of(label):
    """The body of an operation: options of httpx, and the schema of JSON."""
    content = OPERATIONS[label].get("requestBody", {}).get("content", {})
    if "application/json" in content:
        plain = content["application/json"]
        body = plain.get("example") or example(plain["schema"])
        return {"json": body}, resolved(plain["schema"])
    if content:
        return {"files": {"file": b"content"}}, {}
    return {}, {}


def call(client, label, ids, key, **changes):
    """Call an operation with some ids in its address."""
    method, path = label.split()
    options = content_of(label)[0]
    if "subject" in options.get("json", {}) and path.startswith("/v1/"):
        options["json"] = options["json"] | {"subject": ids["subject_id"]}
    headers = {} if key is None else {"x-api-key": key}
    return client.request(
        method, path.format(**ids), headers=headers, **(options | changes)
    )


def told(answer, ids):
    """All that an answer tells, whatever the ids of the request were."""
    text = answer.text
    for value in set(ids.values()):
        text = text.replace(value, "ID")
    headers = {k: v for k, v in answer.headers.items() if k != "date"}
    return answer.status_code, text, headers


class World:
    """A service with two galleries, and a client without a key."""

    def __init__(self, service, client, admin):
        self.service, self.client, self.admin = service, client, admin
        self.own, self.other = Side(admin, "A"), Side(admin, "B")
        self.own.settle()
        self.other.settle()

    def rows_of(self, side):
        """Everything that the database has of a gallery."""
        with self.service.context.database.read() as connection:
            return {
                table.name: connection.execute(
                    select(table).where(
                        (table.c.id if table is galleries else table.c.gallery_id)
                        == side.gallery
                    )
                ).all()
                for table in metadata.sorted_tables
                if table is galleries or "gallery_id" in table.c
            }

    @contextmanager
    def statements(self):
        """The statements of requests, without those of the worker."""
        found = []

        def note(connection, cursor, statement, *rest):
            if threading.current_thread().name not in ("build", "jobs"):
                found.append(statement)

        engine = self.service.context.database.engine
        event.listen(engine, "before_cursor_execute", note)
        try:
            yield found
        finally:
            event.remove(engine, "before_cursor_execute", note)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    settings = Settings(
        str(tmp_path_factory.mktemp("service")),
        requests_per_second=1e6,
        max_body_bytes=MOST_BYTES,
        quiet_seconds=0.05,
        max_waiting_seconds=20.0,
    )
    with (
        running(settings) as service,
        httpx.Client(base_url=service.url, timeout=90) as client,
        service.client() as admin,
    ):
        yield World(service, client, admin)


@pytest.fixture
def unchanged(world):
    """Nothing of the other gallery may change during a test."""
    before = world.rows_of(world.other)
    assert len(before["samples"]) == 3 * N_PEOPLE - 1
    yield
    assert world.rows_of(world.other) == before


def foreign_names(label):
    """Which ids of an address are of the other gallery: all, or one of them."""
    names = set(re.findall(r"{(\w+)}", label)) - set(SHARED)
    return [names, *({name} for name in sorted(names) if len(names) > 1)]


def foreign(world, label):
    """Ids for an address: some of the other gallery; and the same with unknown ones."""
    own, other = world.own.ids, world.other.ids
    for names in foreign_names(label):
        real = own | {name: other[name] for name in names}
        unknown = unknown_ids()
        near = {name: other[name][:-1] + "%25" for name in names}
        yield (
            real,
            [own | {name: unknown[name] for name in names}, own | near],
        )


@pytest.mark.parametrize("label", WITH_IDS)
def test_ids_of_others_are_ids_of_nothing(world, unchanged, label):
    key = world.own.key
    for real, others in foreign(world, label):
        found = call(world.client, label, real, key)
        assert found.status_code == 404
        for ids in others:
            assert told(call(world.client, label, ids, key), ids) == told(found, real)


@pytest.mark.parametrize("scope", ["identify", "enrol"])
def test_lesser_keys_cannot_tell_them_apart_either(world, unchanged, scope):
    key = world.own.new_key(scope)["key"]
    for label in WITH_IDS:
        for real, (unknown, _) in foreign(world, label):
            found = call(world.client, label, real, key)
            assert found.status_code in (403, 404), label
            again = call(world.client, label, unknown, key)
            assert told(again, unknown) == told(found, real), label


@pytest.mark.parametrize("label", WITH_IDS)
def test_ids_of_others_take_the_same_work(world, label):
    own = world.own.ids
    headers = {"x-api-key": world.other.key}

    def work(choices):
        # What a service does by itself comes between at times.
        lists = []
        for ids in choices:
            # The other gallery is in use, so that the service knows it by heart.
            world.client.get(world.other.place, headers=headers)
            with world.statements() as found:
                call(world.client, label, own | ids, world.own.key)
            lists.append(found)
        return min(lists, key=len)

    for names in foreign_names(label):
        real = {name: world.other.ids[name] for name in names}
        # Each unknown id is new to the service.
        unknown = [{name: unknown_ids()[name] for name in names} for _ in range(3)]
        assert work([real] * 3) == work(unknown)


def body_with(label, name, value):
    """The body of an operation in which one field has a value; None without it."""
    options, schema = content_of(label)
    if name not in schema.get("properties", {}):
        return None
    rest = options["json"] if schema.get("required") or "vector" in str(schema) else {}
    return {"json": rest | {name: value}}


def test_ids_of_others_in_bodies_are_ids_of_nothing(world, unchanged):
    tested = set()
    for label in OPERATIONS:
        if label.split()[1].startswith("/api/"):
            # Their subjects are names.
            continue
        for name in NAMING:
            id_name = "gallery_id" if name == "gallery_id" else "subject_id"
            answers = []
            for ids in (world.other.ids, unknown_ids()):
                changes = body_with(label, name, ids[id_name])
                if changes is None:
                    continue
                method, path = label.split()
                headers = {"x-api-key": world.own.key}
                found = world.client.request(
                    method, path.format(**world.own.ids), headers=headers, **changes
                )
                assert found.status_code in (403, 404), found.text
                answers.append(told(found, ids))
                tested.add(label)
            assert answers[1:] == answers[:-1]
    assert tested == {
        "POST /v1/galleries/{gallery_id}/verify",
        "POST /v1/galleries/{gallery_id}/strangers",
        "POST /v1/galleries/{gallery_id}/strangers/{stranger_id}/name",
        "POST /v1/keys",
    }


def test_names_and_ids_of_others_in_queries_find_nothing(world, unchanged):
    headers = {"x-api-key": world.own.key}
    faces = "/api/v1/recognition/faces"
    for method, path, name, key in (
        ("GET", "/v1/audit", "gallery_id", "gallery_id"),
        ("GET", f"{world.own.place}/subjects", "q", "subject"),
        ("GET", faces, "subject", "subject"),
        ("DELETE", faces, "subject", "subject"),
    ):
        answers = [
            told(
                world.client.request(
                    method, path, params={name: ids[key]}, headers=headers
                ),
                ids,
            )
            for ids in (world.other.ids, unknown_ids())
        ]
        assert answers[0] == answers[1]
        assert answers[0][0] == 200
    for name in NAMING:
        known = [
            label
            for label, operation in OPERATIONS.items()
            if any(
                one["in"] == "query" and one["name"] == name
                for one in operation.get("parameters", [])
            )
        ]
        # A new one belongs into the list above.
        expected = {
            "gallery_id": ["GET /v1/audit"],
            "subject": [f"{m} {faces}" for m in ("POST", "GET", "DELETE")],
        }
        assert known == expected.get(name, [])


def answers_to(world, side):
    """What a key can read, by operation; an export notes itself in the audit."""
    return {
        label: call(world.client, label, side.ids, side.key)
        for label in OPERATIONS
        if label.startswith("GET ") and not label.endswith("/export")
    }


def test_no_list_names_anything_of_others(world):
    own, other = world.own, world.other
    secret = {value for name, value in other.ids.items() if name not in SHARED}
    secret |= {*other.names, other.key_id, "Gallery B", "admin B"}
    with world.service.context.database.read() as connection:
        for table in metadata.sorted_tables:
            if "gallery_id" in table.c and "id" in table.c:
                query = select(table.c.id).where(table.c.gallery_id == other.gallery)
                secret |= set(connection.execute(query).scalars())
    assert len(secret) > 30
    answers = answers_to(world, own)
    export = "GET /v1/galleries/{gallery_id}/export"
    answers[export] = call(world.client, export, own.ids, own.key)
    assert sum(answer.status_code == 200 for answer in answers.values()) > 15
    for label, answer in answers.items():
        found = [one for one in secret if one.encode() in answer.content]
        assert not found, (label, found)
    shown = answers["GET /v1/galleries"].json()
    assert shown["total"] == 1
    assert shown["items"][0]["n_samples"] == len(world.rows_of(own)["samples"])
    for label in ("GET /v1/keys", "GET /v1/audit"):
        items = answers[label].json()["items"]
        assert {one["gallery_id"] for one in items} == {own.gallery}


def test_nothing_changes_when_others_do_something(world):
    own, third = world.own, Side(world.admin, "C")
    third.settle()
    before = {label: told(a, {}) for label, a in answers_to(world, own).items()}
    headers = {"x-api-key": third.key}
    for method, path, body in (
        ("POST", "/subjects", {"name": "Zoe"}),
        ("POST", "/samples?wait=model", {"samples": [{"subject": "Zoe"}]}),
        ("PATCH", f"/subjects/{third.ids['subject_id']}", {"name": own.names[0]}),
        ("POST", "/identify", {"vector": vector(7777, 0)}),
        ("POST", "/calibrations", {"threshold": 1.5}),
        ("POST", "/evaluation", None),
        ("PATCH", "", {"name": "Another"}),
        ("DELETE", f"/subjects/{third.ids['subject_id']}", None),
        ("DELETE", "", None),
    ):
        if body == {"samples": [{"subject": "Zoe"}]}:
            body["samples"][0]["vector"] = vector(7, 0)
        answer = world.client.request(
            method, third.place + path, json=body, headers=headers
        )
        assert answer.status_code < 300, answer.text
    after = {label: told(a, {}) for label, a in answers_to(world, own).items()}
    assert after == before


def test_numbers_of_the_audit_count_own_entries_only(world):
    side = world.own
    for number in range(2):
        body = {"name": f"Counted {number}"}
        headers = {"x-api-key": side.key}
        world.client.post(f"{side.place}/subjects", json=body, headers=headers)
        other = {"x-api-key": world.other.key}
        world.client.get(f"{world.other.place}/export", headers=other)
    numbers, after = [], None
    while True:
        params = {"limit": 7} | ({} if after is None else {"after": after})
        part = world.client.get("/v1/audit", params=params, headers=headers).json()
        numbers += [one["seq"] for one in part["items"]]
        after = part["next"]
        if after is None:
            break
    assert numbers == list(range(len(numbers), 0, -1))
    with world.service.context.database.read() as connection:
        query = select(audit.c.seq).where(audit.c.gallery_id == side.gallery)
        assert len(connection.execute(query).all()) == len(numbers)


def test_the_same_name_is_another_person_in_another_gallery(world):
    own, other = (Side(world.admin, letter, n_people=4) for letter in "GH")
    common, ids = "Sam Common", []
    for side in (own, other):
        headers = {"x-api-key": side.key}
        body = {"samples": [{"subject": common, "vector": vector(ord(side.letter), 0)}]}
        answer = world.client.post(f"{side.place}/samples", json=body, headers=headers)
        ids.append(answer.json()["outcomes"][0]["subject_id"])
        side.settle()
    assert ids[0] != ids[1]
    before = world.rows_of(other)
    headers = {"x-api-key": own.key}
    found = world.client.get(
        f"{own.place}/subjects", params={"q": "Common"}, headers=headers
    ).json()
    assert [one["id"] for one in found["items"]] == ids[:1]
    place = "/api/v1/recognition/subjects"
    body = {"subject": own.names[0]}
    merged = world.client.put(f"{place}/{common}", json=body, headers=headers)
    assert merged.json() == {"updated": True}
    gone = world.client.delete(f"{place}/{own.names[0]}", headers=headers)
    assert gone.json() == body
    assert world.rows_of(other) == before


def test_people_of_others_are_never_candidates(world):
    probe = vector(100 * ord("B"), 0)
    answer = world.client.post(
        f"{world.own.place}/identify?top=20",
        json={"vector": probe},
        headers={"x-api-key": world.own.key},
    ).json()
    people = world.rows_of(world.own)["subjects"]
    found = {one["subject_id"] for one in answer["faces"][0]["candidates"]}
    assert len(found) == N_PEOPLE
    assert found <= {row.id for row in people}


def test_an_enrolment_of_others_is_not_replayed(world, unchanged):
    body = {"samples": [{"subject": "Ida", "vector": vector(5, 0)}]}
    answers = [
        world.client.post(
            f"{world.own.place}/samples",
            json=body,
            headers={"x-api-key": world.own.key, "Idempotency-Key": token},
        )
        for token in ("enrolment B", "not used by anybody")
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    first, second = (answer.json()["outcomes"][0] for answer in answers)
    assert first["subject_id"] == second["subject_id"]
    assert first["sample_id"] != second["sample_id"]


def test_requests_succeed_with_the_right_key(world):
    # So the refusals above come from the key, and not from the requests.
    stay = Side(world.admin, "D")
    stay.settle()
    for label in sorted(WITH_IDS):
        method, path = label.split()
        uses_up = method != "GET" and not path.endswith(("identify", "verify"))
        side = Side(world.admin, "E", n_people=1) if uses_up else stay
        answer = call(world.client, label, side.ids, side.key)
        if path.endswith(FOR_PICTURES) and "embeddings" not in path:
            assert answer.status_code in (200, 400, 404, 422), (label, answer.text)
        elif label in NOT_YET:
            assert answer.json()["code"] == NOT_YET[label]
        else:
            assert answer.status_code < 300, (label, answer.text)
        if uses_up:
            world.admin.delete(side.place)
    world.admin.delete(stay.place)


@pytest.mark.parametrize("key", [None, "dualqml_" + "x" * 43, "", "schlüssel"])
def test_nothing_is_told_without_a_key(world, unchanged, monkeypatch, key):
    monkeypatch.setattr(RateLimiter, "take", lambda self, client: None)
    key = key and key.encode()
    answers = set()
    for label in OPERATIONS:
        if label in OPEN:
            continue
        for ids in (world.other.ids, unknown_ids()):
            answer = call(world.client, label, ids, key)
            assert answer.status_code == 401, label
            if label != "GET /v1/session":
                answers.add((label.split()[1].startswith("/api/"), answer.text))
    # One text for each kind of API.
    assert len(answers) == 2
    body = {"key": "dualqml_wrong"}
    assert world.client.post("/v1/session", json=body).status_code == 401


def test_keys_cannot_be_tried_without_end(tmp_path):
    with running(Settings(str(tmp_path))) as service, service.client() as client:
        statuses = [
            client.get("/v1/keys", headers={"x-api-key": f"dualqml_{n}"}).status_code
            for n in range(60)
        ]
        assert statuses[0] == 401
        assert statuses[-1] == 429
        assert set(statuses) == {401, 429}
        # Those who have a key are not held up.
        assert client.get("/v1/keys").status_code == 200


@pytest.mark.parametrize("scope", ["identify", "enrol", "admin"])
def test_keys_can_do_what_their_scopes_say(world, unchanged, scope):
    side = Side(world.admin, "F", n_people=1)
    key = side.new_key(scope)["key"]
    allowed = {
        "identify": MAY_IDENTIFY,
        "enrol": set(OPERATIONS) - FOR_ADMIN,
        "admin": set(OPERATIONS) - FOR_ALL,
    }[scope]
    refused = set()
    # Whatever is allowed may remove something, the gallery last.
    order = sorted(OPERATIONS, key=lambda one: (one in allowed, -len(one)))
    for label in order:
        if label in OPEN or label == "GET /v1/session":
            continue
        answer = call(world.client, label, side.ids, key)
        if answer.status_code == 403:
            unknown = unknown_ids() | {"gallery_id": side.gallery}
            again = call(world.client, label, unknown, key)
            assert told(answer, side.ids) == told(again, unknown), label
        if (answer.status_code == 403) != (label not in allowed):
            refused.add((label, answer.status_code, answer.text))
    assert not refused
    world.admin.delete(side.place)


def test_a_key_makes_no_keys_for_more_than_itself(world):
    headers = {"x-api-key": world.own.key}
    body = {"label": "more", "scopes": ["admin"]}
    answer = world.client.post("/v1/keys", json=body, headers=headers)
    assert answer.status_code == 403
    body["gallery_id"] = world.own.gallery
    made = world.client.post("/v1/keys", json=body, headers=headers)
    assert made.json()["gallery_id"] == world.own.gallery


def test_revoked_and_expired_keys_are_refused(world):
    side = world.own

    def status(key):
        headers = {"x-api-key": key}
        return world.client.get(side.place, headers=headers).status_code

    made = side.new_key("admin")
    assert status(made["key"]) == 200
    session = sign_in(world, made["key"])
    assert session.get(side.place).status_code == 200
    assert world.admin.delete(f"/v1/keys/{made['id']}").status_code == 204
    assert status(made["key"]) == 401
    assert session.get(side.place).status_code == 401
    for delta, wanted in ((-60.0, 401), (5.0, 200)):
        moment = datetime.now(UTC) + timedelta(seconds=delta)
        short = side.new_key("admin", expires_at=moment.isoformat())["key"]
        assert status(short) == wanted
    session = sign_in(world, short)
    while datetime.now(UTC) <= moment:
        time.sleep(0.05)
    assert status(short) == 401
    assert session.get(side.place).status_code == 401


def sign_in(world, key):
    """A browser that has typed a key."""
    browser = httpx.Client(base_url=world.service.url, timeout=90)
    answer = browser.post("/v1/session", json={"key": key})
    assert answer.status_code == 201
    return browser


def test_sessions_are_safe_from_other_pages(world):
    with httpx.Client(base_url=world.service.url, timeout=90) as browser:
        opened = browser.post("/v1/session", json={"key": world.own.key})
        cookie = opened.headers["set-cookie"].lower()
        assert cookie.startswith(f"{COOKIE}=")
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        csrf = opened.json()["csrf"]
        assert browser.cookies[COOKIE] not in opened.text
        assert browser.get(world.own.place).status_code == 200
        assert browser.get(world.other.place).status_code == 404
        subjects, body = f"{world.own.place}/subjects", {"name": "Not made"}
        for headers in ({}, {CSRF_HEADER: ""}, {CSRF_HEADER: csrf[:-1] + "!"}):
            for label in OPERATIONS:
                if label.startswith("GET ") or label in OPEN:
                    continue
                method, path = label.split()
                answer = browser.request(
                    method,
                    path.format(**world.own.ids),
                    headers=headers,
                    **content_of(label)[0],
                )
                assert answer.status_code == 403, label
        other = sign_in(world, world.own.key)
        wrong = {CSRF_HEADER: other.get("/v1/session").json()["csrf"]}
        assert browser.post(subjects, json=body, headers=wrong).json()["code"] == "csrf"
        found = browser.get(subjects, params={"q": "Not made"}).json()
        assert found["total"] == 0
        right = {CSRF_HEADER: csrf}
        assert browser.post(subjects, json=body, headers=right).status_code == 201
        token = browser.cookies[COOKIE]
        assert browser.delete("/v1/session", headers=right).status_code == 204
    stolen = world.client.get(world.own.place, headers={"cookie": f"{COOKIE}={token}"})
    assert stolen.status_code == 401
    # The other session goes on.
    assert other.get(world.own.place).status_code == 200


def test_every_answer_has_headers_of_security(world, monkeypatch, caplog):
    get = world.client.get
    answers = {
        "page": get("/login"),
        "json": get("/v1"),
        "static": get("/static/app.css"),
        "no such page": get("/nothing"),
        "no key": get("/v1/galleries"),
        "no such method": world.client.put("/v1"),
        "too large": world.client.post(
            f"{world.own.place}/identify",
            content=bytes(MOST_BYTES + 1),
            headers={"x-api-key": world.own.key, "content-type": "application/json"},
        ),
    }

    def fail(*given):
        raise RuntimeError("Person A0")

    with monkeypatch.context() as patch:
        patch.setattr("dualqml.service.context.authenticate", fail)
        answers["failed"] = get("/v1/galleries", headers={"x-api-key": "x"})
    wanted = {
        "page": 200,
        "json": 200,
        "static": 200,
        "no such page": 404,
        "no key": 401,
        "no such method": 405,
        "too large": 413,
        "failed": 500,
    }
    assert {name: one.status_code for name, one in answers.items()} == wanted
    for name, answer in answers.items():
        policy = answer.headers.get("content-security-policy", "")
        assert "default-src 'none'" in policy, name
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "Person A0" not in answer.text
    assert "Person A0" not in caplog.text


def test_other_sites_are_not_allowed_to_read(world):
    headers = {
        "origin": "https://example.org",
        "access-control-request-method": "DELETE",
        "access-control-request-headers": "x-api-key",
    }
    for path in ("/v1/galleries", world.own.place, "/api/v1/recognition/subjects"):
        for method in ("OPTIONS", "GET", "POST"):
            answer = world.client.request(method, path, headers=headers)
            found = [name for name in answer.headers if "access-control" in name]
            assert not found
            assert answer.status_code in (401, 405, 429)


def test_secrets_are_not_written_in_clear(tmp_path):
    service = ServiceProcess(tmp_path)
    with service, service.client() as client:
        made = client.post("/v1/keys", json={"label": "x", "scopes": ["admin"]}).json()
        browser = httpx.Client(base_url=service.url)
        assert browser.post("/v1/session", json={"key": made["key"]}).is_success
        token = browser.cookies[COOKIE]
        browser.get("/v1/session")
        wrong = "dualqml_a-key-that-somebody-has-mistyped"
        browser.post("/v1/session", json={"key": wrong})
        httpx.get(f"{service.url}/v1/keys", headers={"x-api-key": wrong})
        httpx.get(f"{service.url}/v1/keys/{wrong}?key={wrong}")
        running_files = service.files()
    for found in (running_files, service.files()):
        assert any(name.endswith(".sqlite") for name in found)
        for secret in (made["key"], token, wrong):
            assert not [n for n, content in found.items() if secret.encode() in content]
        # The first key is shown on the screen once.
        first = service.key.encode()
        assert found["log"].count(first) == 1
        assert [n for n, content in found.items() if first in content] == ["log"]


def test_only_tls_promises_tls(tmp_path):
    for options, wanted in (({}, False), ({"tls_cert": "c", "tls_key": "k"}, True)):
        guard = Guard(None, Settings(str(tmp_path), **options), None)
        names = [name for name, _ in guard._headers]
        assert (b"strict-transport-security" in names) == wanted
