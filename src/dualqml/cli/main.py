# SPDX-License-Identifier: BSD-3-Clause
"""The ``dualqml`` command: which commands there are, and how they end."""

import argparse
import io
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

from dualqml import __version__
from dualqml._text import printable
from dualqml.cli import (
    calibrate,
    databases,
    enroll,
    evaluate,
    identify,
    inspect,
    remove,
    report,
    reproduce,
    subjects,
    train,
    verify,
)
from dualqml.cli._output import say
from dualqml.exceptions import DualQMLError

#: How a command ends: wrong use or input; Ctrl-C. Else commands say it themselves: 0
#: all is well, 1 something in it failed, 3 somebody is unknown or does not match.
WRONG, INTERRUPTED = 2, 130

_COMMANDS = (
    *(reproduce, databases, report),
    *(train, enroll, verify, identify, remove, subjects, calibrate),
    *(evaluate, inspect),
)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command and of all commands below it."""
    parser = argparse.ArgumentParser(
        prog="dualqml",
        description="Few-sample biometric recognition by quadratic projections.",
    )
    parser.add_argument("--version", action="version", version=f"dualqml {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in _COMMANDS:
        name = module.__name__.rpartition(".")[2]
        summary, _, rest = (module.DESCRIPTION).partition("\n")
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary}\n{rest}",
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : sequence of str, optional
        As typed after ``dualqml``; those of the process by default.

    Returns
    -------
    int
        The exit code.
    """
    options = build_parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names in other scripts than the terminal's must not end a command half-way.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return int(options.run(options))
    except KeyboardInterrupt:
        say("\ndualqml: interrupted", error=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone, as in "dualqml ... | head".
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + getattr(signal, "SIGPIPE", 13)
    except (DualQMLError, OSError, ValueError) as error:
        say(f"dualqml: {printable(str(error))}", error=True)
        return WRONG


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Warnings as sentences, without a line of code."""
    say(f"dualqml: warning: {printable(str(message))}", error=True)
