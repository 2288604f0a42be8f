# SPDX-License-Identifier: BSD-3-Clause
"""Commands on model files.

They are train, enroll, remove, refit, subjects, calibrate, check, background and
inspect.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualqml._files import exclusive
from dualqml._text import counted
from dualqml.cli._arguments import (
    Command,
    add_background_argument,
    add_cluster_arguments,
    add_data_arguments,
    add_force_argument,
    add_json_argument,
    add_method_argument,
    add_model_argument,
    add_probe_arguments,
    cluster,
)
from dualqml.cli._output import Progress, StepProgress, say, say_json
from dualqml.cli.exit_codes import FAILED, NO_FACE, OK
from dualqml.exceptions import DatabaseError

if TYPE_CHECKING:
    from dualqml.extractors import Background
    from dualqml.recognition import Recognizer


def train(options: argparse.Namespace) -> int:
    """Enrol the people of a folder, fit, calibrate, save."""
    from dualqml.cli._samples import (
        exit_code,
        read_background,
        read_labelled,
        stops_at_bad,
    )
    from dualqml.recognition import Recognizer

    _check_new(options)
    with cluster(options) as client:
        data = read_labelled(options)
        if stops_at_bad(data, options):
            return FAILED
        background = read_background(options, kind=data.kind, embedder=data.embedder)
        recognizer = Recognizer(
            options.method,
            threshold=options.threshold,
            background=background,
            embedding=data.embedder,
            refit=options.refit,
        )
        recognizer.enroll_many(data.samples, data.labels, names=data.files)
        if client is None:
            recognizer.fit()
        else:
            from dualqml.scale import fit_recognizer

            with StepProgress() as progress:
                fit_recognizer(
                    recognizer,
                    client=client,
                    scratch=options.scratch,
                    progress=progress,
                )
    n_subjects = len(recognizer.subjects())
    if options.threshold is None:
        if n_subjects < 4 and background is None:
            raise DatabaseError(
                f"{n_subjects} subjects are too few to calibrate on; give --background "
                "with other people, or --threshold (0 means as likely as not, 4.6 a "
                "hundred times more likely)"
            )
        if options.fmr is not None:
            recognizer.calibrate(fmr=options.fmr)
        else:
            recognizer.calibrate(fpir=0.01 if options.fpir is None else options.fpir)
    recognizer.save(options.out)
    calibration = recognizer.calibration
    assert calibration is not None
    if options.json:
        say_json(
            {
                "model": str(options.out),
                "model_id": recognizer.model_id,
                "input": data.kind,
                "subjects": n_subjects,
                "samples": recognizer.n_samples,
                "left_out": list(data.skipped),
                "threshold": recognizer.threshold,
                "calibration": calibration.as_dict(),
            }
        )
    else:
        enrolled = counted(n_subjects, "subject")
        samples = counted(recognizer.n_samples, "sample")
        say(f"{options.out}: {enrolled}, {samples}.")
        say(calibration.describe())
    return exit_code(data, options)


# Four commands change a model. Between the reading and the writing, another process
# must not change it too: one of the two changes would be lost.


def enroll(options: argparse.Namespace) -> int:
    """Add a subject, or images of one, to a model."""
    import numpy as np

    from dualqml.cli._probes import read_probes
    from dualqml.cli._samples import tell_bad
    from dualqml.recognition.inputs import sample_names

    with exclusive(options.model):
        recognizer = _changeable(options)
        probes = list(read_probes(options, recognizer))
        skipped = [str(problem) for probe in probes for problem in probe.problems]
        remarks = [f"{p.name}: {remark}" for p in probes for remark in p.remarks]
        if tell_bad(skipped, remarks, len(probes), options.on_bad):
            return FAILED
        samples = [face.sample for probe in probes for face in probe.faces]
        if not samples:
            no_face = all(probe.has_no_face for probe in probes)
            say("dualqml: nothing was enrolled; the model is unchanged", error=True)
            return NO_FACE if no_face else FAILED
        files = [probe.name for probe in probes for _ in probe.faces]
        # Rows of vectors have numbers, which say nothing in the gallery.
        named = sample_names(files, len(files), None) if options.images else None
        recognizer.enroll(options.subject, np.array(samples), names=named)
        fresh = recognizer.refresh_prior()
        recognizer.save(options.model)
    known, added = len(recognizer.subjects()), len(samples)
    if options.json:
        about = {"subject": options.subject, "added": added, "subjects": known}
        stale = recognizer.calibration_is_stale
        say_json(
            about
            | {
                "left_out": skipped,
                "model_id": recognizer.model_id,
                "stale_calibration": stale,
                "refit_due": _due(recognizer),
            }
        )
    else:
        say(f"{options.subject}: {counted(added, 'sample')} added. {_enrolled(known)}")
        _say_due(recognizer)
        _say_stale(recognizer, fresh)
    return FAILED if skipped and options.on_bad != "skip" else OK


def remove(options: argparse.Namespace) -> int:
    """Erase subjects from a model."""
    erased = list(dict.fromkeys(options.subjects))
    with exclusive(options.model):
        recognizer = _changeable(options)
        for subject in erased:
            recognizer.remove(subject)
        fresh = recognizer.refresh_prior()
        recognizer.save(options.model)
    left = len(recognizer.subjects())
    if options.json:
        about = {"removed": len(erased), "subjects": left}
        stale = recognizer.calibration_is_stale
        of_model = {"model_id": recognizer.model_id, "stale_calibration": stale}
        say_json(about | of_model | {"refit_due": _due(recognizer)})
    else:
        say(f"{len(erased)} erased. {_enrolled(left)}")
        _say_due(recognizer)
        _say_stale(recognizer, fresh)
    return OK


def refit(options: argparse.Namespace) -> int:
    """Fit a model exactly, if its refit is due."""
    from dualqml.recognition import Recognizer

    with exclusive(options.model):
        recognizer = Recognizer.load(options.model)
        due = recognizer.refit_due
        if due is not None:
            recognizer.fit()
            recognizer.save(options.model)
    known = len(recognizer.subjects())
    if options.json:
        stale = recognizer.calibration_is_stale
        about = {"refitted": due is not None, "subjects": known}
        say_json(about | {"model_id": recognizer.model_id, "stale_calibration": stale})
    elif due is None:
        say(f"No refit is due; the model is unchanged. {_enrolled(known)}")
    else:
        say(f"Fitted to the present subjects alone. {_enrolled(known)}")
        _say_stale(recognizer, fresh=False)
    return OK


def _changeable(options: argparse.Namespace) -> "Recognizer":
    """The recogniser of a command that changes it, with the refits asked for."""
    from dualqml.recognition import Recognizer

    recognizer = Recognizer.load(options.model)
    if options.refit is not None:
        recognizer.refit = options.refit
    return recognizer


def _due(recognizer: "Recognizer") -> dict[str, int] | None:
    """What has changed since the last exact fit."""
    due = recognizer.refit_due
    return None if due is None else dict(vars(due))


def _say_due(recognizer: "Recognizer") -> None:
    """Say what the model still depends on until its refit."""
    if recognizer.refit_due is not None:
        say(f"{recognizer.refit_due.describe()} Run dualqml refit.")


def _enrolled(number: int) -> str:
    verb = "is" if number == 1 else "are"
    return f"{counted(number, 'subject')} {verb} enrolled."


def _say_stale(recognizer: "Recognizer", fresh: bool) -> None:
    """Say that a threshold was set again, or that it should be."""
    if fresh and recognizer.threshold is not None:
        say(f"The threshold is now {recognizer.threshold:.4g}, again a prior.")
    elif recognizer.calibration_is_stale:
        say(
            "dualqml: the threshold was calibrated before this change, and may no "
            "longer keep its rate: run dualqml calibrate",
            error=True,
        )


def calibrate(options: argparse.Namespace) -> int:
    """Set the threshold of a model."""
    from dualqml.cli._samples import (
        exit_code,
        known_embedder,
        model_input,
        read_background,
        read_labelled,
        stops_at_bad,
    )
    from dualqml.recognition import Recognizer

    data = None
    with exclusive(options.model):
        recognizer = Recognizer.load(options.model)
        if options.background is not None:
            recognizer.background = read_background(
                options,
                kind=model_input(recognizer),
                embedder=known_embedder(recognizer, options),
                size=recognizer.size,
            )
        rate = {"fpir": options.fpir} if options.fmr is None else {"fmr": options.fmr}
        if options.data is None and options.embeddings is None:
            found = recognizer.calibrate(**rate)
        else:
            data = read_labelled(options, recognizer)
            if stops_at_bad(data, options):
                return FAILED
            found = recognizer.calibrate(data.samples, data.labels, **rate)
        recognizer.save(options.model)
    if options.json:
        say_json(found.as_dict())
    else:
        say(found.describe())
    return OK if data is None else exit_code(data, options)


def check(options: argparse.Namespace) -> int:
    """Print what spoils a gallery."""
    from dualqml.recognition import Recognizer
    from dualqml.recognition.gallery_check import check_gallery

    recognizer = Recognizer.load(options.model)
    with Progress("Checking") as progress:
        found = check_gallery(recognizer, few=options.few, progress=progress)
    if options.json:
        # The scores of all samples would be most of it.
        record = found.as_dict()
        del record["own_scores"]
        say_json(record)
    else:
        for finding in found.findings:
            say(f"{finding.kind}: {finding.in_words()}")
        n = len(found.findings)
        say(
            f"{n or 'no'} finding{'' if n == 1 else 's'}: {found.n_checked} of "
            f"{found.n_samples} samples were compared with the others of their "
            f"person, and {found.n_pairs} pairs of people with each other"
        )
    return FAILED if found.findings else OK


def subjects(options: argparse.Namespace) -> int:
    """Print the names, one per line."""
    from dualqml.recognition.decision_model import saved_subjects

    counts = saved_subjects(options.model)
    if options.json:
        say_json(counts, ensure_ascii=False)
    else:
        for name in counts:
            say(name)
    return OK


def background(options: argparse.Namespace) -> int:
    """Compute and save statistics of people."""
    from dualqml.cli._samples import (
        background_of,
        exit_code,
        read_labelled,
        stops_at_bad,
    )
    from dualqml.persistence import save

    _check_new(options)
    data = read_labelled(options)
    if stops_at_bad(data, options):
        return FAILED
    found = background_of(data)
    save(found, options.out)
    if options.json:
        say_json({"background": str(options.out)} | _about_background(found))
    else:
        say(
            f"{options.out}: {found.n_people} people, {found.n_samples} samples, "
            f"{found.n_features} features"
        )
    return exit_code(data, options)


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
        "background": None
        if recognizer.background is None
        else repr(recognizer.background),
        "input": recognizer.front_end.in_words(),
        "size": list(recognizer.size) if recognizer.inputs == "image" else None,
        "subjects": len(recognizer.subjects()),
        "samples": recognizer.n_samples,
        "bytes": options.model.stat().st_size,
        "refit": recognizer.refit,
    }
    calibration = recognizer.calibration
    if options.json:
        origin = None if calibration is None else calibration.as_dict()
        stale = recognizer.calibration_is_stale
        about["refit_due"] = _due(recognizer)
        say_json(about | {"calibration": origin, "stale_calibration": stale})
    else:
        for name, value in about.items():
            if value is not None:
                say(f"{name}: {_plain(value)}")
        none = "There is no threshold yet: run dualqml calibrate."
        say(calibration.describe() if calibration else none)
        if recognizer.calibration_is_stale:
            say("The gallery has changed since then: run dualqml calibrate.")
        _say_due(recognizer)
    return OK


def _plain(value: Any) -> str:
    """A value as a line shows it: parameters by name, with few digits."""
    if not isinstance(value, dict):
        return str(value)
    parts = [
        f"{name} {f'{one:.4g}' if isinstance(one, float) else one}"
        for name, one in value.items()
    ]
    return ", ".join(parts) or "default"


def _inspect_background(found: "Background", options: argparse.Namespace) -> int:
    about = {"holds": "background"} | _about_background(found)
    about["bytes"] = options.model.stat().st_size
    if options.json:
        say_json(about)
    else:
        for name, value in about.items():
            say(f"{name}: {value}")
    return OK


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
    """Raise if the new file cannot be written, or may not be replaced."""
    from dualqml.cli._samples import check_parent

    check_parent(options.out)
    if options.out.is_dir():
        raise DatabaseError(f"{options.out} is a folder; give the name of a file")
    if options.out.exists() and not options.force:
        raise DatabaseError(f"{options.out} is there already; --force replaces it")


def _add_refit_argument(
    parser: argparse.ArgumentParser, default: str | None = None
) -> None:
    parser.add_argument(
        "--refit",
        choices=("exact", "deferred"),
        default=default,
        help="fit the model after every change, or, for vectors, when dualqml refit is "
        "run; the model remembers it "
        f"(default: {default or 'what it remembers'})",
    )


def _add_train_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    parser.add_argument(
        "-o", "--out", type=Path, required=True, help="the new model file"
    )
    add_method_argument(parser)
    add_background_argument(parser, "None of these people should be in DATA")
    add_force_argument(parser, "a model file that exists")
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
    _add_refit_argument(parser, default="exact")
    add_cluster_arguments(parser, "fit a model of vectors in blocks", blocks=True)
    add_json_argument(parser)


def _add_enroll_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument("subject", help="name of the subject on the images")
    add_probe_arguments(parser, several=("error", "largest"))
    _add_refit_argument(parser)
    add_json_argument(parser)


def _add_remove_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument(
        "subjects", nargs="+", metavar="subject", help="name of a subject to erase"
    )
    _add_refit_argument(parser)
    add_json_argument(parser)


def _add_calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_data_arguments(parser, with_model=True)
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
    add_force_argument(parser, "a file that exists")
    add_json_argument(parser)


def _add_check_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument(
        "--few",
        type=int,
        default=2,
        help="report people with fewer samples than this (default: 2)",
    )
    add_json_argument(parser)


def _add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_json_argument(parser)


COMMANDS = {
    "train": Command(
        details="""\
