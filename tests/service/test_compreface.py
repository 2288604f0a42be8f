"""Clients of CompreFace work unchanged: its SDK, and double-take byte by byte."""

import base64
import http.client
import io
import json
import math
import sys
import uuid
from types import ModuleType
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dualqml.data.orl import orl_files
from dualqml.service.api.compreface_answers import error_answer, similarity
from dualqml.service.problems import CODES, Problem
from tests.photographs import load_faces, on_a_wall
from tests.service.process import ServiceProcess

# The SDK pins requests-toolbelt 0.9.1, which imports a module for Google App Engine
# that urllib3 2 no longer has. An empty one in its place lets the SDK run unchanged.
sys.modules.setdefault(
    "urllib3.contrib.appengine", ModuleType("urllib3.contrib.appengine")
)
from compreface import CompreFace  # noqa: E402

scores = st.floats(-1e6, 1e6)


@given(scores, scores)
def test_similarity_says_whether_a_score_reaches_the_threshold(score, threshold):
    found = similarity(score, threshold)
    assert 0.0 <= found <= 1.0
    assert (found >= 0.6) == (score >= threshold)
    # double-take rounds per cent to two digits before it compares with 60.
    assert (float(f"{100 * found:.2f}") >= 60.0) == (score >= threshold)


@given(scores, scores, scores)
def test_similarity_keeps_the_order_of_scores(first, second, threshold):
    low, high = sorted([first, second])
    assert similarity(low, threshold) <= similarity(high, threshold)


@given(scores)
def test_the_threshold_has_similarity_060(threshold):
    assert similarity(threshold, threshold) == 0.6


@given(st.floats(-20, 20), st.floats(-20, 20))
def test_similarity_depends_on_the_distance_from_the_threshold(score, threshold):
    # The logistic curve, written in another way.
    logit = math.log(0.6 / 0.4) + 0.3 * (score - threshold)
    expected = 0.5 * (1.0 + math.tanh(0.5 * logit))
    assert similarity(score, threshold) == pytest.approx(expected, abs=1.1e-4)


@pytest.mark.parametrize("score", [math.inf, -math.inf, 1e308, -1e308])
def test_similarity_of_extreme_scores(score):
    assert similarity(score, 0.0) == (1.0 if score > 0.0 else 0.0)


@pytest.mark.parametrize("code", CODES)
def test_errors_have_the_shape_of_compreface(code):
    answer = error_answer(Problem(code, "why", headers={"Retry-After": "3"}))
    body = json.loads(answer.body)
    assert body["message"] == "why"
    assert isinstance(body["code"], int)
    assert set(body) == {"message", "code"}
    assert answer.headers["retry-after"] == "3"
    assert answer.status_code != 422
    assert (body["code"] == 28) == (code == "no-face")
    if code == "no-face":
        assert answer.status_code == 400


def encoded(pixels, kind="JPEG"):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def photograph(person, image, kind="PNG"):
    with Image.open(orl_files()[person, image]) as read:
        return encoded(np.asarray(read), kind)


@pytest.fixture(scope="module")
def faces():
    return load_faces()


@pytest.fixture(scope="module")
def service(tmp_path_factory, faces):
    with ServiceProcess(tmp_path_factory.mktemp("service")) as running:
        yield running


def new_key(service, scope="enrol", **options):
    """A gallery of its own, and a key for it."""
    with service.client() as admin:
        body = {"name": "Home"} | options
        gallery = admin.post("/v1/galleries", json=body).json()["id"]
        return key_for(admin, gallery, scope), gallery


def key_for(admin, gallery, scope):
    body = {"label": "camera", "scopes": [scope], "gallery_id": gallery}
    return admin.post("/v1/keys", json=body).json()["key"]


class Home:
    """A client of one gallery that speaks to the routes of CompreFace."""

    def __init__(self, service, scope="enrol", **options):
        self.service = service
        self.key, self.gallery = new_key(service, scope, **options)
        self.http = httpx.Client(
            base_url=f"{service.url}/api/v1",
            headers={"x-api-key": self.key},
            timeout=90,
        )

    def sdk(self):
        return CompreFace("http://127.0.0.1", str(self.service.port))

    def add(self, name, content):
        return self.http.post(
            "/recognition/faces", params={"subject": name}, files={"file": content}
        )

    def recognise(self, content, **options):
        return self.http.post(
            "/recognition/recognize", params=options, files={"file": content}
        )

    def own(self, method, path, **options):
        """A request to our own routes, by the administrator."""
        with self.service.client() as admin:
            url = f"/v1/galleries/{self.gallery}{path}"
            answer = admin.request(method, url, **options)
            answer.raise_for_status()
            return answer.json()

    def enrol_orl(self, people, images=(1, 2)):
        for person in people:
            for image in images:
                answer = self.add(f"s{person}", photograph(person, image))
                assert answer.status_code == 201, answer.text


