"""The page on the service is true: its commands are run, and its files are checked."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dualqml.service.app import create_app
from dualqml.service.settings import Settings
from tests.photographs import load_faces, on_a_wall
from tests.service.process import ServiceProcess
from tests.test_documents import ROOT, text_of

PAGE = "docs/service.md"
PEOPLE = {"Ann": 0, "Bob": 1}


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", text_of(PAGE), re.DOTALL)


def photograph(person, sample, path):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    face = load_faces()[10 * person + sample]
    Image.fromarray(on_a_wall((face, 2, 20, 40))).save(path, quality=95)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with ServiceProcess(tmp_path_factory.mktemp("documents")) as running:
        yield running


@pytest.fixture
def folder(tmp_path):
    """Photographs as the page names them; the one of the door shows Bob."""
    for name, person in PEOPLE.items():
        for sample in (1, 2):
            photograph(person, sample, tmp_path / "people" / name / f"{sample}.jpg")
    photograph(PEOPLE["Bob"], 5, tmp_path / "door.jpg")
    return tmp_path


def run(script, service, folder):
    here = Path(sys.executable).parent
    environment = os.environ | {
        "URL": service.url,
        "KEY": service.key,
        "PATH": f"{here}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq"
)
def test_the_door_camera_recognises_and_a_receipt_is_right(service, folder):
    erase = re.search(r"^    (curl .*receipt\.json)$", text_of(PAGE), re.MULTILINE)[1]
    check = re.findall(r"^    (dualqml (?:export|receipt) .*)$", text_of(PAGE), re.M)
    assert len(check) == 2
    check[0] += f" --data {service.data}"
    find = (
        'SUBJECT=$(curl -sS -H "x-api-key: $KEY" '
        '"$URL/v1/galleries/$GALLERY/subjects?q=Ann" | jq -r .items[0].id)'
    )
    shown = run("\n".join([*blocks("bash"), find, erase, *check]), service, folder)
    outcomes = [json.loads(line) for line in shown[:3]]
    assert outcomes == [
        ["Ann/1.jpg", "enrolled", None],
        ["Ann/2.jpg", "enrolled", None],
        ["Bob/1.jpg", "enrolled", None],
    ]
    decision, name, score = json.loads(shown[3])
    assert (decision, name) == ("match", "Bob")
    assert score > 0
    assert "is right" in shown[-1]


def test_faces_move_from_a_service_with_the_same_routes(service, folder, capsys):
    move = runpy.run_path(str(ROOT / "examples" / "move_from_compreface.py"))["main"]
    keys = []
    with service.client() as client:
        for name in ("old", "new"):
            body = {"name": name, "keep_photographs": name == "old"}
            gallery = client.post("/v1/galleries", json=body).json()["id"]
            wanted = {"label": name, "scopes": ["enrol"], "gallery_id": gallery}
            keys.append(client.post("/v1/keys", json=wanted).json()["key"])
        old, new = (service.client(key=key) for key in keys)
        with old, new:
            for name in PEOPLE:
                for sample in (1, 2):
                    path = folder / "people" / name / f"{sample}.jpg"
                    old.post(
                        "/api/v1/recognition/faces",
                        params={"subject": name},
                        files={"file": path.read_bytes()},
                    ).raise_for_status()
            assert move(service.url, keys[0], service.url, keys[1]) == 0
            assert "4 faces are enrolled, 0 were left out" in capsys.readouterr().out
            found = new.get("/api/v1/recognition/faces").json()["faces"]
            assert [face["subject"] for face in found] == ["Ann", "Ann", "Bob", "Bob"]
            # Nothing of the new gallery was saved: all are left out.
            assert move(service.url, keys[1], service.url, keys[1]) == 4
            assert "does not keep photographs" in capsys.readouterr().err


def test_the_table_of_routes_names_routes_that_exist():
    document = create_app(Settings("unused")).openapi()["paths"]
    rows = re.findall(r"^\| (.*?) \|", text_of(PAGE), re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"[a-z]+", row)}
    own = {path.split("/")[4] for path in document if path.count("/") > 3}
    kinds = {"samples", "subjects", "identify", "verify", "detect", "calibrations"}
    kinds |= {"health", "evaluation", "strangers", "erasures", "jobs", "export"}
    assert kinds <= own
    assert kinds <= named
    for path in re.findall(r"`(/v1/\w+)`", text_of(PAGE)):
        assert path in document, path


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")
def test_the_unit_of_systemd_is_right(tmp_path):
    (unit,) = blocks("ini")
    path = tmp_path / "dualqml.service"
    # The program must be there.
    path.write_text(unit.replace("/opt/dualqml/bin/dualqml", shutil.which("true")))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "dualqml.service" not in done.stderr
    assert done.returncode == 0, done.stderr


def test_the_files_in_yaml_can_be_read():
    client, compose = map(yaml.safe_load, blocks("yaml"))
    assert client["detectors"]["compreface"]["url"].endswith(":8420")
    own = compose["services"]["dualqml"]
    assert own["ports"] == ["127.0.0.1:8420:8420"]
    assert set(compose["volumes"]) == {"dualqml"}