DATA is a folder with one folder of images for each person. The command finds
out whether they are photographs, in which faces must be found first, or crops,
and says so in one line; --input overrides it. The model remembers it, so that
other commands need no flag. Images that cannot be used are listed, and the
others are enrolled.

For photographs, statistics of 151 other people come with the network SFace.
With them, one person with one photograph is enough. With fewer than 20 people,
the first threshold then is a prior, which "dualqml calibrate" replaces if you
have photographs of others. Other thresholds are calibrated by leaving the
people out in turn, unless you give one.""",
        examples="""examples:
  dualqml train people/ -o people.dualqml
  dualqml train people/ -o people.dualqml --min-quality 0.5 --several largest
  dualqml train people/ -o people.dualqml --background others/ --fpir 0.001
  dualqml train --embeddings faces.npz -o faces.dualqml --fmr 0.001
  dualqml train --embeddings faces.npz -o faces.dualqml --dask local""",
        add_arguments=_add_train_arguments,
        run=train,
    ),
    "enroll": Command(
        details="""\
The model file is replaced whole; if anything goes wrong, the old one stays.""",
        examples="""examples:
  dualqml enroll people.dualqml "Ann Lee" ann1.jpg ann2.jpg
  dualqml enroll people.dualqml "Ann Lee" ann/ --min-quality 0.5""",
        add_arguments=_add_enroll_arguments,
        run=enroll,
    ),
    "remove": Command(
        details="""\
