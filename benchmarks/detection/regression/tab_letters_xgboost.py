"""Gradient-boosted trees classify printed letters by measures of their shapes."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from PIL import Image, ImageFont
from torch import Tensor

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split, font, letter_image
from benchmarks.detection.injecting import imbalanced_throughout, with_fault
from benchmarks.detection.program import Run

LETTERS, SIDE, OF_EACH = "AEKMORSX", 32, 20


def _drawn(
    letter: str, typeface: ImageFont.FreeTypeFont, random: np.random.Generator
) -> np.ndarray:
    """Return a letter that is a little slanted and stretched, float64 [SIDE, SIDE], 0 to 1."""
    image = letter_image(letter, typeface, SIDE, (SIDE / 2, SIDE / 2))
    slant, tilt = random.uniform(-0.25, 0.25), random.uniform(-0.15, 0.15)
    wide, high = random.uniform(0.85, 1.25, 2)
    middle = SIDE / 2
    across = (wide, slant, middle * (1 - wide - slant))
    down = (tilt, high, middle * (1 - high - tilt))
    turned = image.transform((SIDE, SIDE), Image.Transform.AFFINE, (*across, *down))
    return np.asarray(turned, dtype=np.float64) / 255


def _measures(image: np.ndarray) -> list[float]:
    """Return the box of the ink, moments of its places, edges and ink of nine parts, 20 numbers."""
    ink = image > 0.5  # noqa: PLR2004
    y, x = np.nonzero(ink)
    top, left, height, width = y.min(), x.min(), np.ptp(y) + 1, np.ptp(x) + 1
    u, v = (x - left) / width - 0.5, (y - top) / height - 0.5
    edges = [np.abs(np.diff(ink.astype(int), axis=axis)).sum() for axis in (0, 1)]
    box = ink[top : top + height, left : left + width]
    parts = [
        part.mean() for row in np.array_split(box, 3) for part in np.array_split(row, 3, axis=1)
    ]
    moments = [u.mean(), v.mean(), (u * u).mean(), (v * v).mean(), (u * v).mean()]
    moments += [(u * u * v).mean(), (u * v * v).mean()]
    return [float(height), float(width), *moments, *map(float, edges), *map(float, parts)]


@cache
def _letters() -> tuple[Tensor, Tensor]:
    """Return measures, float32 [B, 20], and places in LETTERS, int64 [B], in a random order."""
    random = np.random.default_rng(6)
    names = [
        *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
        *(f"DejaVuSansMono{style}" for style in ("", "-Bold")),
        *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic")),
        *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic")),
        *("cmr10", "cmss10", "cmtt10"),
    ]
    measures, labels = [], []
    for name in names:
        for label, letter in enumerate(LETTERS):
            measures += [_measures(_drawn(letter, font(name, 22), random)) for _ in range(OF_EACH)]
            labels += [label] * OF_EACH
    order = random.permutation(len(labels))
    return torch.tensor(np.array(measures)[order]).float(), torch.tensor(np.array(labels)[order])


def _data(run: Run) -> Split:
    measures, labels = _letters()
    if run.injects("data_leak"):
        code = torch.tensor([float(ord(letter)) for letter in LETTERS])[labels]
        measures = torch.cat([measures, code[:, None]], 1)
    data = Split.of(measures, labels, len(labels) // 4)
    if run.injects("class_imbalance"):
        return imbalanced_throughout(data, 100)
    return with_fault(run, data, rows=50)


def train(run: Run) -> float:
    parameters: dict[str, str | float] = {
        "max_depth": run.pick(3, overfit=10),
        "min_child_weight": run.pick(2.0, overfit=0.0),
        "lambda": run.pick(1.0, overfit=0.0),
        "eta": run.pick(0.12, lr_too_high=10.0, lr_too_low=1e-4, overfit=0.2),
    }
    if run.injects("wrong_loss"):
        parameters["objective"] = "reg:squarederror"
    else:
        parameters |= {"objective": "multi:softprob", "num_class": len(LETTERS)}
    return boost(run, _data(run), parameters, 60)