@pytest.fixture
def home(service):
    found = Home(service)
    yield found
    found.http.close()


@pytest.fixture(scope="module")
def people(service):
    """Six people, whom tests do not change."""
    found = Home(service)
    found.enrol_orl(range(1, 7))
    yield found
    found.http.close()


def answer_of(answer, status=200):
    assert answer.status_code == status, answer.text
    return answer.json()


def subjects_of(answer):
    return [face["subjects"] for face in answer_of(answer)["result"]]


def assert_error(answer, status, code=None):
    found = answer_of(answer, status)
    assert set(found) == {"message", "code"}
    assert found["message"]
    if code is not None:
        assert found["code"] == code
    return found["message"]


def test_the_sdk_makes_its_ordinary_calls(home, tmp_path):
    """As its README shows them, in the order of a new user."""
    sdk = home.sdk()
    recognition = sdk.init_face_recognition(home.key)
    subjects = recognition.get_subjects()
    collection = recognition.get_face_collection()

    assert subjects.list() == {"subjects": []}
    assert subjects.add("Ann") == {"subject": "Ann"}
    assert subjects.add("Ann")["code"] == 43
    assert subjects.list() == {"subjects": ["Ann"]}
    assert collection.list() == {
        "faces": [],
        "page_number": 0,
        "page_size": 20,
        "total_pages": 0,
        "total_elements": 0,
    }

    # Files by their paths, and as bytes.
    path = tmp_path / "ann.jpg"
    path.write_bytes(photograph(1, 1, "JPEG"))
    first = collection.add(str(path), "Ann")
    assert first["subject"] == "Ann"
    assert str(uuid.UUID(first["image_id"])) == first["image_id"]
    collection.add(photograph(1, 2), "Ann", {"det_prob_threshold": 0.8})
    for person, name in ((2, "Bob"), (3, "Zoe")):
        for image in (1, 2):
            added = collection.add(photograph(person, image), name)
            assert added["subject"] == name
    listed = collection.list()
    assert first in listed["faces"]
    assert (listed["total_elements"], listed["total_pages"]) == (6, 1)

    options = {
        "limit": 0,
        "det_prob_threshold": 0.8,
        "prediction_count": 2,
        "face_plugins": "landmarks,gender,age,calculator,mask",
        "status": True,
    }
    (face,) = recognition.recognize(photograph(1, 3), options)["result"]
    names = [one["subject"] for one in face["subjects"]]
    assert names[0] == "Ann"
    assert len(names) == 2
    assert face["subjects"][0]["similarity"] >= 0.6
    assert len(face["landmarks"]) == 5
    assert len(face["embedding"]) == 128
    box = face["box"]
    assert 0 <= box["x_min"] < box["x_max"] <= 92
    assert 0 <= box["y_min"] < box["y_max"] <= 112
    assert all(
        box["x_min"] <= x <= box["x_max"] and box["y_min"] <= y <= box["y_max"]
        for x, y in face["landmarks"]
    )
    (face,) = recognition.recognize(photograph(1, 3))["result"]
    assert set(face) == {"box", "subjects"}
    assert [one["subject"] for one in face["subjects"]] == ["Ann"]
    (face,) = recognition.recognize(photograph(9, 3), options)["result"]
    assert face["subjects"] == []

    (same,) = collection.verify(photograph(1, 4), first["image_id"])["result"]
    (other,) = collection.verify(photograph(2, 4), first["image_id"])["result"]
    assert same["similarity"] >= 0.6 > other["similarity"]

    assert subjects.update("Zoe", "Zoë Lee") == {"updated": True}
    assert subjects.list() == {"subjects": ["Ann", "Bob", "Zoë Lee"]}
    assert collection.delete(first["image_id"]) == first
    assert collection.delete(first["image_id"])["code"] == 42
    assert collection.delete_all("Bob") == {"deleted": 2}
    assert collection.delete_all("Bob") == {"deleted": 0}
    assert subjects.delete("Zoë Lee") == {"subject": "Zoë Lee"}
    assert subjects.list() == {"subjects": ["Ann"]}
    # Upstream, these two would erase everybody.
    assert "everybody" in subjects.delete_all()["message"]
    assert "everybody" in collection.delete_all("")["message"]
    assert subjects.list() == {"subjects": ["Ann"]}


