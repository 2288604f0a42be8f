# SPDX-License-Identifier: BSD-3-Clause
"""Commands on model files.

They are train, enroll, remove, subjects, calibrate, background and inspect.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualqml._files import exclusive
from dualqml.cli._arguments import (
    Command,
    add_background_argument,
    add_data_arguments,
    add_json_argument,
    add_method_argument,
    add_model_argument,
    add_probe_arguments,
)
from dualqml.cli._output import say, say_json
from dualqml.exceptions import DatabaseError

if TYPE_CHECKING:
    from dualqml.extractors import Background
    from dualqml.recognition import Calibration


def train(options: argparse.Namespace) -> int:
    """Enrol the people of a folder, fit, calibrate, save."""
    from dualqml.cli._samples import read_background, read_labelled
    from dualqml.recognition import Recognizer

    _check_new(options)
    data = read_labelled(options)
    background = read_background(options)
    say(f"Enrolling {len(data.labels)} samples", error=True)
    recognizer = Recognizer(
        options.method, threshold=options.threshold, background=background
    )
    recognizer.enroll_many(data.samples, data.labels)
    recognizer.fit()
    n_subjects = len(recognizer.subjects())
    if options.threshold is None:
        if n_subjects < 4 and background is None:
            raise DatabaseError(
                f"{n_subjects} subjects are too few to calibrate on; give --threshold, "
                "or --background with other people"
            )
        say("Calibrating", error=True)
        if options.fmr is not None:
            recognizer.calibrate(fmr=options.fmr)
        else:
            recognizer.calibrate(fpir=0.01 if options.fpir is None else options.fpir)
    recognizer.save(options.out)
    if options.json:
        say_json(
            {
                "model": str(options.out),
                "model_id": recognizer.model_id,
                "subjects": n_subjects,
                "samples": recognizer.n_samples,
                "threshold": recognizer.threshold,
            }
        )
    else:
        say(
            f"{options.out}: {n_subjects} subjects, {recognizer.n_samples} samples, "
            f"threshold {recognizer.threshold:.4g}"
        )
    return 0


# Three commands change a model. Between the reading and the writing, another process
# must not change it too: one of the two changes would be lost.


def enroll(options: argparse.Namespace) -> int:
    """Add a subject, or images of one, to a model."""
    from dualqml.cli._samples import read_probes
    from dualqml.recognition import Recognizer

    with exclusive(options.model):
        recognizer = Recognizer.load(options.model)
        names, samples = read_probes(options)
        recognizer.enroll(options.subject, samples)
        recognizer.save(options.model)
    known = len(recognizer.subjects())
    if options.json:
        about = {"subject": options.subject, "added": len(names), "subjects": known}
        say_json(about | {"model_id": recognizer.model_id})
    else:
        say(f"{options.subject}: {len(names)} samples; {known} subjects are enrolled")
    return 0


def remove(options: argparse.Namespace) -> int:
    """Erase subjects from a model."""
    from dualqml.recognition import Recognizer

    erased = list(dict.fromkeys(options.subjects))
    with exclusive(options.model):
        recognizer = Recognizer.load(options.model)
        for subject in erased:
            recognizer.remove(subject)
        recognizer.save(options.model)
    left = len(recognizer.subjects())
    if options.json:
        about = {"removed": len(erased), "subjects": left}
        say_json(about | {"model_id": recognizer.model_id})
    else:
        say(f"{len(erased)} erased; {left} subjects are enrolled")
    return 0


def calibrate(options: argparse.Namespace) -> int:
    """Set the threshold of a model."""
    from dualqml.cli._samples import read_background, read_labelled
    from dualqml.recognition import Recognizer

    with exclusive(options.model):
        recognizer = Recognizer.load(options.model)
        if options.background is not None:
            recognizer.background = read_background(options, recognizer.size)
        rate = {"fpir": options.fpir} if options.fmr is None else {"fmr": options.fmr}
        if options.data is None and options.embeddings is None:
            found = recognizer.calibrate(**rate)
        else:
            data = read_labelled(options)
            found = recognizer.calibrate(data.samples, data.labels, **rate)
        recognizer.save(options.model)
    if options.json:
        say_json(found.as_dict())
    else:
        say(_describe(found))
    return 0


def subjects(options: argparse.Namespace) -> int:
    """Print the names, one per line."""
    from dualqml.recognition import Recognizer

    recognizer = Recognizer.load(options.model)
    counts = {name: len(recognizer.samples(name)) for name in recognizer.subjects()}
    if options.json:
        say_json(counts, ensure_ascii=False)
    else:
        for name in counts:
            say(name)
    return 0


def background(options: argparse.Namespace) -> int:
    """Compute and save statistics of people."""
    from dualqml.cli._samples import background_of, read_labelled
    from dualqml.persistence import save

    _check_new(options)
    found = background_of(read_labelled(options))
    save(found, options.out)
    if options.json:
        say_json({"background": str(options.out)} | _about_background(found))
    else:
        say(
            f"{options.out}: {found.n_people} people, {found.n_samples} samples, "
            f"{found.n_features} features"
        )
    return 0


def inspect(options: argparse.Namespace) -> int:
    """Print what a model holds, without the samples."""
    from dualqml.extractors import Background
    from dualqml.persistence import load
    from dualqml.persistence.model_files import holds_model
    from dualqml.recognition import Recognizer

    if holds_model(options.model):
        found = load(options.model)
        if isinstance(found, Background):
            return _inspect_background(found, options)
    recognizer = Recognizer.load(options.model)
    about = {
        "model_id": recognizer.model_id,
        "method": recognizer.method,
        "parameters": recognizer.parameters,
        "chosen": recognizer.chosen_parameters,
        "background": repr(recognizer.background),
        "inputs": recognizer.inputs,
        "size": list(recognizer.size),
        "subjects": len(recognizer.subjects()),
        "samples": recognizer.n_samples,
        "bytes": options.model.stat().st_size,
    }
    calibration = recognizer.calibration
    if options.json:
        origin = None if calibration is None else calibration.as_dict()
        say_json(about | {"calibration": origin})
    else:
        for name, value in about.items():
            say(f"{name}: {value}")
        say("calibration: " + (_describe(calibration) if calibration else "none"))
    return 0


def _inspect_background(found: "Background", options: argparse.Namespace) -> int:
    about = {"holds": "background"} | _about_background(found)
    about["bytes"] = options.model.stat().st_size
    if options.json:
        say_json(about)
    else:
        for name, value in about.items():
            say(f"{name}: {value}")
    return 0


def _about_background(found: "Background") -> dict[str, Any]:
    """List what statistics are of."""
    return {
        "people": int(found.n_people),
        "samples": int(found.n_samples),
        "inputs": "vector" if found.image_shape is None else "image",
        "size": None if found.image_shape is None else list(found.image_shape),
        "features": int(found.n_features),
    }


def _check_new(options: argparse.Namespace) -> None:
    """Raise if the new file is there already and must not be replaced."""
    if options.out.exists() and not options.force:
        raise DatabaseError(f"{options.out} is there already; --force replaces it")


def _describe(found: "Calibration") -> str:
    """Describe a calibration: threshold, rate, interval, misses and data."""
    if found.kind == "given":
        return f"threshold {found.threshold:.4g}, {found.source}"
    name = {"fmr": "false match rate", "fpir": "false positive identification rate"}
    text = (
        f"threshold {found.threshold:.4g} for a {name[found.kind]} of "
        f"{found.target:g}: {found.achieved:.4g} on {found.n_comparisons} comparisons "
        f"(95 % interval {found.low:.2g} to {found.high:.2g}); {found.source}"
    )
    if found.missed is not None:
        text += f"; {100 * found.missed:.1f} % of {found.n_mated} mated ones are missed"
    return text


def _add_train_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    parser.add_argument(
        "-o", "--out", type=Path, required=True, help="the new model file"
    )
    add_method_argument(parser)
    add_background_argument(parser, "None of these people should be in DATA")
    parser.add_argument(
        "--force", action="store_true", help="replace a model file that exists"
    )
    rate = parser.add_mutually_exclusive_group()
    rate.add_argument(
        "--fpir",
        type=float,
        help="false positive identification rate to calibrate for (default: 0.01)",
    )
    rate.add_argument("--fmr", type=float, help="false match rate to calibrate for")
    rate.add_argument(
        "--threshold", type=float, help="use this threshold; do not calibrate"
    )
    add_json_argument(parser)


def _add_enroll_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument("subject", help="name of the subject on the images")
    add_probe_arguments(parser)
    add_json_argument(parser)


def _add_remove_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument(
        "subjects", nargs="+", metavar="subject", help="name of a subject to erase"
    )
    add_json_argument(parser)


def _add_calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_data_arguments(parser)
    add_background_argument(
        parser, "None of these people should be enrolled or in DATA"
    )
    rate = parser.add_mutually_exclusive_group(required=True)
    rate.add_argument("--fpir", type=float, help="false positive identification rate")
    rate.add_argument("--fmr", type=float, help="false match rate")
    add_json_argument(parser)


def _add_background_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    parser.add_argument("-o", "--out", type=Path, required=True, help="the new file")
    parser.add_argument(
        "--force", action="store_true", help="replace a file that exists"
    )
    add_json_argument(parser)


def _add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_json_argument(parser)


COMMANDS = {
    "train": Command(
        details="""\
