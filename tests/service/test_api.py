"""The API as a client sees it, on a real service."""

import base64
import io
import json
import time

import numpy as np
import pytest
from PIL import Image

from dualqml.cli.main import main
from dualqml.data.orl import orl_files
from dualqml.recognition import Recognizer
from dualqml.service.problems import CODES
from tests.service.process import ServiceProcess

WIDTH = 32
JSON = {"content-type": "application/json"}
CENTRES = np.random.default_rng(1).normal(size=(40, WIDTH))


def vector(person, sample=0):
    rng = np.random.default_rng([person, sample])
    return (CENTRES[person] + 0.25 * rng.normal(size=WIDTH)).tolist()


def picture(person, image, kind="PNG"):
    stream = io.BytesIO()
    with Image.open(orl_files()[person, image]) as read:
        read.save(stream, kind)
    return stream.getvalue()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with ServiceProcess(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(scope="module")
def client(service):
    with service.client() as found:
        yield found


def make(client, **options):
    body = {"name": "Office", "inputs": "vectors"} | options
    answer = client.post("/v1/galleries", json=body)
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/galleries/{answer.json()['id']}"
    return answer.headers["location"]


@pytest.fixture
def gallery(client):
    """Twelve people with three samples each."""
    place = make(client)
    bulk = [
        {"subject": f"P{person:02d}", "vector": vector(person, sample)}
        for person in range(12)
        for sample in range(3)
    ]
    answer = client.post(f"{place}/samples?wait=model", json={"samples": bulk})
    assert answer.json()["enrolled"] == 36
    return place


def subject(client, gallery, name):
    return client.get(f"{gallery}/subjects", params={"q": name}).json()["items"][0]


def identify(client, gallery, values, **params):
    answer = client.post(f"{gallery}/identify", json={"vector": values}, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def wait_for(client, gallery, job):
    while job["state"] in ("queued", "running"):
        job = client.get(f"{gallery}/jobs/{job['id']}").json()
    return job


def test_people_are_identified_and_strangers_are_unknown(client, gallery):
    answer = identify(client, gallery, vector(3, 9), explain=True)
    face = answer["faces"][0]
    assert face["decision"] == "match"
    assert face["subject"]["name"] == "P03"
    assert len(face["candidates"]) == 5
    assert face["score"] >= answer["threshold"]
    assert face["explanation"]["nearest"]["name"] == "P03"
    assert "P03" in face["explanation"]["text"]
    assert answer["calibration"]["target"] == 0.01
    unknown = identify(client, gallery, vector(30), top=2)["faces"][0]
    assert unknown["decision"] == "unknown"
    assert unknown["subject"] is None
    assert len(unknown["candidates"]) == 2


def test_answers_are_those_of_the_library(client, gallery, service):
    revision = client.get(gallery).json()["model"]["revision"]
    path = service.data / "models" / gallery.rpartition("/")[2]
    model = Recognizer.load(path / f"{revision}.dualqml")
    for person in (2, 30):
        wanted = model.identify(np.array(vector(person, 9), np.float32))
        found = identify(client, gallery, vector(person, 9))
        assert found["revision"] == revision
        assert found["model_id"] == wanted.model_id
        assert found["faces"][0]["score"] == pytest.approx(wanted.score, abs=1e-9)
        names = [c["subject_id"] for c in found["faces"][0]["candidates"]]
        assert names == [c.subject for c in wanted.candidates]


def test_a_claim_is_verified(client, gallery):
    own = subject(client, gallery, "P04")["id"]
    for person, decision in ((4, "match"), (5, "no match")):
        body = {"subject": own, "vector": vector(person, 9)}
        answer = client.post(f"{gallery}/verify", json=body).json()
        assert answer["decision"] == decision
        assert answer["subject"]["name"] == "P04"
    answer = client.post(f"{gallery}/verify", json={"vector": vector(4)})
    assert answer.json()["code"] == "invalid"


def test_a_new_person_is_known_after_the_next_model(client, gallery):
    own = client.post(f"{gallery}/subjects", json={"name": "Zoe"}).json()
    body = {"vectors": [vector(20, 0), vector(20, 1)]}
    answer = client.post(f"{gallery}/subjects/{own['id']}/samples", json=body).json()
    found = identify(client, gallery, vector(20, 9), wait="model")
    assert found["revision"] >= answer["revision"]
    assert found["faces"][0]["subject"]["name"] == "Zoe"


def test_each_file_has_an_outcome(client):
    gallery = make(client, inputs="crops")
    files = [
        ("files", ("Ann/1.png", picture(1, 1))),
        ("files", ("Ann/2.jpg", picture(1, 2, "JPEG"))),
        ("files", ("Bob/1.webp", picture(2, 1, "WEBP"))),
        ("files", ("Bob/2.txt", b"no image")),
        ("files", ("nobody.png", picture(3, 1))),
    ]
    answer = client.post(f"{gallery}/samples", files=files)
    assert answer.status_code == 201
    outcomes = answer.json()["outcomes"]
    assert [one["status"] for one in outcomes] == ["enrolled"] * 3 + ["refused"] * 2
    assert [one["code"] for one in outcomes[3:]] == ["bad-image", "invalid"]
    assert client.get(gallery).json()["n_samples"] == 3
    none = client.post(f"{gallery}/samples", files=files[3:])
    assert none.status_code == 422
    assert none.json()["code"] == "nothing-enrolled"
    assert len(none.json()["outcomes"]) == 2


def test_photographs_are_searched_for_faces(client):
    gallery = make(client, inputs="photographs", keep_photographs=True)
    files = [
        ("files", (f"P{person}/{image}.png", picture(person, image)))
        for person in range(1, 6)
        for image in (1, 2, 3)
    ]
    blank = io.BytesIO()
    Image.new("RGB", (200, 200), "white").save(blank, "PNG")
    files.append(("files", ("P1/blank.png", blank.getvalue())))
    answer = client.post(f"{gallery}/samples?wait=model", files=files).json()
    assert answer["enrolled"] == 15
    assert answer["outcomes"][-1]["code"] == "no-face"
    face = client.post(
        f"{gallery}/identify", files={"file": ("a.png", picture(2, 9))}
    ).json()["faces"][0]
    assert face["subject"]["name"] == "P2"
    assert face["box"]["bottom"] > face["box"]["top"]
    assert 0.0 < face["quality"] <= 1.0
    encoded = base64.b64encode(picture(30, 1)).decode()
    body = {"image": encoded}
    unknown = client.post(f"{gallery}/identify", json=body).json()["faces"][0]
    assert unknown["decision"] == "unknown"
    found = client.post(f"{gallery}/detect", json=body).json()
    assert len(found["faces"]) == 1
    assert (found["width"], found["height"]) == (92, 112)
    none = client.post(f"{gallery}/identify", files={"file": blank.getvalue()})
    assert none.status_code == 422
    assert none.json()["code"] == "no-face"
    own = subject(client, gallery, "P3")["id"]
    sample = client.get(f"{gallery}/subjects/{own}/samples").json()["items"][0]
    kept = client.get(f"{gallery}/samples/{sample['id']}/image")
    assert kept.headers["content-type"] == "image/jpeg"
    with Image.open(io.BytesIO(kept.content)) as image:
        assert image.size == (92, 112)


def test_a_lost_update_is_refused(client, gallery):
    own = subject(client, gallery, "P05")
    place = f"{gallery}/subjects/{own['id']}"
    tag = client.get(place).headers["etag"]
    changed = client.patch(place, json={"name": "Fay"}, headers={"If-Match": tag})
    assert changed.json()["name"] == "Fay"
    assert changed.headers["etag"] != tag
    for late in (
        client.patch(place, json={"name": "Gus"}, headers={"If-Match": tag}),
        client.delete(place, headers={"If-Match": tag}),
    ):
        assert late.status_code == 412
    assert client.get(place).json()["name"] == "Fay"
    taken = client.patch(place, json={"name": "P06"})
    assert taken.json()["code"] == "conflict"


def test_an_enrolment_can_be_repeated(client, gallery):
    own = subject(client, gallery, "P06")["id"]
    place = f"{gallery}/subjects/{own}/samples"
    headers = {"Idempotency-Key": "a b c"}
    first = client.post(place, json={"vectors": [vector(6, 7)]}, headers=headers)
    again = client.post(place, json={"vectors": [vector(6, 7)]}, headers=headers)
    assert first.json() == again.json()
    assert client.get(place).json()["total"] == 4
    other = client.post(place, json={"vectors": [vector(6, 8)]}, headers=headers)
    assert other.status_code == 409


def test_lists_come_in_parts(client, gallery):
    names, after = [], None
    while True:
        params = {"limit": 5} | ({"after": after} if after else {})
        part = client.get(f"{gallery}/subjects", params=params).json()
        assert part["total"] == 12
        names += [one["name"] for one in part["items"]]
        after = part["next"]
        if after is None:
            break
    assert names == [f"P{person:02d}" for person in range(12)]
    assert client.get(f"{gallery}/subjects?after=x").json()["code"] == "invalid"
    assert client.get(f"{gallery}/subjects", params={"q": "%"}).json()["total"] == 0


def test_the_threshold_is_set_for_a_rate_or_by_hand(client, gallery):
    for rate in (0.05, 0.2):
        found = client.post(f"{gallery}/calibrations", json={"fpir": rate}).json()
        assert found["target"] == rate
        assert found["achieved"] <= rate
    by_hand = client.post(f"{gallery}/calibrations", json={"threshold": 99.0}).json()
    assert by_hand["kind"] == "given"
    assert identify(client, gallery, vector(3, 9))["faces"][0]["decision"] == "unknown"
    for body in ({}, {"fpir": 0.1, "fmr": 0.1}, {"fpir": 1.5}, {"threshold": "x"}):
        assert client.post(f"{gallery}/calibrations", json=body).status_code == 422
    curve = None
    client.post(f"{gallery}/calibrations", json={"fpir": 0.05})
    while curve is None:
        current = client.get(f"{gallery}/calibrations/current").json()
        curve = current["curve"]
        time.sleep(0.05)
    targets = [one["target"] for one in curve]
    assert targets == sorted(targets)
    thresholds = [one["threshold"] for one in curve]
    assert thresholds == sorted(thresholds, reverse=True)
    assert sum(current["distributions"]["enrolled"]) == current["n_mated"]


def test_few_people_have_no_threshold_and_say_so(client):
    gallery = make(client)
    nobody = client.post(f"{gallery}/identify", json={"vector": vector(0)})
    assert nobody.json()["code"] == "no-model"
    bulk = [{"subject": f"P{p}", "vector": vector(p)} for p in range(2)]
    client.post(f"{gallery}/samples?wait=model", json={"samples": bulk})
    few = client.post(f"{gallery}/identify", json={"vector": vector(0)})
    assert few.json()["code"] == "no-threshold"
    short = client.post(f"{gallery}/identify", json={"vector": [1.0, 2.0]})
    assert short.json()["code"] == "invalid"


def test_the_gallery_is_checked_and_evaluated(client, gallery):
    # A sample of somebody else.
    own = subject(client, gallery, "P07")["id"]
    client.post(
        f"{gallery}/subjects/{own}/samples?wait=model",
        json={"vectors": [vector(8, 9)]},
    )
    job = client.post(f"{gallery}/health")
    assert job.status_code == 202
    assert wait_for(client, gallery, job.json())["state"] == "done"
    found = client.get(f"{gallery}/health").json()["findings"]
    wrong = [one for one in found if one["kind"] == "fits another"]
    assert [(one["name"], one["other_name"]) for one in wrong] == [("P07", "P08")]
    assert "P08" in wrong[0]["text"]
    assert own not in wrong[0]["text"]
    shown = client.get(f"{gallery}/subjects/{own}/samples").json()["items"]
    assert shown[3]["findings"][0]["kind"] == "fits another"
    assert shown[3]["fit"] == min(one["fit"] for one in shown)
    job = client.post(f"{gallery}/evaluation").json()
    assert wait_for(client, gallery, job)["state"] == "done"
    curves = client.get(f"{gallery}/evaluation").json()
    assert curves["cmc"] == sorted(curves["cmc"])
    assert curves["open_set"]["fpir"]


def test_strangers_are_kept_only_if_asked_for(client, gallery):
    identify(client, gallery, vector(33))
    assert client.get(f"{gallery}/strangers").json()["total"] == 0
    client.patch(gallery, json={"keep_strangers": True})
    first = identify(client, gallery, vector(33))["faces"][0]["stranger_id"]
    again = identify(client, gallery, vector(33, 1))["faces"][0]["stranger_id"]
    other = identify(client, gallery, vector(34))["faces"][0]["stranger_id"]
    assert first == again != other
    shown = client.get(f"{gallery}/strangers").json()["items"]
    assert {one["id"]: one["n_seen"] for one in shown} == {first: 2, other: 1}
    ignored = client.patch(f"{gallery}/strangers/{other}", json={"state": "ignored"})
    assert ignored.json()["state"] == "ignored"
    named = client.post(f"{gallery}/strangers/{first}/name", json={"name": "Zed"})
    assert named.json()["n_samples"] == 2
    found = identify(client, gallery, vector(33, 2), wait="model")["faces"][0]
    assert found["subject"]["name"] == "Zed"
    wrong = subject(client, gallery, "P01")["id"]
    kept = client.post(
        f"{gallery}/strangers", json={"vector": vector(35), "not_subject": wrong}
    ).json()["stranger_ids"][0]
    shown = client.get(f"{gallery}/strangers").json()["items"]
    mistaken = next(one for one in shown if one["id"] == kept)
    assert mistaken["not_subject"]["name"] == "P01"


def test_a_gallery_moves_by_command_too(client, gallery, service, tmp_path, capsys):
    data = ["--data", str(service.data)]
    gallery_id = gallery.rpartition("/")[2]
    out = str(tmp_path / "office.gallery")
    assert main(["export", gallery_id, "-o", out, *data]) == 0
    assert main(["export", gallery_id, "-o", out, *data]) == 2
    assert main(["export", "no such", "-o", out, "--force", *data]) == 2
    capsys.readouterr()
    assert main(["import", out, "--name", "Copy", *data, "--json"]) == 0
    copy = f"/v1/galleries/{json.loads(capsys.readouterr().out)['id']}"
    found = client.get(copy).json()
    assert (found["name"], found["n_samples"]) == ("Copy", 36)
    assert (
        identify(client, copy, vector(3, 9), wait="model")["faces"][0]["subject"][
            "name"
        ]
        == "P03"
    )
    content = client.get(f"{gallery}/export").content
    again = client.post("/v1/imports", files={"file": content})
    assert again.status_code == 201
    bad = client.post("/v1/imports", files={"file": content[:-10]})
    assert bad.json()["code"] == "bad-file"


def test_problems_have_stable_codes(client, gallery):
    for answer, code in (
        (client.get("/v1/galleries/none"), "not-found"),
        (client.put(gallery), "method-not-allowed"),
        (client.post("/v1/galleries", content=b"{", headers=JSON), "bad-request"),
        (client.post("/v1/galleries", json={"name": ""}), "invalid"),
        (client.post(f"{gallery}/identify", content=b"x"), "wrong-type"),
        (client.post(f"{gallery}/identify", files={"file": b"x"}), "wrong-kind"),
        (
            client.get("/v1/galleries", headers={"authorization": "Bearer x"}),
            "unauthorized",
        ),
    ):
        body = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert body["code"] == code
        assert answer.status_code == body["status"] == CODES[code][0]


def test_operators_can_watch(client, service):
    assert client.get("/healthz").json() == {"status": "alive"}
    metrics = client.get("/metrics").text
    assert "dualqml_requests_total{" in metrics
    assert "dualqml_model_builds_total" in metrics
    log = service.log.read_text()
    assert '"route": "/v1/galleries/{gallery_id}/identify"' in log
    assert "P03" not in log
    found = client.get("/v1/audit/check").json()
    assert found["ok"]
    assert found["entries"] > 10


def test_the_last_key_cannot_be_revoked(client):
    keys = client.get("/v1/keys").json()["items"]
    assert len(keys) == 1
    assert client.delete(f"/v1/keys/{keys[0]['id']}").status_code == 409