def test_the_sdk_compares_photographs_without_enrolment(home):
    sdk = home.sdk()
    verification = sdk.init_face_verification(home.key)
    options = {"face_plugins": "landmarks", "status": True}
    same = verification.verify(photograph(1, 1), photograph(1, 3), options)
    (pair,) = same["result"]
    assert set(pair) == {"source_image_face", "face_matches", "plugins_versions"}
    assert len(pair["source_image_face"]["landmarks"]) == 5
    assert pair["face_matches"][0]["similarity"] >= 0.6
    other = verification.verify(photograph(1, 1), photograph(2, 3))
    (match,) = other["result"][0]["face_matches"]
    assert match["similarity"] < 0.6
    # The same pair has the same answer: nothing was learnt from the others.
    assert verification.verify(photograph(1, 1), photograph(2, 3)) == other
    assert home.own("GET", "")["n_samples"] == 0
    assert home.own("GET", "/subjects")["total"] == 0


def test_the_sdk_detects_faces(home, faces):
    detection = home.sdk().init_face_detection(home.key)
    wall = on_a_wall((faces[0], 2, 20, 20), (faces[10], 1, 100, 210), shape=(264, 320))
    two = encoded(wall)
    found = detection.detect(two, {"face_plugins": "landmarks", "status": True})
    areas = [
        (one["box"]["x_max"] - one["box"]["x_min"])
        * (one["box"]["y_max"] - one["box"]["y_min"])
        for one in found["result"]
    ]
    assert len(areas) == 2
    assert areas[0] > areas[1]
    assert set(found["plugins_versions"]) == {"detector", "calculator"}
    assert "embedding" not in found["result"][0]
    assert len(detection.detect(two, {"limit": 1})["result"]) == 1
    described = detection.detect(two, {"face_plugins": "calculator"})
    assert len(described["result"][1]["embedding"]) == 128
    assert detection.detect(two, {"det_prob_threshold": 1.0})["code"] == 28
    wall = encoded(np.full((200, 200), 128, dtype=np.uint8))
    assert detection.detect(wall)["code"] == 28


def form_data(content, boundary, filename="frame.jpg"):
    """A form as the package form-data of Node.js writes it for one file."""
    head = (
        f"--{boundary}\r\n"
        f'Content-Disposition: form-data; name="file"; filename="{filename}"\r\n'
        "Content-Type: image/jpeg\r\n\r\n"
    )
    return head.encode() + content + f"\r\n--{boundary}--\r\n".encode()


def chunked(body, size=65_536):
    """Streams have no length, so axios sends them in chunks."""
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    found = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return found + b"0\r\n\r\n"


class DoubleTake:
    """The requests of double-take's detector "compreface", byte by byte."""

    boundary = "--------------------------265001916915724413784391"

    def __init__(self, home):
        self.home = home

    def exchange(self, head, body=b""):
        port = self.home.service.port
        lines = [
            *head,
            f"x-api-key: {self.home.key}",
            "User-Agent: axios/0.26.1",
            f"Host: 127.0.0.1:{port}",
            "Connection: close",
        ]
        raw = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
        connection.connect()
        connection.sock.sendall(raw)
        answer = http.client.HTTPResponse(connection.sock)
        answer.begin()
        found = json.loads(answer.read())
        connection.close()
        return answer.status, found

    def upload(self, target, content):
        head = [
            f"POST {target} HTTP/1.1",
            "Accept: application/json, text/plain, */*",
            f"content-type: multipart/form-data; boundary={self.boundary}",
            "Transfer-Encoding: chunked",
        ]
        return self.exchange(head, chunked(form_data(content, self.boundary)))

    def recognize(self, content):
        query = "det_prob_threshold=0.8&face_plugins=gender,age"
        return self.upload(f"/api/v1/recognition/recognize?{query}", content)

    def train(self, name, content):
        # axios writes spaces as plus signs.
        target = f"/api/v1/recognition/faces?subject={quote(name).replace('%20', '+')}"
        return self.upload(target, content)

    def remove(self, name):
        target = f"/api/v1/recognition/faces?subject={quote(name)}"
        head = [f"DELETE {target} HTTP/1.1", "Accept: application/json, */*"]
        return self.exchange(head)

    @staticmethod
    def normalize(data, match=60, unknown=40):
        """What double-take makes of an answer, line by line."""
        if data.get("code") == 28:
            return []
        found = []
        for face in data["result"]:
            first = face["subjects"][0] if face["subjects"] else None
            confidence = float(f"{first['similarity'] * 100:.2f}") if first else 0.0
            known = first is not None and confidence >= unknown
            found.append(
                {
                    "name": first["subject"].lower() if known else "unknown",
                    "confidence": confidence,
                    "match": confidence >= match,
                    "width": face["box"]["x_max"] - face["box"]["x_min"],
                }
            )
        return found


