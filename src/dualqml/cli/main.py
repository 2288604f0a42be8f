# SPDX-License-Identifier: BSD-3-Clause
"""The ``dualqml`` command: which commands there are, and how they end.

This module imports almost nothing before `main` runs. The command therefore starts
fast, and Ctrl-C ends it quietly during its imports too.
"""

import os
import sys

TYPE_CHECKING = False  # as in the module typing, which takes long to import
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import TextIO

    from dualqml.cli._arguments import Command

#: Exit codes of every command: wrong use or input; Ctrl-C. A command returns the
#: others itself: 0 success, 1 some part failed, 3 no match or unknown.
WRONG, INTERRUPTED = 2, 130

#: Every command, the module of this package that has it, and its summary.
_TABLE = {
    "reproduce": (
        "experiments",
        "Repeat the paper's experiments and write its tables and a report.",
    ),
    "databases": ("databases", "List the databases that are known by name."),
    "report": ("experiments", "Write the tables and the report of existing results."),
    "train": ("models", "Enrol everybody in a folder and write the model to a file."),
    "enroll": ("models", "Enrol a subject, or add images to one."),
    "verify": ("decisions", "Decide whether images show a subject."),
    "identify": (
        "decisions",
        "Decide which subject is on images, or that the person is unknown.",
    ),
    "remove": ("models", "Erase subjects from a model."),
    "subjects": ("models", "List the subjects of a model."),
    "calibrate": (
        "models",
        "Set the threshold of a model for a rate of false matches.",
    ),
    "evaluate": (
        "experiments",
        "Measure verification and open-set identification on your own data.",
    ),
    "background": (
        "models",
        "Compute statistics of people who are not enrolled, and save them.",
    ),
    "inspect": (
        "models",
        "Show what a model file holds: method, parameters, subjects, threshold.",
    ),
}


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


def build_parser(chosen: str | None = None) -> "argparse.ArgumentParser":
    """Build the parser of the command.

    Parameters
    ----------
    chosen : str, optional
        Name of the only command whose module is imported and whose arguments are
        declared. The others have their names and summaries.

    Returns
    -------
    argparse.ArgumentParser
        The parser. What it returns for the chosen command has an attribute ``run``.
    """
    import argparse

    from dualqml import __version__

    parser = argparse.ArgumentParser(
        prog="dualqml",
        description="Few-sample biometric recognition by quadratic projections.",
    )
    parser.add_argument("--version", action="version", version=f"dualqml {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (group, summary) in _TABLE.items():
        below = commands.add_parser(name, help=summary)
        if name == chosen:
            command = _load(group, name)
            below.description = f"{summary}\n{command.details}"
            below.epilog = command.examples
            below.formatter_class = argparse.RawDescriptionHelpFormatter
            command.add_arguments(below)
            below.set_defaults(run=command.run)
    return parser


def _load(group: str, name: str) -> "Command":
    import importlib

    command: Command = importlib.import_module(f"dualqml.cli.{group}").COMMANDS[name]
    return command


def _run(arguments: "Sequence[str]") -> int:
    # No option before the name of a command takes a value.
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    options = build_parser(chosen).parse_args(arguments)

    import io
    import signal
    import warnings

    from dualqml._text import printable
    from dualqml.cli._output import say
    from dualqml.exceptions import DualQMLError

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
        return WRONG
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
