import os
import select
import shutil
import subprocess
import sys
import time

import pytest

from dualqml.cli.completion import SHELLS
from dualqml.cli.main import TABLE
from tests.cli.commands import run

pytest.importorskip("shtab")


def shell(name):
    """Skip a test if a shell is not installed."""
    found = shutil.which(name)
    if found is None or os.name == "nt":
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture
def script(tmp_path, monkeypatch, capsys):
    """Write the script of a shell to the folder in which it runs."""

    def write(name, file):
        assert run("completion", name) == 0
        printed = capsys.readouterr().out
        monkeypatch.chdir(tmp_path)
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(printed)
        (tmp_path / "photo1.png").touch()
        (tmp_path / "photos").mkdir()

    return write


#: What is typed, and what the last word may become.
TYPED = [
    ("dualqml ide", {"identify"}),
    ("dualqml enro", {"enroll"}),
    ("dualqml fly", set()),
    ("dualqml help tra", {"train"}),
    ("dualqml train --emb", {"--embeddings"}),
    ("dualqml reproduce --tun", {"--tune"}),
    ("dualqml train --tun", set()),
    ("dualqml train --method DualQML-", {"DualQML-W"}),
    ("dualqml reproduce --photometry eq", {"equalise"}),
    ("dualqml completion z", {"zsh"}),
    ("dualqml train photo", {"photo1.png", "photos"}),
    ("dualqml train --out photo1", {"photo1.png"}),
    ("dualqml identify model --json photo1", {"photo1.png"}),
    ("dualqml verify model Ann --threshold 2 a.png photo1", {"photo1.png"}),
]

_ASK_BASH = """
source dualqml.bash
for line in "$@"; do
    COMP_WORDS=($line)
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _shtab_dualqml 2>/dev/null
    echo "${COMPREPLY[@]}"
done
"""


def test_bash(script):
    program = shell("bash")
    script("bash", "dualqml.bash")
    lines = [line for line, _ in TYPED]
    ended = subprocess.run(
        [program, "--norc", "-c", _ASK_BASH, "bash", *lines],
        capture_output=True,
        text=True,
        check=True,
    )
    found = [set(line.split()) for line in ended.stdout.splitlines()]
    assert found == [words for _, words in TYPED]
    assert ended.stderr == ""


def test_fish(script):
    program = shell("fish")
    script("fish", "dualqml.fish")
    code = "source dualqml.fish; for line in $argv; complete -C $line; echo =; end"
    ended = subprocess.run(
        [program, "--no-config", "-c", code, *(line for line, _ in TYPED)],
        capture_output=True,
        text=True,
        check=True,
    )
    *answers, rest = ("\n" + ended.stdout).split("\n=")
    found = [
        {line.partition("\t")[0].rstrip("/") for line in answer.split("\n") if line}
        for answer in answers
    ]
    assert found == [words for _, words in TYPED]
    assert rest == "\n"


def test_zsh(script):
    program = shell("zsh")
    script("zsh", "functions/_dualqml")
    typed = [(line, words) for line, words in TYPED if len(words) == 1]
    assert len(typed) > 8
    for line, (word,) in typed:
        end = line.rpartition(" ")[0] + f" {word}"
        assert end in type_in_zsh(program, f"{line}\t", end), line


def type_in_zsh(program, text, until):
    """What zsh shows when text is typed: it completes on a terminal only."""
    import pty

    process, terminal = pty.fork()
    if process == 0:  # pragma: no cover
        os.environ["TERM"] = "dumb"
        os.execv(program, [program, "-f", "-i"])
    try:
        begin = "fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -uD\n"
        os.write(terminal, (begin + "PS1='rea''dy '\n").encode())
        read_until(terminal, "ready ")
        os.write(terminal, text.encode())
        return read_until(terminal, until)
    finally:
        os.close(terminal)
        os.waitpid(process, 0)


def read_until(terminal, wanted, seconds=20.0):
    seen, end = "", time.monotonic() + seconds
    while wanted not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 4096).decode(errors="replace")
    return seen


@pytest.mark.parametrize("name", SHELLS)
def test_every_command_is_in_the_script(name, capsys):
    assert run("completion", name) == 0
    printed = capsys.readouterr().out
    assert all(command in printed for command in [*TABLE, "help"])


def test_a_shell_without_script(capsys):
    with pytest.raises(SystemExit) as ended:
        run("completion", "tcsh")
    assert ended.value.code == 2
    assert "choose from" in capsys.readouterr().err


def test_without_the_package(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert run("completion", "bash") == 2
    assert 'pip install "dualqml[completion]"' in capsys.readouterr().err
