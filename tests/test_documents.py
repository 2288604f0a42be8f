"""What the documents show is what happens."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def examples(name):
    """The Python blocks of a document, one after the other."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


def output_of(code):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "example", "exec"), {})
    return out.getvalue()


def test_readme_example_prints_what_the_readme_says():
    pytest.importorskip("PIL")
    printed = output_of(examples("README.md"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    promised = re.findall(r"^    (\S.*?)\s+([\d.]+) % errors$", readme, re.MULTILINE)
    got = re.findall(r"^(\S.*?)\s+([\d.]+) % errors$", printed, re.MULTILINE)
    assert [name for name, _ in got] == [name for name, _ in promised]
    for (_, ours), (_, theirs) in zip(got, promised, strict=True):
        # Three images of 320, for other versions of the libraries.
        assert float(ours) == pytest.approx(float(theirs), abs=1.0)
    gap = re.search(r"largest duality gap\s+(\S+)", printed)[1]
    assert float(gap) <= 1e-6


def test_quickstart_example_runs():
    pytest.importorskip("PIL")
    printed = output_of(examples("docs/quickstart.md"))
    assert float(printed.split()[0]) < 25.0


def test_examples_of_the_competitors_run():
    pytest.importorskip("PIL")
    printed = output_of(examples("docs/competitors.md"))
    assert len(printed.splitlines()) == 3
    assert printed.startswith("LDA")


def test_examples_of_the_lead_run():
    pytest.importorskip("PIL")
    printed = output_of(examples("docs/dual_qml_w.md"))
    pixels, local = (float(e) for e in re.findall(r"([\d.]+) % errors", printed))
    assert local < 10.0 < pixels < 20.0


def test_examples_of_the_experiments_run():
    pytest.importorskip("PIL")
    printed = output_of(examples("docs/experiments.md"))
    errors = [float(e) for e in re.findall(r"([\d.]+) % errors", printed)]
    assert len(errors) == 2
    assert max(errors) < 25.0
    assert printed.endswith("2 paired splits\n")


def test_examples_of_the_data_page_run():
    pytest.importorskip("PIL")
    assert output_of(examples("docs/data.md")) == "(400, 32, 32) 40 people\n"


def test_examples_of_recognition_run():
    pytest.importorskip("PIL")
    lines = output_of(examples("docs/recognition.md")).splitlines()
    assert lines[0].startswith("threshold ")
    assert lines[1:] == ["match s4", "no match", "unknown"]
