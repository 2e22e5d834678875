"""Real data that comes with installed packages; nothing is downloaded.

B = rows, C = channels, H and W = height and width.
"""

from __future__ import annotations

import inspect
import pydoc_data.topics
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from sklearn import datasets
from torch import Tensor

__all__ = [
    "Split",
    "code_text",
    "digits",
    "docs_text",
    "font",
    "glyphs",
    "letter_image",
    "letters",
    "photo",
    "standardised",
    "table",
    "windows",
]


class Split(NamedTuple):
    """Inputs and targets for training and for validation; the split is the same in every run."""

    inputs: Tensor
    targets: Tensor
    valid_inputs: Tensor
    valid_targets: Tensor

    @classmethod
    def of(cls, inputs: Tensor, targets: Tensor, held_out: int) -> Split:
        """Return a split whose first `held_out` rows are for validation."""
        return cls(inputs[held_out:], targets[held_out:], inputs[:held_out], targets[:held_out])

    def with_inputs(self, change: Callable[[Tensor], Tensor]) -> Split:
        """Return a split with changed inputs."""
        return self._replace(inputs=change(self.inputs), valid_inputs=change(self.valid_inputs))

    def validation(self, size: int | None = None) -> list[tuple[Tensor, Tensor]]:
        """Return batches of at most `size` rows for validation; one batch by default."""
        rows = size or len(self.valid_inputs)
        inputs, targets = self.valid_inputs.split(rows), self.valid_targets.split(rows)
        return list(zip(inputs, targets, strict=True))


def digits(*, scaled: bool = True) -> Split:
    """Return handwritten digits, float32 [B, 64], with their numbers, int64 [B].

    Args:
        scaled: Whether pixels are of mean 0 and variance 1, else 0 to 16.
    """
    images, labels = datasets.load_digits(return_X_y=True)
    return _split(images, labels, scaled=scaled)


def table(name: str, *, scaled: bool = True) -> Split:
    """Return one of scikit-learn's tables, float32 [B, columns]; numbers of classes are int64.

    Args:
        name: `breast_cancer` or `diabetes`.
        scaled: Whether columns are of mean 0 and variance 1, else as they were measured.
    """
    options = {"scaled": False} if name == "diabetes" else {}
    inputs, targets = getattr(datasets, f"load_{name}")(return_X_y=True, **options)
    return _split(inputs, targets, scaled=scaled)


def photo(name: str, width: int) -> Tensor:
    """Return a photograph, made smaller by leaving out pixels, float32 [H, W, 3] from 0 to 1.

    Args:
        name: `china.jpg` or `flower.jpg`.
        width: The width to make it, pixels.
    """
    image = datasets.load_sample_image(name)
    step = image.shape[1] // width
    return torch.tensor(image[::step, ::step] / 255.0, dtype=torch.float32)


def docs_text() -> dict[str, str]:
    """Return the pages of Python's own help by topic."""
    return dict(sorted(pydoc_data.topics.topics.items()))


def code_text() -> dict[str, str]:
    """Return the source of some modules of Python's library by name."""
    names = ("argparse", "ast", "difflib", "logging", "pickle", "tarfile", "typing", "zipfile")
    return {name: inspect.getsource(import_module(name)) for name in names}


def letters(text: str, size: int) -> Tensor:
    """Return a text as numbers of its letters, int64 [letters]; rare ones share the last number.

    Args:
        text: The text.
        size: How many numbers there are.
    """
    kinds, counts = np.unique(np.array(list(text)), return_counts=True)
    frequent = sorted(kinds[np.argsort(-counts, kind="stable")][: size - 1])
    numbers = {letter: number for number, letter in enumerate(frequent)}
    return torch.tensor([numbers.get(letter, size - 1) for letter in text])


def windows(text: Tensor, starts: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Return pieces of a text, int64 [B, length], and the same one letter later.

    Args:
        text: Numbers of letters, int64 [letters].
        starts: Where the pieces begin, int64 [B].
        length: Their length, letters.
    """
    at = starts[:, None] + torch.arange(length)
    return text[at], text[at + 1]


def standardised(values: Tensor, held_out: int = 0) -> Tensor:
    """Return columns with mean 0 and variance 1 in the rows after the first `held_out`."""
    known = values[held_out:]
    return (values - known.mean(0)) / known.std(0)


@cache
def glyphs(text: str) -> tuple[Tensor, Tensor]:
    """Return letters in 21 fonts, two sizes, at two places each, in a random order.

    Args:
        text: The letters.

    Returns:
        Images, float32 [84 letters, 1, 12, 12] from 0 to 1, and places of the letters in the text,
        int64 [84 letters].
    """
    styles = {"DejaVuSans": ("", "-Bold", "-Oblique", "-BoldOblique")}
    styles["DejaVuSansMono"] = styles["DejaVuSans"]
    styles["DejaVuSerif"] = ("", "-Bold", "-Italic", "-BoldItalic")
    styles["STIXGeneral"] = ("", "Bol", "Italic", "BolIta")
    styles["cm"] = ("b10", "r10", "ss10", "ti10", "tt10")
    random = np.random.default_rng(0)
    images, labels = [], []
    for name in (family + style for family, own in styles.items() for style in own):
        for size in (11, 12, 11, 12):
            for label, letter in enumerate(text):
                at = (6 + random.integers(-1, 2), 6 + random.integers(-1, 2))
                image = letter_image(letter, font(name, size), 12, at)
                images.append(np.asarray(image, dtype=np.float32)[None] / 255)
                labels.append(label)
    order = random.permutation(len(labels))
    return torch.tensor(np.stack(images)[order]), torch.tensor(np.array(labels)[order])


@cache
def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """Return one of matplotlib's fonts."""
    path = Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"
    return ImageFont.truetype(str(path), size)


def letter_image(
    letter: str, typeface: ImageFont.FreeTypeFont, side: int, at: tuple[float, float]
) -> Image.Image:
    """Return a white letter on a black square, with its middle at a place."""
    image = Image.new("L", (side, side))
    ImageDraw.Draw(image).text(at, letter, fill=255, font=typeface, anchor="mm")
    return image


def _split(inputs: np.ndarray, targets: np.ndarray, *, scaled: bool) -> Split:
    order = np.random.default_rng(0).permutation(len(inputs))
    inputs, targets = inputs[order], targets[order]
    held_out = len(inputs) // 4
    train, valid = inputs[held_out:], inputs[:held_out]
    if scaled:
        mean, std = train.mean(axis=0), train.std(axis=0)
        std[std < 1e-6] = 1.0  # noqa: PLR2004 - a column that is constant
        train, valid = (train - mean) / std, (valid - mean) / std
    kind = torch.int64 if np.issubdtype(targets.dtype, np.integer) else torch.float32
    return Split(
        torch.tensor(train, dtype=torch.float32),
        torch.tensor(targets[held_out:], dtype=kind),
        torch.tensor(valid, dtype=torch.float32),
        torch.tensor(targets[:held_out], dtype=kind),
    )
