# SPDX-License-Identifier: BSD-3-Clause
"""What a command consists of, and arguments that several commands have."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


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


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the choice of JSON instead of text."""
    parser.add_argument(
        "--json", action="store_true", help="print JSON instead of text"
    )


def add_root_argument(parser: argparse.ArgumentParser) -> None:
    """Declare where the databases are that are known by name."""
    parser.add_argument("--root", type=Path, help="folder that holds the databases")


def add_method_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the method of recognition."""
    from dualqml.extractors.methods import METHODS

    parser.add_argument(
        "--method",
        choices=list(METHODS),
        default="DualQML-W",
        help="method of recognition (default: DualQML-W)",
    )


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where labelled samples come from."""
    parser.add_argument(
        "data",
        nargs="?",
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
    parser.add_argument(
        "--photographs",
        action="store_true",
        help="find the face in every photograph and compute its embedding (needs "
        "dualqml[faces]); DATA is a folder with one folder for each person",
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
        "of images for each person (of photographs with --photographs), vectors with "
        "labels (.npz, .parquet), or a file that dualqml background has written. "
        + others,
    )


def add_probe_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where samples without labels come from."""
    parser.add_argument("images", nargs="*", type=Path, help="image files")
    parser.add_argument(
        "--embeddings", type=Path, metavar="FILE", help="vectors instead of images"
    )
    parser.add_argument(
        "--photographs",
        action="store_true",
        help="find the face and compute its embedding (needs dualqml[faces])",
    )
