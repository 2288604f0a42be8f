import ast
from pathlib import Path

import pytest

from dualqml import cli
from dualqml.cli._output import say


@pytest.mark.parametrize("error", [False, True])
def test_lines_without_control_characters(capsys, error):
    say("Zo\u00eb\x1b[2J\n  two\u202e\ttabs", error=error)
    shown = capsys.readouterr()
    text = shown.err if error else shown.out
    assert text == "Zo\u00eb\ufffd[2J\n  two\ufffd tabs\n"
    assert (shown.out if error else shown.err) == ""


def test_commands_print_by_it_alone():
    for file in Path(cli.__file__).parent.glob("*.py"):
        if file.name == "_output.py":
            continue
        called = {
            node.func.id
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert "print" not in called, file
