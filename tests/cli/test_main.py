import importlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dualqml import __version__
from dualqml.cli import main as module
from dualqml.cli.databases import COMMANDS
from dualqml.cli.main import build_parser, main

#: The two ways to start the command.
MODULE = [sys.executable, "-m", "dualqml"]
SCRIPT = [str(Path(sys.executable).with_name("dualqml"))]

posix = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"dualqml {__version__}\n"


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, (_, summary) in module._TABLE.items():
        assert f"{name} {summary}" in shown


def test_the_table_has_the_commands_of_all_groups():
    groups = {group for group, _ in module._TABLE.values()}
    found = {
        (group, name)
        for group in groups
        for name in importlib.import_module(f"dualqml.cli.{group}").COMMANDS
    }
    assert found == {(group, name) for name, (group, _) in module._TABLE.items()}


@pytest.mark.parametrize("name", module._TABLE)
def test_help_of_a_command(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    group, summary = module._TABLE[name]
    command = importlib.import_module(f"dualqml.cli.{group}").COMMANDS[name]
    assert shown.startswith(f"usage: dualqml {name} [-h] ")
    assert f"\n\n{summary}\n{command.details}" in shown
    assert "--json" in shown
    assert shown.endswith(f"\n\n{command.examples}\n")


@pytest.mark.parametrize("name", module._TABLE)
def test_every_example_can_be_parsed(name):
    group, _ = module._TABLE[name]
    command = importlib.import_module(f"dualqml.cli.{group}").COMMANDS[name]
    title, *lines = command.examples.splitlines()
    assert title == ("example:" if len(lines) == 1 else "examples:")
    for line in lines:
        words = shlex.split(line)
        assert words[:2] == ["dualqml", name]
        assert build_parser(name).parse_args(words[1:]).run is command.run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fly"], "argument COMMAND: invalid choice: 'fly'"),
        (["--fly"], "the following arguments are required: COMMAND"),
        (["reproduce", "--fly"], "unrecognized arguments: --fly"),
        (["verify"], "the following arguments are required: model, subject"),
    ],
)
def test_wrong_use_is_two(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("usage: dualqml")
    assert message in shown


def test_errors_are_a_sentence(capsys):
    assert main(["report", "no/such/folder"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dualqml: ")
    assert "No such file" in line


def test_warnings_are_a_sentence(capsys, monkeypatch):
    def warn(options):
        import warnings

        warnings.warn("careful\x1b", stacklevel=1)
        return 0

    monkeypatch.setitem(COMMANDS, "databases", COMMANDS["databases"]._replace(run=warn))
    assert main(["databases"]) == 0
    assert capsys.readouterr().err == "dualqml: warning: careful\ufffd\n"


def test_ctrl_c_while_a_command_runs(capsys, monkeypatch):
    def interrupted(options):
        raise KeyboardInterrupt

    command = COMMANDS["databases"]._replace(run=interrupted)
    monkeypatch.setitem(COMMANDS, "databases", command)
    assert main(["databases"]) == 130
    assert capsys.readouterr().err == "\ndualqml: interrupted\n"


def run_process(words, *paths, **options):
    path = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path.rstrip(os.pathsep)},
        **options,
    )


@pytest.mark.parametrize("start", [MODULE, SCRIPT], ids=["module", "script"])
def test_as_a_process(tmp_path, start):
    ended = run_process([*start, "databases", "--root", str(tmp_path)])
    assert ended.returncode == 0
    assert "orl: ORL, 40 subjects" in ended.stdout


#: Runs the command and prints the modules that it has imported.
_MODULES = """
import sys
from dualqml.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print("modules:", *sys.modules)
"""


def modules_of(*arguments):
    ended = run_process([sys.executable, "-c", _MODULES, *map(str, arguments)])
    *_, line = ended.stdout.splitlines()
    title, *names = line.split()
    assert title == "modules:", ended.stderr
    return set(names)


#: All that is imported to answer without a command.
PARSER = {"dualqml", "dualqml.cli", "dualqml.cli.main"}
HEAVY = {"joblib", "matplotlib", "numpy", "pandas", "scipy", "sklearn"}


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["fly"], []])
def test_only_the_parser_is_imported_without_a_command(arguments):
    names = modules_of(*arguments)
    assert {name for name in names if name.startswith("dualqml")} == PARSER
    assert "argparse" in names
    assert not names & HEAVY


@pytest.mark.parametrize(
    "name", sorted(set(module._TABLE) - {"reproduce", "train", "evaluate"})
)
def test_help_of_a_command_needs_no_numpy(name):
    # The others list the methods, and their classes come from scikit-learn.
    names = modules_of(name, "--help")
    assert f"dualqml.cli.{module._TABLE[name][0]}" in names
    assert not names & (HEAVY | {"dualqml.core", "dualqml.data", "dualqml.recognition"})


def rooms_of(*arguments):
    names = modules_of(*arguments)
    rooms = {name.split(".")[1] for name in names if name.startswith("dualqml.")}
    return rooms & {"data", "recognition", "experiments"}


def test_a_command_imports_only_what_it_runs(tmp_path):
    assert rooms_of("databases") == {"data"}
    assert rooms_of("subjects", tmp_path / "no.dualqml") == {"recognition"}
    assert "recognition" not in rooms_of("report", tmp_path)


#: Modules that interrupt their own import: as by Ctrl-C, and by one that Python
#: cannot raise because it comes in a callback of the garbage collection.
_RAISED = "import signal; signal.raise_signal(signal.SIGINT)"
_LOST = """
import signal, weakref
class Thing: pass
thing = Thing()
reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
del thing
"""


@posix
@pytest.mark.parametrize("start", [MODULE, SCRIPT], ids=["module", "script"])
@pytest.mark.parametrize("code", [_RAISED, _LOST], ids=["raised", "lost"])
@pytest.mark.parametrize("imported", ["argparse", "textwrap", "numpy"])
def test_ctrl_c_during_imports(tmp_path, start, code, imported):
    # For the parser, for the module of the command, and for the rooms it needs.
    (tmp_path / f"{imported}.py").write_text(code)
    ended = run_process([*start, "databases"], tmp_path)
    assert ended.stderr == "\ndualqml: interrupted\n"
    assert ended.stdout == ""
    assert ended.returncode == 130


def test_nothing_is_imported_before_ctrl_c_is_caught():
    code = (
        "import sys, dualqml; before = set(sys.modules); import dualqml.cli.main; "
        "print(*sorted(set(sys.modules) - before))"
    )
    ended = run_process([sys.executable, "-c", code])
    assert ended.stdout.split() == ["dualqml.cli", "dualqml.cli.main"]


def test_other_errors_that_cannot_be_raised_are_reported(tmp_path):
    lost = _LOST.replace("signal.raise_signal(signal.SIGINT)", "1 / 0")
    (tmp_path / "textwrap.py").write_text(lost + "\nraise SystemExit(5)")
    ended = run_process([*MODULE, "databases"], tmp_path)
    assert ended.returncode == 5
    assert "Exception ignored in" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr


@posix
def test_a_reader_that_goes_away():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        ended = subprocess.run(
            [*MODULE, "databases"], stdout=pipe, stderr=subprocess.PIPE, text=True
        )
    assert ended.stderr == ""
    assert ended.returncode == 128 + signal.SIGPIPE