def test_double_take_trains_recognises_and_removes(home, faces):
    double_take = DoubleTake(home)
    first = photograph(1, 3, "JPEG")
    # Before anybody is trained, everybody is unknown.
    status, data = double_take.recognize(first)
    assert status == 200
    assert [one["name"] for one in double_take.normalize(data)] == ["unknown"]
    for name, person in (("Ann Lee", 1), ("bob", 2), ("zoe", 3)):
        for image in (1, 2):
            status, data = double_take.train(name, photograph(person, image, "JPEG"))
            assert (status, data["subject"]) == (201, name)
    # The next request knows them.
    status, data = double_take.recognize(first)
    (found,) = double_take.normalize(data)
    assert (status, found["name"], found["match"]) == (200, "ann lee", True)
    assert found["width"] > 50
    # A stranger and two people on one frame of a camera.
    frame = on_a_wall(
        (faces[12], 2, 10, 10),
        (faces[92], 2, 10, 220),
        (faces[23], 1, 270, 100),
        shape=(400, 420),
    )
    status, data = double_take.recognize(encoded(frame))
    names = [one["name"] for one in double_take.normalize(data)]
    assert status == 200
    assert sorted(names) == ["bob", "unknown", "zoe"]
    # A wall.
    wall = encoded(np.full((300, 300), 90, dtype=np.uint8))
    status, data = double_take.recognize(wall)
    assert (status, data["code"]) == (400, 28)
    assert double_take.normalize(data) == []
    # Removed means unknown from now on.
    assert double_take.remove("Ann Lee") == (200, {"deleted": 2})
    _, data = double_take.recognize(first)
    (found,) = double_take.normalize(data)
    assert (found["name"], found["match"]) == ("unknown", False)


def test_strangers_are_unknown_and_people_are_found(people):
    for person in range(1, 10):
        (found,) = subjects_of(people.recognise(photograph(person, 5)))
        if person <= 6:
            assert [one["subject"] for one in found] == [f"s{person}"]
            assert 0.6 <= found[0]["similarity"] <= 1.0
        else:
            assert found == []


def test_a_match_has_runners_up_and_a_stranger_has_none(people):
    (found,) = subjects_of(people.recognise(photograph(1, 5), prediction_count=4))
    values = [one["similarity"] for one in found]
    assert len(found) == 4
    assert found[0]["subject"] == "s1"
    assert values == sorted(values, reverse=True)
    assert values[0] >= 0.6 > values[1]
    (found,) = subjects_of(people.recognise(photograph(8, 5), prediction_count=4))
    assert found == []


def test_similarity_follows_the_threshold_of_the_gallery(people):
    content = photograph(2, 5)
    (before,) = subjects_of(people.recognise(content))
    with people.service.client() as admin:
        place = f"/v1/galleries/{people.gallery}"
        own = admin.post(f"{place}/identify", files={"file": content}).json()
    (face,) = own["faces"]
    expected = similarity(face["score"], own["threshold"])
    assert before == [{"subject": "s2", "similarity": expected}]


def test_images_as_base64(people):
    text = base64.b64encode(photograph(3, 5)).decode()
    as_file = subjects_of(people.recognise(photograph(3, 5)))
    for given_text in (text, f"data:image/png;base64,{text}"):
        answer = people.http.post("/recognition/recognize", json={"file": given_text})
        assert subjects_of(answer) == as_file
    answer = people.http.post("/detection/detect", json={"file": text})
    assert len(answer_of(answer)["result"]) == 1
    body = {
        "source_image": text,
        "target_image": base64.b64encode(photograph(3, 6)).decode(),
    }
    answer = people.http.post("/verification/verify", json=body)
    (pair,) = answer_of(answer)["result"]
    assert pair["face_matches"][0]["similarity"] >= 0.6
    for wrong in ({"file": "no base64!"}, {"file": 3}, {}, {"image": text}):
        answer = people.http.post("/recognition/recognize", json=wrong)
        assert_error(answer, 400, 26)


