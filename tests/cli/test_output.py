import ast
import io
import unicodedata
from pathlib import Path

import pytest

from dualqml import cli
from dualqml.cli._output import (
    Progress,
    ProgressLine,
    describe,
    duration,
    say,
    say_json,
)
from dualqml.experiments.protocol import Experiment
from dualqml.experiments.results import Result
from dualqml.experiments.runner import Progress as RunState
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
    text = describe(RunState(30, 2, 120, 95.0, last))
    assert text == "30/120 (25 %), 2 failed, about 2 min left, people m=2 APCA"
    assert describe(RunState(0, 0, 120)) == "0/120 (0 %)"
    assert "left" not in describe(RunState(120, 0, 120, 0.0))


@pytest.fixture
def clock(monkeypatch):
    """The time, which only the tests change."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def screen(shown, columns=80):
    """What a terminal with one line shows of it in the end."""
    cells = [" "] * columns
    place = 0
    for char in shown:
        assert char.isprintable() or char == "\r"
        if char == "\r":
            place = 0
            continue
        if unicodedata.combining(char):
            cells[place - 1] += char
            continue
        wide = 2 if unicodedata.east_asian_width(char) in "FW" else 1
        # A full line would go on below, and could not be overwritten.
        assert place + wide < columns
        cells[place : place + wide] = [char, ""][:wide]
        place += wide
    return "".join(cells).rstrip()


def test_a_terminal_sees_one_line(clock):
    stream = Terminal()
    line = ProgressLine(stream)
    line(RunState(1, 1, 10, 80.0))
    assert screen(stream.getvalue()) == "1/10 (10 %), 1 failed, about 80 s left"
    clock(0.05)  # too early for the next
    line(RunState(2, 1, 10, 70.0))
    clock(0.05)
    line(RunState(10, 0, 10))
    # The shorter text covers the longer one.
    assert screen(stream.getvalue()) == "10/10 (100 %)"
    assert stream.getvalue().count("\r") == 2
    line.close()
    assert screen(stream.getvalue()) == ""
    assert stream.getvalue().endswith("\r")


def test_a_log_file_gets_a_line_now_and_then(clock):
    stream = io.StringIO()
    line = ProgressLine(stream)
    for done, seconds in ((1, 1.0), (2, 19.0), (3, 1.0), (10, 1.0)):
        clock(seconds)
        line(RunState(done, 0, 10))
    line.close()
    assert stream.getvalue() == "2/10 (20 %)\n10/10 (100 %)\n"


def test_a_short_step_shows_nothing(clock):
    stream = Terminal()
    with Progress("Reading", 10, stream=stream) as progress:
        for _ in range(10):
            clock(0.19)
            progress.advance()
    assert stream.getvalue() == ""
    assert progress.done == 10


def test_a_long_step_shows_what_is_left(clock):
    stream = Terminal()
    with Progress("Reading photographs", 120, stream=stream) as progress:
        clock(10.0)
        progress.advance(20)
        shown = "Reading photographs: 20/120 (16 %), about 50 s left"
        assert screen(stream.getvalue()) == shown
        clock(5.0)
        progress.advance(100)
        assert screen(stream.getvalue()) == "Reading photographs: 120/120 (100 %)"
    assert screen(stream.getvalue()) == ""


def test_progress_as_a_callback(clock):
    stream = Terminal()
    progress = Progress("Measuring", stream=stream)
    clock(3.0)
    progress(1)
    assert screen(stream.getvalue()) == "Measuring: 1"
    clock(3.0)
    progress(2, 4)
    assert screen(stream.getvalue()) == "Measuring: 2/4 (50 %), about 6 s left"
    progress.close()
    assert screen(stream.getvalue()) == ""


def test_the_line_goes_away_after_an_error(clock):
    stream = Terminal()

    def read():
        with Progress("Reading", 2, stream=stream) as progress:
            clock(3.0)
            progress.advance()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read()
    assert "1/2" in stream.getvalue()
    assert screen(stream.getvalue()) == ""


@pytest.mark.parametrize(
    ("stream", "options"),
    [(io.StringIO(), {}), (Terminal(), {"quiet": True})],
    ids=["no terminal", "quiet"],
)
def test_silence(clock, stream, options):
    with Progress("Reading", 2, stream=stream, **options) as progress:
        for _ in range(2):
            clock(100.0)
            progress.advance()
    assert stream.getvalue() == ""


def test_a_log_that_was_asked_for(clock):
    stream = io.StringIO()
    with Progress("Reading\x1b", 4, log=True, stream=stream) as progress:
        for _ in range(4):
            clock(10.0)
            progress.advance()
    first, last = stream.getvalue().splitlines()
    assert first == "Reading\ufffd: 2/4 (50 %), about 20 s left"
    assert last == "Reading\ufffd: 4/4 (100 %)"
    stream = io.StringIO()
    with Progress("Reading", 4, log=True, stream=stream) as progress:
        progress.advance(4)
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("title", "columns", "shown"),
    [
        ("Reading", 30, "30/40 (75 %), about 1 s left"),
        ("Reading", 80, "Reading: 30/40 (75 %), about 1 s left"),
        ("Reading", 12, "30/40 (75 %"),
        ("Reading", 2, "3"),
        ("\u4e2d" * 20, 80, "\u4e2d" * 20 + ": 30/40 (75 %), about 1 s left"),
        ("\u4e2d" * 30, 80, "30/40 (75 %), about 1 s left"),
        ("Zoe\u0308\x1b[2J", 80, "Zoe\u0308\ufffd[2J: 30/40 (75 %), about 1 s left"),
    ],
)
def test_the_line_fits_into_the_terminal(clock, monkeypatch, title, columns, shown):
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    with Progress(title, 40, stream=stream) as progress:
        clock(3.0)
        progress.advance(30)
        assert screen(stream.getvalue(), columns) == shown
    assert screen(stream.getvalue(), columns) == ""


def test_characters_that_a_terminal_cannot_show(clock):
    class Old(Terminal):
        encoding = "ascii"

    stream = Old()
    with Progress("Zo\u00eb", stream=stream) as progress:
        clock(3.0)
        progress.advance(7)
        assert screen(stream.getvalue()) == "Zo?: 7"


def test_other_output_takes_the_place_of_the_line(clock, capsys):
    stream = Terminal()
    with Progress("Reading", 40, stream=stream) as progress:
        clock(3.0)
        progress.advance(10)
        say("careful", error=True)
        assert screen(stream.getvalue()) == ""
        clock(1.0)
        progress.advance(10)
        assert screen(stream.getvalue()).startswith("Reading: 20/40")
    assert capsys.readouterr().err == "careful\n"
    say("done")  # the line is not there any more
    assert screen(stream.getvalue()) == ""
