"""Kill processes that save a model again and again; what is left must load.

A program of its own, which forks: a process that imports takes seconds.
"""

import collections
import json
import os
import random
import signal
import sys
import time

import numpy as np

from dualqml.extractors import NearestSample
from dualqml.persistence.model_files import load, save


def main(path, n_kills):
    chance = random.Random(0)
    models = []
    for value in (1.0, 2.0):
        model = NearestSample(metric="euclidean").fit(np.eye(2), ["a", "b"])
        # Some megabytes, so that there is something to interrupt.
        model.gallery_ = np.full((400_000, 2), value)
        model.codes_ = np.arange(400_000) % 2
        models.append(model)
    save(models[0], path)
    seen = collections.Counter()
    for _ in range(n_kills):
        child = os.fork()
        if child == 0:
            while True:
                for model in reversed(models):
                    save(model, path)
        time.sleep(chance.uniform(0.0, 0.25))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        gallery = load(path).gallery_
        assert (gallery == gallery[0, 0]).all()
        seen[str(gallery[0, 0])] += 1
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