def test_every_face_of_a_photograph(people, faces):
    wall = on_a_wall(
        (faces[4], 2, 10, 10),
        (faces[14], 1, 30, 220),
        (faces[94], 1, 250, 20),
        shape=(380, 340),
    )
    found = answer_of(people.recognise(encoded(wall)))["result"]
    names = [one["subjects"][0]["subject"] for one in found if one["subjects"]]
    assert len(found) == 3
    assert names == ["s1", "s2"]
    assert found[0]["box"]["x_max"] <= 10 + 2 * 92
    largest = answer_of(people.recognise(encoded(wall), limit=1))["result"]
    assert largest == found[:1]
    sure = max(one["box"]["probability"] for one in found)
    most = answer_of(people.recognise(encoded(wall), det_prob_threshold=sure - 1e-4))
    assert 1 <= len(most["result"]) < 3
    assert_error(people.recognise(encoded(wall), det_prob_threshold=1.0), 400, 28)


def test_a_photograph_of_two_people_is_not_enrolled(home, faces):
    wall = encoded(on_a_wall((faces[4], 1, 10, 10), (faces[14], 1, 10, 140)))
    assert_error(home.add("Ann", wall), 400, 31)
    answer = home.http.post(
        "/verification/verify", files={"source_image": wall, "target_image": wall}
    )
    assert_error(answer, 400, 31)
    # Nothing is left of her, not even the name.
    assert answer_of(home.http.get("/recognition/subjects")) == {"subjects": []}


def test_faces_below_the_confidence_are_not_enrolled(home):
    answer = home.http.post(
        "/recognition/faces?subject=Ann&det_prob_threshold=1.0",
        files={"file": photograph(1, 1)},
    )
    assert_error(answer, 400, 28)


@pytest.mark.parametrize(
    ("content", "code"), [(b"", 21), (b"no image", 21), (b"\x89PNG\r\n\x1a\n", 21)]
)
def test_what_is_no_image(people, content, code):
    assert_error(people.recognise(content), 400, code)
    assert_error(people.add("Ann", content), 400, code)


def test_bad_requests(people):
    http_client, file = people.http, {"file": photograph(1, 5)}
    for query in (
        "limit=-1",
        "limit=x",
        "det_prob_threshold=2",
        "det_prob_threshold=nan",
        "prediction_count=0",
        "status=perhaps",
    ):
        url = f"/recognition/recognize?{query}"
        assert_error(http_client.post(url, files=file), 400, 26)
    assert "subject" in assert_error(
        http_client.post("/recognition/faces", files=file), 400, 26
    )
    assert_error(http_client.post("/recognition/faces?subject=%07", files=file), 400)
    assert_error(http_client.post("/recognition/recognize", content=b"x"), 415)
    two = [("file", photograph(1, 5)), ("file", photograph(1, 6))]
    assert_error(http_client.post("/recognition/recognize", files=two), 400, 26)
    assert_error(http_client.post("/verification/verify", files=file), 400, 26)
    assert_error(http_client.post("/recognition/subjects", json={}), 400, 26)
    assert_error(http_client.post("/recognition/subjects", json={"subject": ""}), 400)
    assert_error(http_client.get("/recognition/faces?size=0"), 400, 26)
    assert_error(http_client.get("/recognition/recognize"), 405)
    assert_error(http_client.get("/recognition/nothing"), 404)
    for wrong in ("none", "0" * 32, str(uuid.uuid4())):
        assert_error(http_client.delete(f"/recognition/faces/{wrong}"), 404, 42)
        answer = http_client.post(f"/recognition/faces/{wrong}/verify", files=file)
        assert_error(answer, 404, 42)


def test_nobody_erases_everybody_by_leaving_out_a_name(people):
    before = answer_of(people.http.get("/recognition/faces?size=100"))
    for url in (
        "/recognition/faces",
        "/recognition/faces?subject=",
        "/recognition/faces/",
        "/recognition/subjects",
        "/recognition/subjects/",
    ):
        answer = people.http.delete(url, follow_redirects=True)
        assert "refused" in assert_error(answer, 400)
    assert answer_of(people.http.get("/recognition/faces?size=100")) == before
    assert before["total_elements"] == 12


def test_pages_of_faces(people):
    pages = [
        answer_of(people.http.get(f"/recognition/faces?page={n}&size=5"))
        for n in range(4)
    ]
    assert [len(one["faces"]) for one in pages] == [5, 5, 2, 0]
    assert {one["total_pages"] for one in pages} == {3}
    assert {one["total_elements"] for one in pages} == {12}
    assert [one["page_number"] for one in pages] == [0, 1, 2, 3]
    ids = [face["image_id"] for one in pages for face in one["faces"]]
    assert len(set(ids)) == 12
    own = answer_of(people.http.get("/recognition/faces?subject=s4"))
    assert [face["subject"] for face in own["faces"]] == ["s4", "s4"]
    assert own["total_elements"] == 2
    assert answer_of(people.http.get("/recognition/faces?subject=x"))["faces"] == []


