import os
import subprocess
import sys

import pytest

from dualqml import __version__
from dualqml.cli import main as module
from dualqml.cli.main import build_parser, main


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"dualqml {__version__}\n"


@pytest.mark.parametrize("command", ["reproduce", "databases", "report"])
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"dualqml {command}" in capsys.readouterr().out.split("example")[1]


def test_every_example_can_be_parsed():
    parser = build_parser()
    for command in module._COMMANDS:
        lines = command.EXAMPLES.splitlines()[1:]
        assert lines
        for line in lines:
            words = line.split()
            assert words[0] == "dualqml"
            assert parser.parse_args(words[1:]).run is command.run


@pytest.mark.parametrize("arguments", [[], ["fly"], ["reproduce", "--fly"]])
def test_wrong_use_is_two(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: dualqml" in capsys.readouterr().err


def test_errors_are_a_sentence(capsys, monkeypatch):
    assert main(["report", "no/such/folder"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("dualqml: ")
    assert "No such file" in shown
    assert "Traceback" not in shown

    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(module._COMMANDS[1], "run", interrupted)
    assert main(["databases"]) == 130


def test_as_a_process(tmp_path):
    for start in ([sys.executable, "-m", "dualqml"], ["dualqml"]):
        path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
        ended = subprocess.run(
            [*start, "databases", "--root", str(tmp_path)],
            capture_output=True,
            text=True,
            env=os.environ | {"PATH": path},
        )
        assert ended.returncode == 0
        assert "orl: ORL, 40 subjects" in ended.stdout


def test_a_reader_that_goes_away(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "dualqml", "databases"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.wait()