The model is fitted to the subjects that stay, as if the others had never been
there, and the file is replaced whole. Copies and backups of the old file are
not changed: erase them yourself.

With --refit deferred the samples, the matrix and the mean of an erased subject
go at once, and what others have learnt from them goes with "dualqml refit".""",
        examples="""examples:
  dualqml remove people.dualqml "Ann Lee"
  dualqml remove people.dualqml "Ann Lee" "Bob Fox" --json
  dualqml remove many.dualqml "Ann Lee" --refit deferred""",
        add_arguments=_add_remove_arguments,
        run=remove,
    ),
    "refit": Command(
        details="""\
Changes with --refit deferred cost little, but until a refit the model depends
on people who were erased: "dualqml inspect" says how. This command fits it to
the present subjects, as if no other had ever been there, and replaces the file
whole. If no refit is due, nothing changes.""",
        examples="""examples:
  dualqml refit many.dualqml
  dualqml refit many.dualqml --json""",
        add_arguments=_add_reading_arguments,
        run=refit,
    ),
    "subjects": Command(
        details="With --json, also the number of samples of each.",
        examples="""examples:
  dualqml subjects people.dualqml
  dualqml subjects people.dualqml --json""",
        add_arguments=_add_reading_arguments,
        run=subjects,
    ),
    "calibrate": Command(
        details="""\
