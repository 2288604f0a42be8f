import io

import pytest

from dualqml.cli._progress import ProgressLine, describe, duration
from dualqml.experiments.protocol import Experiment
from dualqml.experiments.results import Result
from dualqml.experiments.runner import Progress
from tests.people import make_people


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