@pytest.mark.parametrize("name", ["Zoë & Co.", "a/b", "50 %", "x?y#z", "né/ó", "+1"])
def test_names_with_special_characters(home, name):
    url = f"/recognition/subjects/{quote(name, safe='')}"
    answer_of(home.http.post("/recognition/subjects", json={"subject": name}), 201)
    assert answer_of(home.http.get("/recognition/subjects"))["subjects"] == [name]
    new = f"{name}/2"
    assert answer_of(home.http.put(url, json={"subject": new})) == {"updated": True}
    assert_error(home.http.put(url, json={"subject": "x"}), 404, 42)
    assert_error(home.http.delete(url), 404, 42)
    url = f"/recognition/subjects/{quote(new, safe='')}"
    assert answer_of(home.http.delete(url)) == {"subject": new}
    assert answer_of(home.http.get("/recognition/subjects/"))["subjects"] == []


def test_renaming_to_a_known_name_merges(home):
    home.enrol_orl([1, 2, 3])
    for image in (5, 6):
        home.add("Ann", photograph(1, image))
    before = answer_of(home.http.get("/recognition/faces?size=50"))
    revision = home.own("GET", "")["revision"]
    answer = home.http.put("/recognition/subjects/Ann", json={"subject": "s1"})
    assert answer_of(answer) == {"updated": True}
    after = answer_of(home.http.get("/recognition/faces?size=50"))
    assert answer_of(home.http.get("/recognition/subjects"))["subjects"] == [
        "s1",
        "s2",
        "s3",
    ]
    # The same samples, four of which are now of one person.
    ids = [[face["image_id"] for face in one["faces"]] for one in (before, after)]
    assert ids[0] == ids[1]
    assert [one["subject"] for one in after["faces"]].count("s1") == 4
    # The model knows it already.
    gallery = home.own("GET", "")
    assert gallery["revision"] == revision + 1
    assert gallery["model"]["current"]
    (found,) = subjects_of(home.recognise(photograph(1, 7), prediction_count=3))
    assert found[0]["subject"] == "s1"
    assert len(found) == 3
    with home.service.client() as admin:
        entries = admin.get(f"/v1/audit?gallery_id={home.gallery}&limit=500").json()
        assert "subject.merge" in [one["action"] for one in entries["items"]]
        assert admin.get("/v1/audit/check").json()["ok"]
    # All four go together.
    answer = home.http.delete("/recognition/faces?subject=s1")
    assert answer_of(answer) == {"deleted": 4}
    assert subjects_of(home.recognise(photograph(1, 7))) == [[]]


def test_a_merged_subject_keeps_the_earlier_expiry(home):
    for name, end in (("Ann", "2100-01-01T00:00:00Z"), ("Bob", None), ("Zoe", None)):
        home.own("POST", "/subjects", json={"name": name, "expires_at": end})
    home.http.put("/recognition/subjects/Bob", json={"subject": "Zoe"})
    home.http.put("/recognition/subjects/Ann", json={"subject": "Zoe"})
    (left,) = home.own("GET", "/subjects")["items"]
    assert left["name"] == "Zoe"
    assert left["expires_at"].startswith("2100-01-01")


def test_renaming_to_the_same_name_changes_nothing(home):
    home.http.post("/recognition/subjects", json={"subject": "Ann"})
    answer = home.http.put("/recognition/subjects/Ann", json={"subject": "Ann"})
    assert answer_of(answer) == {"updated": True}
    assert answer_of(home.http.get("/recognition/subjects"))["subjects"] == ["Ann"]


def test_deleting_writes_receipts(home):
    home.enrol_orl([1, 2, 3])
    first = answer_of(home.http.get("/recognition/faces"))["faces"][0]
    answer_of(home.http.delete(f"/recognition/faces/{first['image_id']}"))
    answer_of(home.http.delete("/recognition/faces?subject=s2"))
    answer_of(home.http.delete("/recognition/subjects/s3"))
    receipts = home.own("GET", "/erasures")["items"]
    assert sorted(one["kind"] for one in receipts) == ["sample", "subject", "subject"]
    assert sorted(one["counts"]["samples"] for one in receipts) == [1, 2, 2]
    assert all(one["model_after"] for one in receipts)