The threshold is calibrated by leaving the people out in turn, unless you give
one. If you have images of other people, calibrate on them afterwards with
"dualqml calibrate".""",
        examples="""examples:
  dualqml train people/ -o people.dualqml
  dualqml train --embeddings faces.npz -o faces.dualqml --fmr 0.001
  dualqml train people/ -o people.dualqml --background others/""",
        add_arguments=_add_train_arguments,
        run=train,
    ),
    "enroll": Command(
        details="""\
The model file is replaced whole; if anything goes wrong, the old one stays.""",
        examples="""example:
  dualqml enroll people.dualqml "Ann Lee" ann1.png ann2.png""",
        add_arguments=_add_enroll_arguments,
        run=enroll,
    ),
    "remove": Command(
        details="""\
The model is fitted to the subjects that stay, as if the others had never been
there, and the file is replaced whole. Copies and backups of the old file are not
changed: erase them yourself.""",
        examples='''example:
  dualqml remove people.dualqml "Ann Lee"''',
        add_arguments=_add_remove_arguments,
        run=remove,
    ),
    "subjects": Command(
        details="",
        examples="""example:
  dualqml subjects people.dualqml""",
        add_arguments=_add_reading_arguments,
        run=subjects,
    ),
    "calibrate": Command(
        details="""\
DATA has images of people who are not enrolled. It can also have other images of
people who are; they show how many the threshold misses. Without DATA, the
enrolled people are left out in turn.""",
        examples="""example:
  dualqml calibrate people.dualqml strangers/ --fpir 0.01""",
        add_arguments=_add_calibrate_arguments,
        run=calibrate,
    ),
    "background": Command(
        details="""\
The file has the mean of all people and how people and samples vary around it, and
no sample and no name. Give it as --background to train, calibrate and evaluate.
Use many people, 10 at the very least: statistics of few people are noisy, and say
much about each of them.""",
        examples="""examples:
  dualqml background others/ -o others.background
  dualqml background --embeddings others.npz -o others.background""",
        add_arguments=_add_background_arguments,
        run=background,
    ),
    "inspect": Command(
        details="""\
The whole file is checked; nothing in it can be executed. A file of dualqml
background can be shown too.""",
        examples="""example:
  dualqml inspect people.dualqml --json""",
        add_arguments=_add_reading_arguments,
        run=inspect,
    ),
}
