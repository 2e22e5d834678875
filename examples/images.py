"""Real images for the examples: Fashion-MNIST where Debian's package has it, else digits."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch

__all__ = ["FASHION_MNIST", "load_images"]

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
_HEADER_BYTES = {"images": 16, "labels": 8}
_NUM_FASHION_IMAGES = 1800
_VALIDATION_SHARE = 5


def load_images() -> tuple[
    str, tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]
]:
    """Return the data's name, training images and labels, and held-out images and labels.

    Images are float32 [N, 1, height, width] with mean 0 and variance 1, labels int64 [N].
    """
    if FASHION_MNIST.is_dir():
        name, labels = "Fashion-MNIST", _idx("labels", 1)
        images = _idx("images", 28 * 28).reshape(-1, 28, 28)
    else:
        from sklearn.datasets import load_digits

        digits = load_digits()
        name, images, labels = "digits", digits.images, digits.target
    pixels = torch.tensor(images, dtype=torch.float32).unsqueeze(1)
    pixels = (pixels - pixels.mean()) / pixels.std()
    targets = torch.tensor(labels, dtype=torch.int64)
    held_out = len(targets) // _VALIDATION_SHARE
    return name, (pixels[held_out:], targets[held_out:]), (pixels[:held_out], targets[:held_out])


def _idx(kind: str, num_bytes: int) -> np.ndarray:
    """Return the first images or labels, of so many bytes each."""
    files = sorted(FASHION_MNIST.glob(f"train-{kind}-idx*-ubyte.gz"))
    header = _HEADER_BYTES[kind]
    with gzip.open(files[0]) as file:
        # The rest of the file would take longer to unpack than some examples to train.
        data = file.read(header + num_bytes * _NUM_FASHION_IMAGES)
    return np.frombuffer(data, np.uint8, offset=header)
