# SPDX-License-Identifier: BSD-3-Clause
"""The ``dualqml`` command: which commands there are, and how they end.

This module imports almost nothing before `main` runs. The command therefore starts
fast, and Ctrl-C ends it quietly during its imports too.
"""

import os
import sys

from dualqml.cli.exit_codes import (
    FAILED,
    INTERRUPTED,
    MEANINGS,
    NO_FACE,
    OK,
    UNKNOWN,
    WRONG,
)

TYPE_CHECKING = False  # as in the module typing, which takes long to import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn, TextIO

    from dualqml.cli._arguments import Command
    from dualqml.cli._parser import CommandParser


class _Row:
    """A command in the table of all commands.

    Parameters
    ----------
    group : str
        The module of this package that has it.
    summary : str
        What it does, in one sentence.
    see_also : str
        Names of commands that are used with it.
    codes : tuple of int
        Its exit codes, other than 0, 2 and 130.
    """

    def __init__(
        self, group: str, summary: str, see_also: str, codes: tuple[int, ...] = ()
    ) -> None:
        self.group = group
        self.summary = summary
        self.see_also = see_also.split()
        self.codes = sorted({OK, WRONG, INTERRUPTED, *codes})


#: All commands by their purpose, in the order of the help.
_PURPOSES = {
    "recognise people": {
        "train": _Row(
            "models",
            "Enrol everybody in a folder and write the model to a file.",
            "calibrate check identify background",
            (FAILED, NO_FACE),
        ),
        "enroll": _Row(
            "models",
            "Enrol a subject, or add images to one.",
            "remove subjects check",
            (FAILED, NO_FACE),
        ),
        "identify": _Row(
            "decisions",
            "Decide which subject is on images, or that the person is unknown.",
            "verify calibrate",
            (FAILED, UNKNOWN, NO_FACE),
        ),
        "verify": _Row(
            "decisions",
            "Decide whether images show a subject.",
            "identify calibrate",
            (FAILED, UNKNOWN, NO_FACE),
        ),
        "remove": _Row(
            "models", "Erase subjects from a model.", "subjects enroll refit"
        ),
        "refit": _Row(
            "models",
            "Fit a model whose changes were deferred to its present subjects.",
            "enroll remove inspect",
        ),
        "subjects": _Row(
            "models", "List the subjects of a model.", "inspect enroll remove"
        ),
        "calibrate": _Row(
            "models",
            "Set the threshold of a model for a rate of false matches.",
            "train evaluate background",
            (FAILED, NO_FACE),
        ),
        "check": _Row(
            "models",
            "Find what spoils a gallery: outlying, swapped and double entries.",
            "inspect remove enroll",
            (FAILED,),
        ),
        "inspect": _Row(
            "models",
            "Show what a model file holds: method, parameters, subjects, threshold.",
            "subjects check",
        ),
        "background": _Row(
            "models",
            "Compute statistics of people who are not enrolled, and save them.",
            "train calibrate evaluate",
            (FAILED, NO_FACE),
        ),
    },
    "run a service": {
        "serve": _Row(
            "service",
            "Start a service: an HTTP API, and a web page to enrol and identify.",
            "export import",
        ),
        "export": _Row(
            "service", "Write a gallery of a service to a file.", "import receipt"
        ),
        "import": _Row(
            "service", "Make a gallery of a service from a file.", "export serve"
        ),
        "receipt": _Row(
            "service",
            "Check the receipt of an erasure by fitting the model again.",
            "export serve",
            (FAILED,),
        ),
    },
    "measure": {
        "evaluate": _Row(
            "experiments",
            "Measure verification and open-set identification on your own data.",
            "train calibrate reproduce",
            (FAILED, NO_FACE),
        ),
        "reproduce": _Row(
            "experiments",
            "Repeat the paper's experiments and write its tables and a report.",
            "report databases evaluate",
            (FAILED, NO_FACE),
        ),
        "report": _Row(
            "experiments",
            "Write the tables and the report of existing results.",
            "reproduce",
        ),
        "databases": _Row(
            "databases", "List the databases that are known by name.", "reproduce"
        ),
    },
    "shell": {
        "completion": _Row(
            "completion",
            "Print a script with which the shell completes commands and options.",
            "help",
        ),
    },
}

