"""Fashion-MNIST, or images that look like it where it is not there."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

__all__ = ["load_images"]

NUM_CLASSES = 10
SIDE = 28
_HEADER_BYTES = {"images": 16, "labels": 8}


def load_images(folder: Path | None, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images, float32 [N, 1, 28, 28] from 0 to 1, and their labels, float32 [N].

    Args:
        folder: Where `train-images-idx3-ubyte.gz` and its labels are, packed or not, as in Debian's
            `dataset-fashion-mnist`; None: made-up images.
        count: How many.
    """
    if folder is None:
        return _made_up_images(count)
    images = _idx(folder, "images")[: count * SIDE * SIDE].reshape(-1, 1, SIDE, SIDE)
    return images.astype(np.float32) / 255, _idx(folder, "labels")[:count].astype(np.float32)


def _idx(folder: Path, kind: str) -> np.ndarray:
    (path,) = sorted(folder.glob(f"train-{kind}-idx*-ubyte*"))[:1]
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return np.frombuffer(content, np.uint8, offset=_HEADER_BYTES[kind])


def _made_up_images(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy copies of one smooth pattern a class."""
    random = np.random.RandomState(0)
    coarse = random.rand(NUM_CLASSES, 1, 7, 7)
    patterns = coarse.repeat(4, axis=2).repeat(4, axis=3)
    labels = random.randint(NUM_CLASSES, size=count)
    images = patterns[labels] + random.normal(scale=0.2, size=(count, 1, SIDE, SIDE))
    return images.clip(0, 1).astype(np.float32), labels.astype(np.float32)
