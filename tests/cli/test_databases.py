import json

import numpy as np

from dualqml.cli.main import main
from dualqml.data import DATABASES


def test_all_are_listed_with_what_they_expect(capsys, tmp_path):
    (tmp_path / "pie").mkdir()
    np.savez(tmp_path / "ar.npz", images=np.zeros((1, 2, 2), np.uint8), labels=[0])
    assert main(["databases", "--root", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for name, info in DATABASES.items():
        assert f"{name}: {info.title}" in shown
    squeezed = "".join(shown.split())
    assert "".join(f"found: {tmp_path / 'ar.npz'}".split()) in squeezed
    assert "".join(f"found: {tmp_path / 'pie'}".split()) in squeezed
    assert shown.count("not found; to get it") == 5
    assert "m in the paper: 2, 4, 6, 8" in shown


def test_json(capsys):
    assert main(["databases", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["name"] for record in records] == list(DATABASES)
    found = {record["name"]: record["found"] for record in records}
    assert found.pop("orl") == "embedded"
    assert set(found.values()) == {None}