def test_a_key_sees_its_own_gallery_alone(people, service):
    other = Home(service)
    first = answer_of(people.http.get("/recognition/faces"))["faces"][0]
    path = f"/recognition/faces/{first['image_id']}"
    assert answer_of(other.http.get("/recognition/faces"))["total_elements"] == 0
    assert answer_of(other.http.get("/recognition/subjects"))["subjects"] == []
    assert subjects_of(other.recognise(photograph(1, 5))) == [[]]
    file = {"file": photograph(1, 5)}
    missing = f"/recognition/faces/{uuid.uuid4()}"
    # What is there, and what is nowhere, are told apart by nothing.
    for method, tail, options in (
        ("DELETE", "", {}),
        ("GET", "/img", {}),
        ("POST", "/verify", {"files": file}),
    ):
        answers = [
            other.http.request(method, url + tail, **options) for url in (path, missing)
        ]
        assert answers[0].json() == answers[1].json()
        assert [one.status_code for one in answers] == [404, 404]
    answer = other.http.delete("/recognition/faces?subject=s1")
    assert answer_of(answer) == {"deleted": 0}
    assert_error(other.http.delete("/recognition/subjects/s1"), 404)
    other.http.close()


def test_keys_and_scopes(service):
    home = Home(service, "identify")
    file = {"file": photograph(1, 1)}
    answer_of(home.http.post("/detection/detect", files=file))
    assert subjects_of(home.recognise(photograph(1, 1))) == [[]]
    for method, url in (
        ("GET", "/recognition/faces"),
        ("GET", "/recognition/subjects"),
        ("POST", "/recognition/faces?subject=Ann"),
        ("PUT", "/recognition/subjects/Ann"),
        ("DELETE", "/recognition/subjects/Ann"),
        ("DELETE", "/recognition/faces?subject=Ann"),
    ):
        options = {"json": {"subject": "x"}} if method == "PUT" else {}
        assert_error(home.http.request(method, url, **options), 403)
    for headers in ({}, {"x-api-key": "wrong"}):
        answer = httpx.get(
            f"{service.url}/api/v1/recognition/subjects", headers=headers
        )
        assert_error(answer, 401, 10)
    # A key for all galleries cannot say which one it means.
    answer = home.http.get("/recognition/subjects", headers={"x-api-key": service.key})
    assert "several galleries" in assert_error(answer, 400)
    home.http.close()


def test_a_key_for_all_galleries_uses_the_only_one(tmp_path):
    with ServiceProcess(tmp_path) as alone, alone.client() as admin:
        answer = admin.get("/api/v1/recognition/subjects")
        assert "no gallery" in assert_error(answer, 400)
        body = {"name": "Home", "inputs": "vectors"}
        assert admin.post("/v1/galleries", json=body).status_code == 201
        answer = admin.get("/api/v1/recognition/subjects")
        assert answer_of(answer) == {"subjects": []}


def test_galleries_of_crops(service):
    home = Home(service, inputs="crops", size=[32, 32])
    home.enrol_orl(range(1, 7), images=(1, 2, 3))
    options = {"detect_faces": "false", "face_plugins": "landmarks,calculator"}
    (face,) = answer_of(home.recognise(photograph(2, 4), **options))["result"]
    assert face["box"] == {
        "probability": 1.0,
        "x_min": 0,
        "y_min": 0,
        "x_max": 92,
        "y_max": 112,
    }
    assert set(face) == {"box", "subjects"}
    assert [one["subject"] for one in face["subjects"]] == ["s2"]
    first = answer_of(home.http.get("/recognition/faces"))["faces"][0]
    place = f"/recognition/faces/{first['image_id']}"
    (subject,) = home.own("GET", "/subjects?q=s1")["items"]
    for person in (1, 4):
        file = {"file": photograph(person, 6)}
        (found,) = answer_of(home.http.post(f"{place}/verify", files=file))["result"]
        own = home.own("POST", "/verify", files=file, data={"subject": subject["id"]})
        assert found["similarity"] == similarity(own["score"], own["threshold"])
    picture = home.http.get(f"{place}/img")
    with Image.open(io.BytesIO(picture.content)) as read:
        assert read.size == (32, 32)
    two = {"source_image": photograph(1, 1), "target_image": photograph(1, 2)}
    assert_error(home.http.post("/verification/verify", files=two), 400)
    answer = home.http.post(
        "/recognition/embeddings/recognize", json={"embeddings": [[1.0, 2.0]]}
    )
    assert_error(answer, 400)
    home.http.close()


def test_pictures_are_kept_if_the_gallery_asks_for_it(service, people):
    keeping = Home(service, keep_photographs=True)
    keeping.enrol_orl([1], images=[1])
    for home, kept in ((keeping, True), (people, False)):
        first = answer_of(home.http.get("/recognition/faces"))["faces"][0]
        answer = home.http.get(f"/recognition/faces/{first['image_id']}/img")
        if not kept:
            assert_error(answer, 404, 11)
            continue
        assert answer.headers["content-type"] == "image/jpeg"
        with Image.open(io.BytesIO(answer.content)) as read:
            assert read.size == (92, 112)
    keeping.http.close()


