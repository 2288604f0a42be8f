# SPDX-License-Identifier: BSD-3-Clause
"""
Enrol and erase, byte by byte
=============================

Somebody asks to be removed from a gallery. Is it enough to delete her images? A model
that has learnt from her may still contain something of her. Here we enrol a person,
erase her, and compare the files of the model byte by byte.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from dualqml.data import load_orl
from dualqml.recognition import Recognizer

# %%
# Six people are enrolled. Then comes Ann Lee with three images, and then she is
# removed. We save the model after each step.

images = load_orl().images.reshape(40, 10, 32, 32)
recognizer = Recognizer()
for number in range(6):
    recognizer.enroll(f"person {number}", images[number, :3])

folder = Path(tempfile.mkdtemp())
steps = ("before", "with Ann Lee", "after her removal")
recognizer.save(folder / steps[0])
recognizer.enroll("Ann Lee", images[10, :3])
recognizer.save(folder / steps[1])
recognizer.remove("Ann Lee")
recognizer.save(folder / steps[2])

files = {step: (folder / step).read_bytes() for step in steps}
for step, content in files.items():
    print(f"{step:18} {len(content):7,} bytes, her name: {b'Ann Lee' in content}")

# %%
# Are the first file and the last the same?

print(files["before"] == files["after her removal"])

# %%
# What a single person changes
# ----------------------------
# Each dot below stands for 256 bytes of a file. Blue: these bytes are somewhere in the
# first file too. Red: pixels of Ann Lee. Orange: other bytes that are new. While she is
# enrolled, nearly everything that was learnt is different, because the metric and the
# matrices of all others depend on her too. So it is not enough to delete her pixels.
# ``remove`` learns from the other people again, and this gives the old file.

WIDTH, PER_DOT = 64, 256
n_rows = -(-len(files["with Ann Lee"]) // (WIDTH * PER_DOT))
ann = Recognizer.load(folder / "with Ann Lee").samples("Ann Lee").tobytes()


def kinds(content):
    """The kind of each piece of a file; NaN after the end."""
    dots = np.full(n_rows * WIDTH, np.nan)
    for i in range(-(-len(content) // PER_DOT)):
        piece = content[i * PER_DOT : (i + 1) * PER_DOT]
        dots[i] = 0 if piece in files["before"] else 2 if piece in ann else 1
    return dots.reshape(n_rows, WIDTH)


colours = ListedColormap(["#9ec5e8", "#f0a860", "#b3262a"])
figure, axes = plt.subplots(1, 3, figsize=(9, 2.9), layout="constrained")
for ax, (step, content) in zip(axes, files.items(), strict=True):
    ax.imshow(kinds(content), cmap=colours, vmin=0, vmax=2)
    ax.set_title(f"{step}\n{len(content):,} bytes", fontsize=10)
    ax.set(xticks=[], yticks=[])

# %%
# Only one number may still remember her: a threshold that was set by ``calibrate``
# while she was enrolled stays. Here none was set. The recogniser tells when it should
# be set again.

recognizer.enroll("Ann Lee", images[10, :3])
strangers = np.repeat([f"stranger {number}" for number in range(20)], 10).tolist()
recognizer.calibrate(images[20:].reshape(-1, 32, 32), strangers, fpir=0.05)
print(recognizer.calibration_is_stale)
recognizer.remove("Ann Lee")
print(recognizer.calibration_is_stale)
