import dualqml

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
]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
autosummary_generate = True
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
    # Made by scikit-learn.
    r"_request$",
}
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates"]
nitpicky = False

html_theme = "pydata_sphinx_theme"
html_title = "dualqml"
html_theme_options = {"navbar_end": ["theme-switcher"], "show_prev_next": False}
# Formulas are typeset by the browser; without a network they show as TeX.
