"""One hundred photographs, ten of them bad: one of each kind."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from dualqml.recognition import Recognizer
from tests.cli.commands import run_alone
from tests.cli.pictures import LEFT_OUT, NOTED, save_bad, save_people

#: Runs the command and prints the most memory that it has held.
_MEASURED = """
import sys
from dualqml.cli.main import main
from tests.peak_memory import peak_bytes
code = main(sys.argv[1:])
print("peak:", peak_bytes(), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(scope="module", autouse=True)
def _without_heic():
    if importlib.util.find_spec("pillow_heif"):
        pytest.skip("pillow-heif is installed, and reads HEIC photographs")


@pytest.fixture(scope="module")
def hundred(orl_faces, tmp_path_factory):
    """Ninety good photographs of nine people, and ten bad ones in the last folder."""
    folder = save_people(
        tmp_path_factory.mktemp("hundred") / "people", orl_faces, range(9), range(10)
    )
    save_bad(folder / "p09", orl_faces[9])
    assert len(list(folder.glob("*/*"))) == 100
    return folder


@pytest.fixture(scope="module")
def few(orl_faces, tmp_path_factory):
    """Two good photographs of one person, and ten bad ones of another."""
    folder = save_people(tmp_path_factory.mktemp("few"), orl_faces, [0], [0, 5])
    save_bad(folder / "p09", orl_faces[9])
    return folder


def measured(*arguments):
    """Run the command as a process; its exit code, output, messages and memory."""
    ended = subprocess.run(
        [sys.executable, "-c", _MEASURED, *map(str, arguments)],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
    )
    *said, last = ended.stderr.splitlines()
    title, peak = last.split()
    assert title == "peak:", ended.stderr
    return ended.returncode, ended.stdout, said, int(peak)


def assert_named_once(said):
    """Each bad file is in one line, which says why."""
    for start, files in (("note", NOTED), ("left out", LEFT_OUT)):
        for name, reason in files.items():
            (line,) = [line for line in said if name in line]
            assert line.startswith(f"dualqml: {start}: ")
            assert reason in line


def test_train_and_identify(hundred, tmp_path):
    model = tmp_path / "m.dualqml"
    code, out, said, peak = measured("train", hundred, "-o", model)
    assert code == 1
    assert_named_once(said)
    guess, *_, counts = said
    assert f"images in {hundred} are taken for photographs" in guess
    assert counts == "dualqml: 7 of 100 cannot be used. 93 are used."
    assert len(said) == 12
    assert out.startswith(f"{model}: 10 subjects, 93 samples.\n")
    assert peak < 1.5e9
    trained = Recognizer.load(model)
    assert sorted(trained.sample_names("p09")) == sorted(f"p09/{n}" for n in NOTED)

    code, out, said, peak = measured("identify", model, hundred, "--several", "error")
    assert code == 1
    assert_named_once(said)
    assert len(out.splitlines()) == 93
    right = [line for line in out.splitlines() if f": {line.split('/')[-2]} (" in line]
    assert said[-1] == (
        f"dualqml: 100 images, 93 answers: {len(right)} match"
        + (f", {93 - len(right)} unknown" if len(right) < 93 else "")
        + "; 7 left out"
    )
    assert len(right) >= 91
    assert len(said) == 11
    assert peak < 1.5e9


def test_stop_does_nothing(few, tmp_path, capsys):
    model = tmp_path / "m.dualqml"
    assert run_alone("train", few, "-o", model, "--on-bad", "stop") == 1
    assert not model.exists()
    assert list(tmp_path.iterdir()) == []
    shown = capsys.readouterr()
    assert shown.out == ""
    assert_named_once(shown.err.splitlines())
    assert shown.err.splitlines()[-1] == (
        "dualqml: 7 of 12 cannot be used. Nothing was done (--on-bad stop)."
    )


def test_skip_only_counts(few, tmp_path, capsys):
    model = tmp_path / "m.dualqml"
    assert run_alone("train", few, "-o", model, "--on-bad", "skip") == 0
    _, counts = capsys.readouterr().err.splitlines()
    assert counts == "dualqml: 7 of 12 cannot be used. 5 are used."
    before = model.read_bytes()
    # The photographs with three faces are those of one person.
    arguments = ["identify", model, few, "--on-bad"]
    assert run_alone(*arguments, "skip") == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 5 + 3
    (counts,) = shown.err.splitlines()
    assert counts == "dualqml: 12 images, 8 answers: 8 match; 6 left out"
    assert run_alone(*arguments, "stop") == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines()[-1] == (
        "dualqml: 6 of 12 cannot be used. Nothing was done (--on-bad stop)."
    )
    assert run_alone("enroll", model, "Ann", few / "p09", "--on-bad", "stop") == 1
    assert model.read_bytes() == before
    capsys.readouterr()
    assert run_alone("enroll", model, "Ann", few / "p09") == 1
    shown = capsys.readouterr()
    assert_named_once(shown.err.splitlines())
    assert shown.out.startswith("Ann: 3 samples added. 3 subjects are enrolled.\n")
    assert Recognizer.load(model).subjects() == ["Ann", "p00", "p09"]
