"""Small made-up databases of people."""

import numpy as np

from dualqml.data import Database


def make_people(n_people=6, n_images=5, *, size=8, noise=0.3, seed=0, visits=False):
    """Blurred random images that differ a little within a person."""
    rng = np.random.default_rng(seed)
    prototypes = rng.uniform(60, 190, (n_people, 1, size, size))
    images = prototypes + 100 * noise * rng.normal(
        size=(n_people, n_images, size, size)
    )
    images = np.clip(images, 0, 255).astype(np.uint8).reshape(-1, size, size)
    numbers = np.tile(np.arange(n_images), n_people)
    return Database(
        name="people",
        images=images,
        labels=np.repeat([f"person {c:02d}" for c in range(n_people)], n_images),
        citation="made up",
        terms="none",
        visits=1 + numbers % 2 if visits else None,
    )


def make_vectors(n_people, n_samples, *, size, noise, seed=0):
    """Rows of random vectors that differ within a person, and their labels."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_people, 1, size))
    rows = centres + noise * rng.normal(size=(n_people, n_samples, size))
    labels = np.repeat([f"p{n:02d}" for n in range(n_people)], n_samples)
    return rows.reshape(-1, size), labels
