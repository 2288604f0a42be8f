# SPDX-License-Identifier: BSD-3-Clause
"""The command completion: scripts with which a shell completes what is typed."""

import argparse
import re
from pathlib import Path

from dualqml.cli._arguments import Command
from dualqml.cli._output import say
from dualqml.cli._parser import CommandParser
from dualqml.exceptions import MissingDependencyError

#: The shells for which there is a script.
SHELLS = ("bash", "zsh", "fish")
#: Arguments that may be files, though not always.
_MAYBE_FILES = ("background", "data", "databases", "images")


def completion(options: argparse.Namespace) -> int:
    """Print the script for a shell."""
    try:
        import shtab
    except ImportError:
        raise MissingDependencyError(
            "Scripts of completion need the package shtab: "
            'pip install "dualqml[completion]"'
        ) from None
    script = shtab.complete(_whole_parser(shtab.FILE), shell=options.shell)
    if options.shell == "zsh":
        # shtab lets zsh complete only the first of several files.
        script = re.sub(r'^  "\(\*\)::?', '  "*:', script, flags=re.MULTILINE)
    say(script)
    return 0


def _whole_parser(file: object) -> argparse.ArgumentParser:
    """Build one parser of all commands, with marks where files can be given."""
    from dualqml.cli.main import TABLE, describe_command

    parser = argparse.ArgumentParser(prog="dualqml")
    parser.add_argument("--version", action="store_true", help="show the version")
    commands = parser.add_subparsers(parser_class=CommandParser)
    for name, row in TABLE.items():
        below = commands.add_parser(name, help=row.summary)
        describe_command(name, below)
        for action in below._actions:
            if action.choices is not None:
                # The scripts do not quote names such as "DualQML (max)".
                action.choices = [c for c in action.choices if " " not in c]
            elif action.type is Path or action.dest in _MAYBE_FILES:
                action.complete = file  # type: ignore[attr-defined]
    below = commands.add_parser("help", help="Explain a command.")
    below.add_argument("command", choices=tuple(TABLE), help="name of the command")
    return parser


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell that you use")


COMMANDS = {
    "completion": Command(
        details="""\
Write the script to the folder where your shell looks for it, and start the
shell again. For zsh, ~/.zshrc must have the line "fpath+=~/.zfunc" before
"compinit".
Write the script again after an update of dualqml. It needs the package shtab:
pip install "dualqml[completion]".""",
        examples="""examples:
  dualqml completion bash > ~/.local/share/bash-completion/completions/dualqml
  dualqml completion zsh > ~/.zfunc/_dualqml
  dualqml completion fish > ~/.config/fish/completions/dualqml.fish""",
        add_arguments=_add_arguments,
        run=completion,
    ),
}