#: All commands by their names.
TABLE = {name: row for rows in _PURPOSES.values() for name, row in rows.items()}


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : sequence of str, optional
        As typed after ``dualqml``. Without them, the command is the whole process:
        its arguments are those of the process.

    Returns
    -------
    int
        The exit code.
    """
    try:
        if arguments is None:
            sys.unraisablehook = _show_unraisable
            arguments = sys.argv[1:]
        return _run(arguments)
    except KeyboardInterrupt:
        _say_interrupted()
        return INTERRUPTED


def build_parser(name: str) -> "CommandParser":
    """Build the parser of one command, and import its module.

    Parameters
    ----------
    name : str
        Name of the command.

    Returns
    -------
    CommandParser
        The parser of the words after the name. What it returns has an attribute
        ``run``.
    """
    from dualqml.cli._parser import CommandParser

    parser = CommandParser(prog=f"dualqml {name}")
    describe_command(name, parser)
    return parser


def describe_command(name: str, parser: "CommandParser") -> None:
    """Declare the arguments of a command, and what its help says.

    Parameters
    ----------
    name : str
        Name of the command.
    parser : CommandParser
        The parser of the words after the name.
    """
    from dualqml.cli._parser import paragraph, table

    row = TABLE[name]
    command = _load(row.group, name)
    parser.description = f"{row.summary}\n{command.details}".rstrip()
    meanings = MEANINGS if UNKNOWN in row.codes else MEANINGS | {OK: "done"}
    codes = table({str(code): meanings[code] for code in row.codes})
    others = ", ".join(f"dualqml {other}" for other in row.see_also)
    parser.epilog = (
        f"{command.examples}\n\nexit codes:\n{codes}\n\n"
        f"see also:\n{paragraph(others, indent='  ')}"
    )
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def _load(group: str, name: str) -> "Command":
    import importlib

    command: Command = importlib.import_module(f"dualqml.cli.{group}").COMMANDS[name]
    return command


def _choose(arguments: "Sequence[str]") -> "tuple[str, Sequence[str]]":
    """Split the arguments into the name of a command and the words after it."""
    first, *words = arguments or [""]
    if first == "help":
        # The same as --help, of all or of one command.
        first, words = (words or ["--help"])[0], ["--help"]
    if first not in TABLE:
        _answer_without_command(first)
    return first, words


def _answer_without_command(word: str) -> "NoReturn":
    """End the process as the first word asks for, if it is not a command."""
    from dualqml import __version__
    from dualqml.cli._parser import CommandParser, suggestion, table

    lists = [
        f"{purpose}:\n{table({name: row.summary for name, row in rows.items()})}"
        for purpose, rows in _PURPOSES.items()
    ]
    codes = table({str(code): meaning for code, meaning in MEANINGS.items()})
    parser = CommandParser(
        prog="dualqml",
        usage="dualqml [-h] [--version] COMMAND ...",
        description="Few-sample biometric recognition by quadratic projections.\n\n"
        + "\n\n".join(lists),
        epilog=f"exit codes:\n{codes}\n\n"
        '"dualqml COMMAND --help" or "dualqml help COMMAND" explains a command.',
    )
    parser.add_argument("--version", action="version", version=f"dualqml {__version__}")
    if word.startswith("-"):
        parser.parse_args([word])
    elif word:
        parser.error(f"there is no command {word!r}{suggestion(word, TABLE)}")
    parser.error("give a COMMAND")


def _run(arguments: "Sequence[str]") -> int:
    name, words = _choose(arguments)
    options = build_parser(name).parse_args(words)

    import io
    import signal
    import warnings

    from dualqml._text import printable
    from dualqml.cli._output import say
    from dualqml.exceptions import DualQMLError, NoFaceError

    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names in other scripts than the terminal's must not end a command half-way.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = int(options.run(options))
        # What is still buffered can fail here, rather than after this function.
        print(end="", flush=True)
    except BrokenPipeError:
        # The reader of our output has gone, as in "dualqml ... | head".
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + getattr(signal, "SIGPIPE", 13)
    except (DualQMLError, OSError, ValueError) as error:
        say(f"dualqml: {printable(str(error))}", error=True)
        return NO_FACE if isinstance(error, NoFaceError) else WRONG
    return code


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: "TextIO | None" = None,
    line: str | None = None,
) -> None:
    """Show warnings as sentences, without a line of code."""
    from dualqml._text import printable
    from dualqml.cli._output import say

    say(f"dualqml: warning: {printable(str(message))}", error=True)


def _show_unraisable(lost: "sys.UnraisableHookArgs") -> None:
    """End the process if Python could not raise the KeyboardInterrupt of a Ctrl-C.

    Python only reports errors in callbacks of the garbage collection, and goes on.
    Such callbacks run during every import.
    """
    if lost.exc_type is KeyboardInterrupt:
        _say_interrupted()
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(lost)


def _say_interrupted() -> None:
    # Nothing is imported here: a second Ctrl-C could interrupt that.
    print("\ndualqml: interrupted", file=sys.stderr, flush=True)
