"""The documents are true: examples print what they say, and what they name exists."""

import contextlib
import importlib
import importlib.util
import inspect
import io
import pkgutil
import re
import shlex
import sys
from pathlib import Path

import pytest

import dualqml
from dualqml.cli.main import main
from dualqml.experiments.store import read_results

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "dualqml"
#: Pages of the guide. Sphinx writes further ones to the other folders.
PAGES = sorted(
    page.relative_to(DOCS).with_suffix("").as_posix()
    for page in DOCS.rglob("*.md")
    if not {"_build", "generated"} & set(page.relative_to(DOCS).parts)
)
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *(f"docs/{page}.md" for page in PAGES)]
for_each_document = pytest.mark.parametrize("document", DOCUMENTS)
ROOMS = [room.name for room in pkgutil.iter_modules([str(SOURCE)]) if room.ispkg]


def text_of(document):
    return (ROOT / document).read_text(encoding="utf-8")


def examples(document):
    """The Python blocks of a document, one after the other."""
    blocks = re.findall(r"```python\n(.*?)```", text_of(document), re.DOTALL)
    assert blocks
    return "\n".join(blocks)


def output_of(code):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "example", "exec"), {})
    return out.getvalue()


def errors_in(printed):
    """Error rates by what stands before them."""
    found = re.findall(r"^(?:(\S.*?)\s+)?([\d.]+) % errors$", printed, re.MULTILINE)
    return {name: float(error) for name, error in found}


def test_readme_example_prints_what_the_readme_says():
    pytest.importorskip("PIL")
    printed = output_of(examples("README.md"))
    shown = re.findall(r"^    (\S.* % errors)$", text_of("README.md"), re.MULTILINE)
    promised = errors_in("\n".join(shown))
    assert len(promised) == 4
    # Three images of 320, for other versions of the libraries.
    assert errors_in(printed) == pytest.approx(promised, abs=1.0)
    gap = re.search(r"largest duality gap\s+(\S+)", printed)[1]
    assert float(gap) <= 1e-6


def test_examples_of_the_front_page():
    pytest.importorskip("PIL")
    error, status, *answers = output_of(examples("docs/index.md")).splitlines()
    # Three images of 320, for other versions of the libraries.
    shown = re.findall(r"^    ([\d.]+) % errors$", text_of("docs/index.md"), re.M)
    assert errors_in(error)[""] == pytest.approx(float(shown[0]), abs=1.0)
    for line in (status, *answers):
        assert f"\n    {line}\n" in text_of("docs/index.md")
    assert answers == ["person 3", "unknown"]


def test_examples_of_the_quick_start():
    pytest.importorskip("PIL")
    error, lam, gap, shape = output_of(examples("docs/quickstart.md")).splitlines()
    assert 5.0 < errors_in(error)[""] < 25.0
    assert 0.1 <= float(lam) <= 100.0
    assert 0.0 <= float(gap) <= 1e-6
    assert shape == "(1024, 1024)"


def test_examples_of_the_competitors():
    pytest.importorskip("PIL")
    errors = errors_in(output_of(examples("docs/competitors.md")))
    assert list(errors) == ["LDA", "ERE", "ER-KDA"]
    assert all(5.0 < error < 20.0 for error in errors.values())


def test_examples_of_dual_qml_w():
    pytest.importorskip("PIL")
    output = output_of(examples("docs/dual_qml_w.md"))
    assert float(output.partition("%")[0]) < 10.0
    assert "'descriptor': 'local'" in output


def test_examples_of_the_experiments():
    pytest.importorskip("PIL")
    printed = output_of(examples("docs/experiments.md"))
    errors = errors_in(printed)
    assert list(errors) == ["LDA", "DualQML-W"]
    assert errors["DualQML-W"] < errors["LDA"] < 25.0
    assert printed.endswith("2 paired splits\n")


def test_examples_of_comparing_a_method():
    pytest.importorskip("PIL")
    printed = output_of(examples("docs/compare.md"))
    errors = errors_in(printed)
    assert list(errors) == ["LDA", "svm"]
    assert 5.0 < errors["LDA"] < errors["svm"] < 35.0
    gap = re.search(r"difference (\S+), interval (\S+) to (\S+)\n", printed)
    difference, low, high = map(float, gap.groups())
    assert difference == pytest.approx(errors["svm"] - errors["LDA"], abs=0.02)
    assert low < difference < high


