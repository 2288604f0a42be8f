# SPDX-License-Identifier: BSD-3-Clause
"""Build the wheel and the source distribution, and try the wheel alone.

``python scripts/make_distribution.py [--python PROGRAM ...]`` builds both into
``dist/`` (the wheel from the source distribution), checks their metadata and that no
file of the package is missing, installs the wheel in a new environment, and there runs
``dualqml --help`` and the example of README.md. Its errors must be those that README.md
shows. It needs ``build`` and ``twine``, which the extra ``dev`` has.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
#: Three images of 320, for other versions of the libraries.
TOLERANCE = 1.0


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a program in an environment that does not know this folder."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=cwd, env=clean, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed: {' '.join(map(str, command))}")
    return done.stdout


def package_files() -> set[str]:
    """All files of the package: modules, templates, styles, migrations, data."""
    source = ROOT / "src"
    return {
        path.relative_to(source).as_posix()
        for path in (source / "dualqml").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def build() -> tuple[Path, Path]:
    """Build both into an empty folder, and check the metadata."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    print(
        run(sys.executable, "-m", "twine", "check", "--strict", wheel, source).strip()
    )
    return wheel, source


def compare_files(wheel: Path, source: Path) -> None:
    """Stop if a file of the package is missing, or one is too many."""
    expected = package_files()
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {n for n in archive.namelist() if n.startswith("dualqml/")}
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    in_source = {n.removeprefix("src/") for n in names if n.startswith("src/dualqml/")}
    for what, found in (("wheel", in_wheel), ("source", in_source)):
        if found != expected:
            sys.exit(f"{what}: these files differ: {sorted(found ^ expected)}")
    data = sum(not name.endswith(".py") for name in expected)
    print(f"{len(expected)} files of the package in both, {data} of them no modules")


def errors_in(text: str) -> dict[str, float]:
    """Error rates by the name that stands before them."""
    found = re.findall(r"^ *(\S.*?)\s+([\d.]+) % errors$", text, re.MULTILINE)
    return {name: float(error) for name, error in found}


def try_wheel(wheel: Path, python: str) -> None:
    """Install the wheel in a new environment and use it there."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = "\n".join(re.findall(r"```python\n(.*?)```", readme, re.DOTALL))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(python, "-m", "venv", folder / "env")
        programs = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
        install = (programs / "python", "-m", "pip", "install", "--quiet")
        run(*install, wheel)
        run(programs / "python", "-m", "pip", "check")
        run(programs / "dualqml", "--help", cwd=folder)
        print(run(programs / "dualqml", "--version", cwd=folder).strip())
        run(*install, f"dualqml[demo] @ {wheel.as_uri()}")
        script = folder / "example.py"
        script.write_text(example, encoding="utf-8")
        printed = run(programs / "python", script, cwd=folder)
        print(printed.strip())
        found, promised = errors_in(printed), errors_in(readme)
        if not promised or found.keys() != promised.keys():
            sys.exit(f"README.md shows {promised}")
        if any(abs(found[k] - promised[k]) > TOLERANCE for k in found):
            sys.exit(f"README.md shows {promised}")
        print("the wheel works with", run(programs / "python", "--version").strip())


def main() -> None:
    """Build and try."""
    parser = argparse.ArgumentParser(description="Build and try the distribution.")
    parser.add_argument(
        "--python",
        nargs="+",
        default=[sys.executable],
        help="the Python of the new environment; several are tried in turn",
    )
    options = parser.parse_args()
    wheel, source = build()
    compare_files(wheel, source)
    for python in options.python:
        try_wheel(wheel, python)


if __name__ == "__main__":
    main()
