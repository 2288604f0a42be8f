"""Erased means erased: everything that a service has written is searched for it."""

import io
import json
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from dualqml.cli.main import main
from dualqml.data.orl import orl_files
from dualqml.service.transfer import check_receipt
from tests.service.process import ServiceProcess

NAME = "Quillon Zebrawood"
WIDTH = 64
PEOPLE = np.random.default_rng(5).normal(size=(12, WIDTH))


def samples(person, count=3):
    rng = np.random.default_rng(100 + person)
    own = PEOPLE[person] + 0.2 * rng.normal(size=(count, WIDTH))
    return own.astype(np.float32)


def new_gallery(client, **options):
    body = {"name": "Office", "inputs": "vectors"} | options
    found = client.post("/v1/galleries", json=body)
    found.raise_for_status()
    return f"/v1/galleries/{found.json()['id']}"


def enrol_others(client, gallery, people=range(1, 9)):
    bulk = [
        {"subject": f"Person {person}", "vector": row.tolist()}
        for person in people
        for row in samples(person)
    ]
    found = client.post(f"{gallery}/samples?wait=model", json={"samples": bulk})
    found.raise_for_status()


def enrol(client, gallery, rows, name=NAME):
    found = client.post(f"{gallery}/subjects", json={"name": name}).json()
    place = f"{gallery}/subjects/{found['id']}"
    answer = client.post(
        f"{place}/samples?wait=model",
        json={"vectors": [row.tolist() for row in rows]},
        headers={"Idempotency-Key": "once"},
    )
    answer.raise_for_status()
    return place


def traces(rows):
    """What a file must not have: the name in two encodings, and any template."""
    return [NAME.encode(), NAME.encode("utf-16-le"), *(row.tobytes() for row in rows)]


def found_in(service, wanted):
    return [
        path
        for path, content in service.files().items()
        if any(one in content for one in wanted)
    ]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """One service for all tests: what one of them has erased, none may find."""
    with ServiceProcess(tmp_path_factory.mktemp("erasure")) as running:
        yield running


def test_nothing_of_a_person_is_left_after_an_erasure(service):
    rows = samples(0)
    with service.client() as client:
        gallery = new_gallery(client, keep_strangers=True)
        enrol_others(client, gallery)
        place = enrol(client, gallery, rows)
        seen = client.post(f"{gallery}/identify", json={"vector": rows[0].tolist()})
        assert seen.json()["faces"][0]["subject"]["name"] == NAME
        # It is there before: in the database or its log, and in the model.
        assert len(found_in(service, traces(rows))) >= 2
        client.post(f"{gallery}/health").raise_for_status()
        client.get(f"{gallery}/export").raise_for_status()
        receipt = client.delete(place)
        receipt.raise_for_status()
        assert receipt.json()["counts"]["samples"] == 3
        assert found_in(service, traces(rows)) == []
        # The person comes by again, and must not be kept as a stranger here.
        client.patch(gallery, json={"keep_strangers": False}).raise_for_status()
        again = client.post(f"{gallery}/identify", json={"vector": rows[0].tolist()})
        assert NAME not in again.text
        assert client.get(place).status_code == 404
        # The same request may not bring the person back.
        assert NAME not in client.get(f"{gallery}/subjects").text
    # A kill leaves nothing either.
    service.kill()
    assert found_in(service, traces(rows)) == []
    service.start()
    assert found_in(service, traces(rows)) == []


def test_an_erasure_that_is_interrupted_is_finished_at_the_next_start(service):
    rows = samples(0)
    with service.client() as client:
        gallery = new_gallery(client)
        enrol_others(client, gallery)
        place = enrol(client, gallery, rows)
        sent = threading.Thread(target=_ignore_errors, args=(client.delete, place))
        sent.start()
        # As soon as the rows are gone, and usually before the receipt.
        while client_status(service, place) == 200:
            pass
        service.kill()
        sent.join()
    service.start()
    with service.client() as client:
        receipts = client.get(f"{gallery}/erasures").json()["items"]
        while not receipts:
            receipts = client.get(f"{gallery}/erasures").json()["items"]
        assert client.get(place).status_code == 404
    assert found_in(service, traces(rows)) == []


def client_status(service, place):
    with service.client() as client:
        return client.get(place).status_code


def _ignore_errors(call, *arguments):
    with suppress(httpx.HTTPError):
        call(*arguments)


