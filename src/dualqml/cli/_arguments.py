# SPDX-License-Identifier: BSD-3-Clause
"""What a command consists of, and arguments that several commands have."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dualqml.exceptions import ClusterError

if TYPE_CHECKING:
    from distributed import Client


class Command(NamedTuple):
    """A command below ``dualqml``.

    Attributes
    ----------
    details : str
        What the help says after the summary.
    examples : str
        The end of the help.
    add_arguments : callable
        Declares the arguments on the parser that it gets.
    run : callable
        Gets the parsed arguments and returns the exit code.
    """

    details: str
    examples: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the model file."""
    parser.add_argument("model", type=Path, help="the model file")


def add_json_argument(
    parser: "argparse.ArgumentParser | argparse._ActionsContainer",
) -> None:
    """Declare the choice of JSON instead of text."""
    parser.add_argument(
        "--json", action="store_true", help="print JSON instead of text"
    )


def add_root_argument(parser: argparse.ArgumentParser) -> None:
    """Declare where the databases are that are known by name."""
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="folder that holds the databases"
    )


def add_method_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the method of recognition."""
    from dualqml.extractors.method_names import METHOD_NAMES

    parser.add_argument(
        "--method",
        choices=METHOD_NAMES,
        default="DualQML-W",
        metavar="NAME",
        help=f"method of recognition: {', '.join(METHOD_NAMES)} (default: DualQML-W)",
    )


def add_force_argument(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare the permission to replace files.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        The parser.
    what : str
        What the help says may be replaced.
    """
    parser.add_argument("--force", action="store_true", help=f"replace {what}")


def add_data_arguments(
    parser: argparse.ArgumentParser, *, with_model: bool = False
) -> None:
    """Declare where labelled samples come from.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        The parser.
    with_model : bool, default=False
        Whether a model says what its samples are. If not, the arguments that say so
        are declared too.
    """
    parser.add_argument(
        "data",
        nargs="?",
        metavar="DATA",
        help="a folder with one folder of images for each person, or any database of "
        "dualqml reproduce (optional)",
    )
    add_root_argument(parser)
    parser.add_argument(
        "--embeddings",
        type=Path,
        metavar="FILE",
        help="vectors instead of images: .npz with embeddings and labels, .npy with "
        "--labels, or .parquet with a column subject",
    )
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="FILE",
        help="text file with the subjects of --embeddings, one per line",
    )
    if not with_model:
        add_input_argument(parser)
    add_photograph_arguments(parser, with_model=with_model)
    add_bad_argument(parser)


def add_input_argument(parser: argparse.ArgumentParser) -> None:
    """Declare what the samples are."""
    parser.add_argument(
        "--input",
        choices=["auto", "photographs", "crops", "vectors"],
        default="auto",
        help="what the samples are: photographs, in which faces are found first "
        "(needs dualqml[faces]); crops, that show a face, ear or palm and nothing "
        "else; or vectors. By default the command finds out, and says so",
    )


def add_photograph_arguments(
    parser: argparse.ArgumentParser,
    *,
    with_model: bool = False,
    several: tuple[str, ...] = ("error", "largest"),
    jobs: str = "number of threads that read photographs",
) -> None:
    """Declare how faces are found and described.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        The parser.
    with_model : bool, default=False
        Whether a model remembers the network. If not, the parameters of the network
        are declared too.
    several : tuple of str
        The choices for photographs with several faces, the default first.
    jobs : str
        What the help says about the number of jobs.
    """
    group = parser.add_argument_group("photographs")
    meanings = {
        "all": "answer for all",
        "error": "leave the photograph out if others are about as large",
        "largest": "take the largest",
    }
    group.add_argument(
        "--several",
        choices=several,
        default=several[0],
        help="several faces in one photograph: "
        + "; ".join(f"{name}: {meanings[name]}" for name in several)
        + f" (default: {several[0]})",
    )
    group.add_argument(
        "--min-quality",
        type=float,
        default=0.0,
        metavar="0..1",
        help="leave out faces of a lower quality, which is the worst of size, "
        "sharpness and clearness (default: 0)",
    )
    group.add_argument(
        "--tiles",
        action="store_true",
        help="search large photographs in tiles too, to find small faces; slow",
    )
    group.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help=f"{jobs} (default: all cores)",
    )
    group.add_argument(
        "--network",
        type=Path,
        metavar="FILE.onnx",
        help="where the network of the model is, if it was moved"
        if with_model
        else "describe faces by this network instead of SFace",
    )
    if with_model:
        return
    group.add_argument(
        "--network-size",
        type=int,
        default=112,
        metavar="PIXELS",
        help="height and width of its input (default: 112)",
    )
    group.add_argument(
        "--network-channels",
        choices=["rgb", "bgr"],
        default="rgb",
        help="order of the colours of its input (default: rgb)",
    )
    group.add_argument(
        "--network-mean",
        type=float,
        default=127.5,
        metavar="VALUE",
        help="what is subtracted from the pixels, 0 to 255 (default: 127.5)",
    )
    group.add_argument(
        "--network-scale",
        type=float,
        default=127.5,
        metavar="VALUE",
        help="what they are divided by then (default: 127.5)",
    )