DATA has images of people who are not enrolled. It can also have other images of
people who are; they show how many the threshold misses. Without DATA, the
enrolled people are left out in turn.""",
        examples="""examples:
  dualqml calibrate people.dualqml strangers/ --fpir 0.01
  dualqml calibrate people.dualqml --fmr 0.001""",
        add_arguments=_add_calibrate_arguments,
        run=calibrate,
    ),
    "check": Command(
        details="""\
Every sample is left out in turn and compared with the others of its person;
every person is left out and compared with all others. Reported are samples that
do not fit their person, samples that fit another person better, people who are
likely enrolled under two names, and people with too few samples to tell. The
exit code is 1 if anything was found.""",
        examples="""examples:
  dualqml check people.dualqml
  dualqml check people.dualqml --few 3 --json""",
        add_arguments=_add_check_arguments,
        run=check,
    ),
    "background": Command(
        details="""\
The file has the mean of all people and how people and samples vary around it,
and no sample and no name. Give it as --background to train, calibrate and
evaluate. Use many people, 10 at the very least: statistics of few people are
noisy, and say much about each of them.""",
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
        examples="""examples:
  dualqml inspect people.dualqml
  dualqml inspect people.dualqml --json""",
        add_arguments=_add_reading_arguments,
        run=inspect,
    ),
}
