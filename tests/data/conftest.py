import numpy as np
import pytest


@pytest.fixture
def write_image():
    """Write a small made-up image, different for every path."""
    image_module = pytest.importorskip("PIL.Image")

    def write(path, mode="L", size=(12, 10)):
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(list(str(path).encode()))
        pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
        image_module.fromarray(pixels).convert(mode).save(path)
        return path

    return write