def test_pictures_and_strangers_are_erased(service):
    files = orl_files()

    def picture(person, image):
        stream = io.BytesIO()
        with Image.open(files[person, image]) as read:
            read.save(stream, "PNG")
        return stream.getvalue()

    with service.client() as client:
        gallery = new_gallery(
            client, inputs="crops", keep_photographs=True, keep_strangers=True
        )
        form = [
            ("files", (f"p{person}/{image}.png", picture(person, image), "image/png"))
            for person in range(1, 7)
            for image in (1, 2, 3)
        ]
        client.post(f"{gallery}/samples?wait=model", files=form).raise_for_status()
        # Somebody whom nobody knows.
        seen = client.post(
            f"{gallery}/identify", files={"file": ("a.png", picture(30, 1))}
        ).json()
        stranger = seen["faces"][0]["stranger_id"]
        assert stranger is not None
        image = client.get(f"{gallery}/strangers/{stranger}/image")
        assert image.headers["content-type"] == "image/png"
        receipt = client.delete(f"{gallery}/strangers/{stranger}").json()
        assert receipt["counts"]["strangers"] == 1
        assert client.get(f"{gallery}/strangers").json()["total"] == 0
        one = client.get(f"{gallery}/subjects?q=p3").json()["items"][0]
        own = client.get(f"{gallery}/subjects/{one['id']}/samples").json()["items"]
        shown = client.get(f"{gallery}/samples/{own[0]['id']}/image").content
        row = np.asarray(Image.open(io.BytesIO(shown))).tobytes()
        assert found_in(service, [row])
        receipt = client.delete(f"{gallery}/samples/{own[0]['id']}").json()
        assert receipt["counts"] == {
            "subjects": 0,
            "samples": 1,
            "photographs": 0,
            "strangers": 0,
        }
        assert found_in(service, [row]) == []
        assert client.delete(gallery).json()["kind"] == "gallery"
        assert client.get(gallery).status_code == 404
    own_folder = Path(gallery).name
    assert own_folder not in [path.name for path in service.data.rglob("*")]


def test_a_receipt_can_be_checked_by_anybody_who_has_the_gallery(
    service, tmp_path, capsys
):
    with service.client() as client:
        gallery = new_gallery(client)
        enrol_others(client, gallery)
        # By hand, so that no threshold is measured again between the two requests.
        client.post(f"{gallery}/calibrations", json={"threshold": 1.5})
        place = enrol(client, gallery, samples(0))
        before = client.get(f"{gallery}/export").content
        receipt = client.delete(place).json()
        after = client.get(f"{gallery}/export").content
    assert check_receipt(receipt, after)
    assert not check_receipt(receipt, before)
    assert not check_receipt(receipt | {"completed_at": "2020"}, after)
    (tmp_path / "receipt.json").write_text(json.dumps(receipt))
    (tmp_path / "after").write_bytes(after)
    (tmp_path / "before").write_bytes(before)
    words = ["receipt", str(tmp_path / "receipt.json")]
    assert main([*words, str(tmp_path / "after")]) == 0
    assert "is right" in capsys.readouterr().out
    assert main([*words, str(tmp_path / "before")]) == 1


def test_retention_erases_by_itself(service):
    rows = samples(0)
    with service.client() as client:
        gallery = new_gallery(client)
        enrol_others(client, gallery)
        place = enrol(client, gallery, rows)
        client.patch(place, json={"expires_at": "2020-01-01T00:00:00Z"})
        receipts = []
        while not receipts:
            receipts = client.get(f"{gallery}/erasures").json()["items"]
        assert receipts[0]["kind"] == "retention"
    assert found_in(service, traces(rows)) == []


def test_an_export_that_is_being_sent_stops_when_somebody_is_erased(service):
    rng = np.random.default_rng(8)
    with service.client() as client, service.client() as slow:
        gallery = new_gallery(client)
        # More than the system keeps for a client that does not read. There is no model
        # of one person, so nothing has to be fitted.
        for _ in range(4):
            rows = rng.integers(1, 10, size=(600, 4096)).tolist()
            bulk = [{"subject": "Only One", "vector": row} for row in rows]
            answer = client.post(f"{gallery}/samples", json={"samples": bulk})
        sample = answer.json()["outcomes"][0]["sample_id"]
        with slow.stream("GET", f"{gallery}/export") as export:
            promised = int(export.headers["content-length"])
            parts = export.iter_raw(1 << 16)
            got = [next(parts)]
            client.delete(f"{gallery}/samples/{sample}").raise_for_status()
            with pytest.raises(httpx.RemoteProtocolError):
                got.extend(parts)
            assert sum(map(len, got)) < promised
        # Without an erasure it arrives whole.
        assert len(client.get(f"{gallery}/export").content) > 35_000_000
