import ast
import io
from pathlib import Path

import pytest

from dualqml import cli
from dualqml.cli._output import ProgressLine, describe, duration, say, say_json
from dualqml.experiments.protocol import Experiment
from dualqml.experiments.results import Result
from dualqml.experiments.runner import Progress
from tests.people import make_people


@pytest.mark.parametrize("error", [False, True])
def test_lines_without_control_characters(capsys, error):
    say("Zo\u00eb\x1b[2J\n  two\u202e\ttabs", error=error)
    shown = capsys.readouterr()
    text = shown.err if error else shown.out
    assert text == "Zo\u00eb\ufffd[2J\n  two\ufffd tabs\n"
    assert (shown.out if error else shown.err) == ""


def test_json(capsys):
    say_json({"Zo\u00eb": ["\x1b[2J"]})
    assert capsys.readouterr().out == '{\n  "Zo\\u00eb": [\n    "\\u001b[2J"\n  ]\n}\n'
    say_json(["Zo\u00eb\u202e"], ensure_ascii=False)
    assert capsys.readouterr().out == '[\n  "Zo\u00eb\ufffd"\n]\n'


def test_commands_print_by_it_alone():
    """Only text that is the same every time may be printed otherwise."""
    for file in Path(cli.__file__).parent.glob("*.py"):
        if file.name == "_output.py":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                constant = all(isinstance(text, ast.Constant) for text in node.args)
                assert node.func.id != "print" or constant, file


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (89.0, "89 s"),
        (100, "2 min"),
        (3600, "60 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_description():
    unit = Experiment({"people": make_people()}, sizes=(2,)).units[0]
    last = Result(unit, "done", error=0.0)
    text = describe(Progress(30, 2, 120, 95.0, last))
    assert text == "30/120 (25 %), 2 failed, about 2 min left, people m=2 APCA"
    assert describe(Progress(0, 0, 120)) == "0/120 (0 %)"
    assert "left" not in describe(Progress(120, 0, 120, 0.0))


def test_a_terminal_sees_one_line(monkeypatch):
    moment = iter(range(100))
    monkeypatch.setattr("time.monotonic", lambda: next(moment))
    stream = Terminal()
    line = ProgressLine(stream)
    line(Progress(1, 1, 10, 80.0))
    line(Progress(10, 0, 10))
    line.close()
    shown = stream.getvalue()
    assert shown.count("\n") == 1
    assert shown.count("\r") == 2
    # The shorter text covers the longer one.
    first, second = shown.strip("\r\n").split("\r")
    assert len(second) >= len(first.rstrip())


def test_a_log_file_gets_a_line_now_and_then(monkeypatch):
    moment = iter([0.0, 1.0, 20.0, 21.0, 22.0])
    monkeypatch.setattr("time.monotonic", lambda: next(moment))
    stream = io.StringIO()
    line = ProgressLine(stream)
    for done in (1, 2, 3, 10):
        line(Progress(done, 0, 10))
    line.close()
    assert stream.getvalue() == "2/10 (20 %)\n10/10 (100 %)\n"
