# SPDX-License-Identifier: BSD-3-Clause
"""Make the statistics of other people that come with the network SFace.

    python scripts/make_background.py DATA

DATA is the folder of the research databases, with ``lfw_sface.npz``: embeddings of 151
people of Labeled Faces in the Wild, ten photographs each. The file that is written has
sums over all of them: a mean, two scatters, and how scores are distributed. It has no
embedding and no name.
"""

import sys
from pathlib import Path

import numpy as np

from dualqml.extractors import Background
from dualqml.persistence import save

OUT = Path("src/dualqml/recognition/backgrounds/sface.background")


def main(folder: str) -> None:
    """Read the embeddings and write the statistics."""
    with np.load(Path(folder, "lfw_sface.npz")) as data:
        found = Background.from_samples(data["embeddings"], data["labels"])
    OUT.parent.mkdir(exist_ok=True)
    save(found, OUT)
    print(f"{OUT}: {found!r}, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