def test_the_method_of_the_page_on_comparing_is_a_row(tmp_path, monkeypatch):
    pytest.importorskip("PIL")
    blocks = re.findall(
        r"```python\n# (my_method\.py)\n(.*?)```", text_of("docs/compare.md"), re.DOTALL
    )
    ((name, code),) = blocks
    (tmp_path / name).write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (line,) = [run for run in runs_of("docs/compare.md", "dualqml") if "mine=" in run]
    small = ["--methods", "LDA", "--repeats", "2", "--jobs", "1", "--quiet", "--json"]
    assert main([*shlex.split(line), *small, "--out", str(tmp_path / "out")]) == 0
    rows = {r.unit.method: r for r in read_results(tmp_path / "out" / "results.jsonl")}
    assert rows["mine"].status == "done", rows["mine"].reason


def test_examples_of_the_data_page():
    pytest.importorskip("PIL")
    assert output_of(examples("docs/data.md")) == "(400, 32, 32) 40 people\n"


def test_examples_of_recognition():
    pytest.importorskip("PIL")
    lines = output_of(examples("docs/recognition.md")).splitlines()
    threshold, missed = re.fullmatch(
        r"threshold (\d+\.\d\d), missed (\d+) %", lines[0]
    ).groups()
    assert 0.0 < float(threshold) < 20.0
    assert int(missed) <= 10
    assert lines[1:5] == ["match s4 100 %", "no match", "unknown", "s10 (1, 29) (1,)"]
    shown = re.findall(
        r"^    (strangers sim\S.*|(?:no )?match, score .*)$",
        text_of("docs/recognition.md"),
        re.MULTILINE,
    )
    assert [line.partition(",")[0] for line in lines[5:]] == [
        line.partition(",")[0] for line in shown
    ]


def test_examples_of_scale():
    first, *lines = output_of(examples("docs/scale.md")).splitlines()
    # The gap is rounding, and differs between processors.
    shown, _, _ = first.rpartition(";")
    assert f"    {shown};" in text_of("docs/scale.md")
    assert lines == ["[0 1 2 3 4]", "(5, 3)", "True", "[0 1 2 3 4]", "1.0"]


def test_every_page_is_reached_from_the_first():
    reached, left = set(), ["index"]
    while left:
        page = left.pop()
        if page == "auto_examples/index":  # made by sphinx-gallery
            continue
        assert page in PAGES, f"a toctree names {page}, which does not exist"
        reached.add(page)
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        for entries in re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL):
            names = [line.strip() for line in entries.splitlines()]
            below = [name for name in names if name and not name.startswith(":")]
            folder = Path(page).parent
            left += {(folder / name).as_posix() for name in below} - reached
    assert reached == set(PAGES)


@for_each_document
def test_links_lead_to_files(document):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text_of(document))
    folder = (ROOT / document).parent
    missing = [
        link for link in links if "://" not in link and not (folder / link).exists()
    ]
    assert missing == []


@for_each_document
def test_modules_exist(document):
    """As files like core/solve.py, and as names like core.solve."""
    prose = re.sub(r"```.*?```", "", text_of(document), flags=re.DOTALL)
    # In names of files that are to be written, angle brackets stand for a name.
    files = set(re.findall(r"[\w/<>-]+\.py\b", prose)) - {"_name.py"}
    missing = [
        file
        for file in files
        if "<" not in file
        and not ((ROOT / file).is_file() or (SOURCE / file).is_file())
    ]
    # Tables may compare with what was there before.
    lines = [line for line in prose.splitlines() if not line.startswith("|")]
    for room, name in re.findall(rf"`({'|'.join(ROOMS)})\.(\w+)`", "\n".join(lines)):
        if not (SOURCE / room / f"{name}.py").is_file():
            missing.append(f"{room}.{name}")
    assert missing == []


def runs_of(document, program):
    """What follows a program in the commands of a document."""
    pattern = rf"(?:^    |`){program} ([^`#\n]+)"
    return re.findall(pattern, text_of(document), re.MULTILINE)


