import importlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from dualqml import __version__
from dualqml.cli import _choices, exit_codes
from dualqml.cli.databases import COMMANDS
from dualqml.cli.main import TABLE, build_parser, main
from dualqml.experiments.protocol import ProtocolKind
from dualqml.extractors.method_names import METHOD_NAMES, VECTOR_METHOD_NAMES
from dualqml.extractors.methods import METHODS, VECTOR_METHODS
from dualqml.images.photometry import Photometry

#: The two ways to start the command.
MODULE = [sys.executable, "-m", "dualqml"]
SCRIPT = [str(Path(sys.executable).with_name("dualqml"))]

posix = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"dualqml {__version__}\n"


def command_of(name):
    return importlib.import_module(f"dualqml.cli.{TABLE[name].group}").COMMANDS[name]


def help_of(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 0


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(arguments, capsys):
    help_of(*arguments)
    shown = capsys.readouterr().out
    line = " ".join(shown.split())
    for name, row in TABLE.items():
        assert f" {name} {row.summary}" in line
    titles = [text for text in shown.splitlines() if text.endswith(":")]
    assert titles == [
        "recognise people:",
        "run a service:",
        "measure:",
        "shell:",
        "options:",
        "exit codes:",
    ]
    for code in (0, 1, 2, 3, 4, 130):
        assert f"  {code}  ".ljust(7) + exit_codes.MEANINGS[code] in shown


def test_the_exit_codes_have_names():
    named = {value for value in vars(exit_codes).values() if type(value) is int}
    assert named == set(exit_codes.MEANINGS) == {0, 1, 2, 3, 4, 130}


def test_the_table_has_the_commands_of_all_groups():
    groups = {row.group for row in TABLE.values()}
    found = {
        (group, name)
        for group in groups
        for name in importlib.import_module(f"dualqml.cli.{group}").COMMANDS
    }
    assert found == {(row.group, name) for name, row in TABLE.items()}


def test_see_also_names_other_commands():
    for name, row in TABLE.items():
        assert row.see_also, name
        assert set(row.see_also) <= {*TABLE, "help"} - {name}


@pytest.mark.parametrize("name", TABLE)
def test_help_of_a_command(name, capsys):
    help_of(name, "--help")
    shown = capsys.readouterr().out
    help_of("help", name)
    assert capsys.readouterr().out == shown
    row, command = TABLE[name], command_of(name)
    assert shown.startswith(f"usage: dualqml {name} [-h] ")
    about = f"{row.summary}\n{command.details}".strip()
    parts = [about, "\noptions:\n", command.examples, "exit codes:\n", "see also:\n"]
    places = [shown.find(f"\n{part}") for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    codes = shown[places[3] : places[4]]
    assert [int(line.split()[0]) for line in codes.splitlines()[2:]] == row.codes
    assert ("--json" in shown) == (name not in ("completion", "serve"))


@pytest.mark.parametrize("name", TABLE)
def test_help_fits_into_a_terminal(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    help_of(name, "--help")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("name", TABLE)
def test_every_command_has_examples_that_can_be_parsed(name):
    command = command_of(name)
    title, *lines = command.examples.splitlines()
    assert title == "examples:"
    assert len(lines) >= 2
    for line in lines:
        # A line may have pipes and files.
        words = shlex.split(line.rpartition(" | ")[2].partition(" > ")[0])
        assert words[:2] == ["dualqml", name]
        assert build_parser(name).parse_args(words[2:]).run is command.run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a COMMAND"),
        (["fly"], "there is no command 'fly'\n"),
        (["identfy", "model"], "no command 'identfy'; did you mean identify?"),
        (["help", "trian"], "no command 'trian'; did you mean train?"),
        (["ident"], "no command 'ident'; did you mean identify?"),
        (["--fly"], "unrecognized arguments: --fly\n"),
        (["--ver"], "unrecognized arguments: --ver; did you mean --version?"),
        (["--json", "databases"], "unrecognized arguments: --json"),
        (["--"], "give a COMMAND"),
        (
            ["databases", "--jsno"],
            "unrecognized arguments: --jsno; did you mean --json",
        ),
        (["databases", "--roo=x"], "arguments: --roo=x; did you mean --root?"),
        (["reproduce", "--fly"], "unrecognized arguments: --fly"),
        (["verify"], "the following arguments are required: model, subject"),
        (["train", "--fpir", "1", "--fmr", "1", "-o", "m"], "not allowed with"),
        (["calibrate", "m"], "one of the arguments --fpir --fmr is required"),
    ],
)
def test_wrong_use_is_two(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("usage: dualqml")
    assert message in shown


@pytest.mark.parametrize(
    ("line", "images"),
    [
        ("m a.jpg --json --threshold 2", ["a.jpg"]),
        ("--json m --threshold 2 a.jpg b.jpg", ["a.jpg", "b.jpg"]),
        ("m --json a.jpg --threshold 2 b.jpg", ["a.jpg", "b.jpg"]),
        ("--threshold=2 m a.jpg --json -", ["a.jpg", "-"]),
        ("--json m --threshold 2 -- -a.jpg --json", ["-a.jpg", "--json"]),
        ("--json --threshold 2 m a.jpg -- -", ["a.jpg", "-"]),
        ("--json --threshold 2 m", []),
    ],
)
def test_options_may_stand_anywhere(line, images):
    options = build_parser("identify").parse_args(line.split())
    assert options.model == Path("m")
    assert list(map(str, options.images)) == images
    assert options.json
    assert options.threshold == 2.0


def test_a_number_below_zero_is_no_option():
    words = ["m", "--threshold", "-2.5", "Ann Lee", "a.jpg"]
    options = build_parser("verify").parse_args(words)
    assert (options.subject, options.threshold) == ("Ann Lee", -2.5)


def test_defaults_of_arguments_that_may_be_left_out():
    parser = build_parser("reproduce")
    assert parser.parse_args(["--tune"]).databases == ["orl"]
    assert parser.parse_args(["ar", "--tune", "pie"]).databases == ["ar", "pie"]


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
PARSER = {
    "dualqml",
    "dualqml._lazy",
    "dualqml.cli",
    "dualqml.cli._parser",
    "dualqml.cli.exit_codes",
    "dualqml.cli.main",
}
HEAVY = {"joblib", "matplotlib", "numpy", "pandas", "scipy", "shtab", "sklearn"}


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["fly"], []])
def test_only_the_parser_is_imported_without_a_command(arguments):
    names = modules_of(*arguments)
    assert {name for name in names if name.startswith("dualqml")} == PARSER
    assert "argparse" in names
    assert not names & HEAVY


@pytest.mark.parametrize("name", TABLE)
def test_help_of_a_command_needs_no_numpy(name):
    names = modules_of(name, "--help")
    assert f"dualqml.cli.{TABLE[name].group}" in names
    assert not names & HEAVY


@pytest.mark.parametrize(
    ("listed", "kind"),
    [
        (_choices.PHOTOMETRIES, Photometry),
        (_choices.PROTOCOLS, ProtocolKind),
        (METHOD_NAMES, METHODS),
        (VECTOR_METHOD_NAMES, VECTOR_METHODS),
    ],
    ids=["photometry", "protocol", "methods", "vector methods"],
)
def test_what_the_help_lists_is_what_there_is(listed, kind):
    assert listed == (get_args(kind) or tuple(kind))


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
    assert ended.stdout.split() == [
        "dualqml.cli",
        "dualqml.cli.exit_codes",
        "dualqml.cli.main",
    ]


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