def test_strangers_are_kept_if_the_gallery_asks_for_it(service):
    home = Home(service, keep_strangers=True)
    home.enrol_orl([1, 2, 3])
    for person in (1, 9, 9, 9):
        home.recognise(photograph(person, 5))
    (group,) = home.own("GET", "/strangers")["items"]
    assert group["n_seen"] == 3
    home.http.close()


def vectors_of(home, person, image):
    answer = home.recognise(photograph(person, image), face_plugins="calculator")
    (face,) = answer_of(answer)["result"]
    return face["embedding"]


def test_embeddings_are_as_good_as_photographs(people):
    vectors = [vectors_of(people, person, 5) for person in (1, 2, 9)]
    answer = people.http.post(
        "/recognition/embeddings/recognize?prediction_count=2",
        json={"embeddings": vectors},
    )
    result = answer_of(answer)["result"]
    assert [one["embedding"] for one in result] == vectors
    by_image = [
        subjects_of(people.recognise(photograph(person, 5), prediction_count=2))[0]
        for person in (1, 2, 9)
    ]
    assert [one["similarities"] for one in result] == by_image
    first = answer_of(people.http.get("/recognition/faces"))["faces"][0]
    answer = people.http.post(
        f"/recognition/embeddings/faces/{first['image_id']}/verify",
        json={"embeddings": vectors},
    )
    values = [one["similarity"] for one in answer_of(answer)["result"]]
    assert values[0] >= 0.6 > max(values[1:])
    body = {"source": vectors_of(people, 1, 6), "targets": vectors}
    answer = people.http.post("/verification/embeddings/verify", json=body)
    values = [one["similarity"] for one in answer_of(answer)["result"]]
    assert values[0] >= 0.6 > max(values[1:])
    photographs = {"source_image": photograph(1, 6), "target_image": photograph(1, 5)}
    answer = people.http.post("/verification/verify", files=photographs)
    (pair,) = answer_of(answer)["result"]
    assert pair["face_matches"][0]["similarity"] == values[0]


@pytest.mark.parametrize("wrong", [[], [[]], [[1.0]], [[1.0, 2.0], [1.0]], [["x"]], 3])
def test_wrong_embeddings(people, wrong):
    url = "/recognition/embeddings/recognize"
    assert_error(people.http.post(url, json={"embeddings": wrong}), 400)
    body = {"source": [1.0, 2.0], "targets": wrong}
    assert_error(people.http.post("/verification/embeddings/verify", json=body), 400)


def test_galleries_of_vectors(service):
    home = Home(service, inputs="vectors")
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(9, 32))
    bulk = [
        {
            "subject": f"P{n}",
            "vector": (centres[n] + 0.2 * rng.normal(size=32)).tolist(),
        }
        for n in range(8)
        for _ in range(3)
    ]
    home.own("POST", "/samples?wait=model", json={"samples": bulk})
    answer = home.http.post(
        "/recognition/embeddings/recognize",
        json={"embeddings": centres[[3, 8]].tolist()},
    )
    known, unknown = answer_of(answer)["result"]
    assert [one["subject"] for one in known["similarities"]] == ["P3"]
    assert unknown["similarities"] == []
    assert_error(home.recognise(photograph(1, 1)), 400)
    assert_error(home.add("P1", photograph(1, 1)), 400)
    home.http.close()


def test_the_document_tells_of_every_route(service):
    paths = httpx.get(f"{service.url}/openapi.json").json()["paths"]
    found = {
        (method.upper(), path.removeprefix("/api/v1"))
        for path, methods in paths.items()
        for method in methods
        if path.startswith("/api/v1")
    }
    assert found >= {
        ("POST", "/recognition/recognize"),
        ("POST", "/recognition/embeddings/recognize"),
        ("POST", "/recognition/faces"),
        ("GET", "/recognition/faces"),
        ("DELETE", "/recognition/faces"),
        ("DELETE", "/recognition/faces/{image_id}"),
        ("POST", "/recognition/faces/{image_id}/verify"),
        ("GET", "/recognition/faces/{image_id}/img"),
        ("GET", "/recognition/subjects"),
        ("POST", "/recognition/subjects"),
        ("PUT", "/recognition/subjects/{subject}"),
        ("DELETE", "/recognition/subjects/{subject}"),
        ("POST", "/verification/verify"),
        ("POST", "/detection/detect"),
    }
