import os
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl

import dualqml

# For the order of the gallery.
sys.path.insert(0, str(Path(__file__).parent))
mpl.use("Agg")
# Examples run in this process, one after the other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

project = "dualqml"
author = "The dualqml developers"
copyright = "2026, The dualqml developers"
version = release = dualqml.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas need no network
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    # All other files are scripts: tools, and figures that take minutes.
    "filename_pattern": r"[\\/]plot_",
    "ignore_pattern": r"(^|[\\/])(?!plot_)[^\\/]*\.py$",
    "within_subsection_order": "gallery_order.in_order",
    "abort_on_example_error": True,
    # Tables of pandas, and no "<Legend object at ...>".
    "capture_repr": ("_repr_html_",),
    "image_srcset": ["2x"],
    "thumbnail_size": (480, 300),
    "write_computation_times": False,
}
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"  # the sections of parameters say it in words
numpydoc_show_class_members = False
numpydoc_validation_checks = {"GL08", "PR01", "PR02", "PR03", "RT01"}
numpydoc_validation_exclude = {
    # Dataclasses and named tuples: their fields are documented as attributes.
    r"\.(Background|Calibration|Candidate|Certificate|CertifiedSolution|Comparison)$",
    r"\.(Database|VectorDatabase|DatabaseInfo|ErrorCurve|Experiment|Face)$",
    r"\.(FailureCounts|OwnMethod)$",
    r"\.(DescribedFace|FaceNetwork|FrontEnd|PhotographFaces)$",
    r"\.(EnrolledSample|Explanation|Finding|GalleryCheck|ScorePart)$",
    r"\.(SampleScore|Settings|ThresholdCurve|Trials)$",
    r"\.(GeneralisedRates|Identification|Interval|Method|OpenSetCurve)$",
    r"\.(OpenSetPoint|OperatingPoint|PaperResult|PaperTime|Progress|Protocol)$",
    r"\.(QMLSolution|Result|ScatterSpectrum|Setting|Split|Summary|Template)$",
    r"\.(ClassProbabilities|LeftOutScores|LogRatio|CosineScale)$",
    r"\.(OpenSetChoice|OpenSetGrid|OpenSetParameters|Unit|Verification)$",
    r"\.(Recall|RefitDue|ShardedModel|SharedSpectrum)$",
    # Made by scikit-learn.
    r"_request$",
}
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates"]
nitpicky = False

html_theme = "pydata_sphinx_theme"
html_title = "dualqml"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_sidebars = {"**": ["site-nav.html"]}
html_theme_options = {
    "navbar_center": [],
    "navbar_end": ["theme-switcher"],
    "show_prev_next": False,
    # The second shows nothing but on pages of the gallery.
    "secondary_sidebar_items": ["page-toc", "sg_download_links"],
}
html_show_sourcelink = False
# Light or dark as the reader's system is.
html_context = {"default_mode": "auto"}


def draw_front_page(app):
    """Draw the figure of the front page: faces are not part of the repository."""
    folder = Path(__file__).parent
    if not (folder / "_static" / "front_page_dark.svg").exists():
        script = folder.parent / "examples" / "front_page.py"
        subprocess.run([sys.executable, script, folder / "_static"], check=True)


def draw_results(app):
    """Draw the figures of the results pages if a table or the script is newer."""
    folder = Path(__file__).parent
    script = folder.parent / "examples" / "results_figures.py"
    sources = [script, *(folder / "results" / "tables").glob("*.csv")]
    figure = folder / "_static" / "results_paired_dark.svg"  # the last of them
    newest = max(path.stat().st_mtime for path in sources)
    if not figure.exists() or figure.stat().st_mtime < newest:
        subprocess.run([sys.executable, script, folder / "_static"], check=True)


def setup(app):
    app.connect("builder-inited", draw_front_page)
    app.connect("builder-inited", draw_results)