@for_each_document
def test_programs_exist(document):
    for words in runs_of(document, "python -m"):
        assert importlib.util.find_spec(words.split()[0]), words
    for words in runs_of(document, r"python(?= \w+/)"):
        assert (ROOT / words.split()[0]).is_file(), words
    targets = re.findall(r"^([\w-]+):", text_of("Makefile"), re.MULTILINE)
    for words in runs_of(document, "make"):
        assert words.split()[0] in targets, words


@for_each_document
def test_commands_have_the_options_that_are_shown(document, capsys):
    for line in runs_of(document, "dualqml"):
        command, *words = shlex.split(line)
        if command.startswith("-"):
            continue
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0, line
        known = re.findall(r"(?<![\w-])--?[a-z][\w-]*", capsys.readouterr().out)
        shown = {word for word in words if word.startswith("-")}
        assert shown <= set(known), line


def api_page():
    """All objects of the API page by the names under which they are documented."""
    names = []
    for block in re.findall(
        r"```\{eval-rst\}\n(.*?)```", text_of("docs/api/index.md"), re.DOTALL
    ):
        module = None
        for line in block.splitlines():
            if line.startswith(".. currentmodule:: "):
                module = line.split()[-1]
            elif re.fullmatch(r"   [\w.]+", line):
                names.append(f"{module}.{line.strip()}")
    return names


def object_of(name):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def test_the_api_page_has_every_public_name_once():
    documented = [object_of(name) for name in api_page()]
    assert len(documented) == len({id(thing) for thing in documented}) > 100
    data = re.findall(r"py:data:: \S+\.(\w+)", text_of("docs/api/index.md"))
    for module in [dualqml, *map(object_of, (f"dualqml.{room}" for room in ROOMS))]:
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isroutine(thing):
                assert thing in documented, f"{module.__name__}.{name}"
            elif name != "__version__":
                assert name in data, f"{module.__name__}.{name}"


def test_the_api_page_has_every_error():
    errors = vars(importlib.import_module("dualqml.exceptions")).values()
    assert {
        f"dualqml.exceptions.{error.__name__}"
        for error in errors
        if inspect.isclass(error)
    } <= set(api_page())


@for_each_document
def test_references_are_to_the_api_page(document):
    roles = r"\{(?:class|func|exc|meth)\}`(?:[^`]*<)?~?(dualqml\.[\w.]+)>?`"
    named = set(re.findall(roles, text_of(document)))
    assert named - set(api_page()) == set()


#: Of the words with two spellings, those that public names do not use.
AMERICAN = re.compile(
    r"behavior|center|color|gray|labeled|neighbor|enrol(?!l|ment)"
    r"|[a-z](?<!s)iz(?:e[drs]?|ing|ation)(?![a-z])"
)
#: Names of the API that stay as they are, and of scikit-learn.
EXCEPTIONS = re.compile("recognizers?|n_neighbors")


def public_names():
    """Names in all public modules, with parameters and documented attributes."""
    for info in pkgutil.walk_packages(dualqml.__path__, "dualqml."):
        if "._" in info.name:
            continue
        module = importlib.import_module(info.name)
        for name, thing in vars(module).items():
            if name.startswith("_") or getattr(thing, "__module__", "") != info.name:
                continue
            yield name
            yield from re.findall(r"^(\w+) : ", inspect.getdoc(thing) or "", re.M)
            members = vars(thing).items() if inspect.isclass(thing) else [("", thing)]
            for key, member in members:
                if key == "__init__" or not key.startswith("_"):
                    yield key
                    if inspect.isfunction(member):
                        yield from inspect.signature(member).parameters


def test_public_names_have_one_spelling():
    names = set(public_names())
    assert {"Recognizer", "n_neighbors", "centre", "n_enrolments", "resize"} <= names
    wrong = {
        name for name in names if AMERICAN.search(EXCEPTIONS.sub("", name.lower()))
    }
    assert wrong == set()


@pytest.mark.parametrize(
    ("name", "is_wrong"),
    [
        ("normalizer", True),
        ("n_neighbors", False),
        ("neighbors", True),
        ("enrol_many", True),
        ("enroll_many", False),
        ("image_size", False),
        ("regularization", True),
        ("load_recognizer", False),
    ],
)
def test_the_rule_of_spelling(name, is_wrong):
    assert bool(AMERICAN.search(EXCEPTIONS.sub("", name))) == is_wrong