def add_cluster_arguments(
    parser: argparse.ArgumentParser, work: str, *, blocks: bool = False
) -> None:
    """Declare on which Dask cluster a command works.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        The parser.
    work : str
        What the help says about the work that is done there.
    blocks : bool, default=False
        Whether all workers, wherever they are, write blocks into one scratch folder.
    """
    parser.set_defaults(scratch_is_shared=blocks)
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--dask",
        metavar="PLACE",
        help=f"{work} on a Dask cluster (needs dualqml[dask]). PLACE is local, for "
        "processes on this machine; the address of a scheduler, such as "
        "tcp://host:8786 or tls://host:8786; or the file that a scheduler has written "
        "(scheduler.json). Workers must have the same versions as this machine",
    )
    group.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="number of processes of --dask local (default: all cores)",
    )
    group.add_argument(
        "--memory-limit",
        metavar="4GB",
        help="most memory of each process of --dask local, 0 for no limit (default: "
        "they share the memory of the machine). A process that takes more is killed",
    )
    group.add_argument(
        "--scratch",
        type=Path,
        metavar="DIR",
        help="folder for temporary files (default: that of the system). "
        "All workers of a cluster elsewhere must see it"
        if blocks
        else "folder for temporary files of --dask local (default: that of the system)",
    )


@contextmanager
def cluster(options: argparse.Namespace) -> "Iterator[Client | None]":
    """Connect to the cluster that the arguments of `add_cluster_arguments` name.

    Parameters
    ----------
    options : argparse.Namespace
        The parsed arguments.

    Yields
    ------
    distributed.Client or None
        The connection; None without --dask.

    Raises
    ------
    ClusterError
        There is no such cluster, or arguments are given that do not belong to it.
    """
    if options.dask is None:
        for name in ("workers", "memory_limit", "scratch"):
            if getattr(options, name) is not None:
                flag = name.replace("_", "-")
                raise ClusterError(
                    f"--{flag} belongs to a cluster: add --dask, such as --dask local"
                )
        yield None
        return
    from dualqml.scale import connected

    if options.dask != "local" and options.scratch and not options.scratch_is_shared:
        raise ClusterError(
            "--scratch belongs to --dask local: a cluster elsewhere has its own folders"
        )
    with connected(
        options.dask,
        workers=options.workers,
        memory_limit=options.memory_limit,
        scratch=options.scratch,
    ) as client:
        yield client


def add_bad_argument(parser: argparse.ArgumentParser) -> None:
    """Declare what happens to images that cannot be used."""
    parser.add_argument(
        "--on-bad",
        choices=["report", "stop", "skip"],
        default="report",
        help="images that cannot be used: report: list them, go on with the others, "
        "and end with exit code 1; stop: list them and do nothing; skip: go on, and "
        "only count them (default: report)",
    )


def add_background_argument(parser: argparse.ArgumentParser, others: str) -> None:
    """Declare where statistics of people come from who are not enrolled.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        The parser.
    others : str
        What the help says about who these people may be.
    """
    parser.add_argument(
        "--background",
        metavar="FOLDER|FILE",
        help="learn from other people too how samples vary: a folder with one folder "
        "of images for each person, of the same kind as DATA, vectors with "
        "labels (.npz, .parquet), or a file that dualqml background has written. "
        + others
        + '. "none" turns off the statistics that come with the network SFace',
    )


def add_probe_arguments(
    parser: argparse.ArgumentParser, *, several: tuple[str, ...]
) -> None:
    """Declare where samples without labels come from.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        The parser.
    several : tuple of str
        The choices for photographs with several faces, the default first.
    """
    parser.add_argument(
        "images",
        nargs="*",
        help="image files, folders, or - to read their names from standard input, one "
        "per line",
    )
    parser.add_argument(
        "--embeddings", type=Path, metavar="FILE", help="vectors instead of images"
    )
    add_photograph_arguments(parser, with_model=True, several=several)
    add_bad_argument(parser)
