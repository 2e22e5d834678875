"""Real data that comes with installed packages; nothing is downloaded.

B = rows, C = channels, H and W = height and width.
"""

from __future__ import annotations

import ast
import colorsys
import inspect
import pydoc_data.topics
import re
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from sklearn import datasets
from torch import Tensor

__all__ = [
    "Split",
    "code_text",
    "colours",
    "digits",
    "docs_text",
    "elevation",
    "fonts",
    "functions",
    "glyphs",
    "letters",
    "mountains",
    "patches",
    "photo",
    "table",
    "windows",
]

_LETTER: Final = re.compile(
    r"^C (\d+) ; WX (\d+) ;.*? B (-?\d+) (-?\d+) (-?\d+) (-?\d+)", re.MULTILINE
)
"""A line of an AFM file: number, width, and left, lower, right and upper end of the ink."""
_OF_FONT: Final = re.compile(r"^(ItalicAngle|CapHeight|IsFixedPitch) (\S+)", re.MULTILINE)


class Split(NamedTuple):
    """Inputs and targets for training and for validation; the split is the same in every run."""

    inputs: Tensor
    targets: Tensor
    valid_inputs: Tensor
    valid_targets: Tensor


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
        name: `breast_cancer`, `wine`, `iris` or `diabetes`.
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


def patches(name: str, size: int, count: int, seed: int = 0) -> Tensor:
    """Return squares cut out of a photograph, float32 [count, 3, size, size] from 0 to 1.

    Args:
        name: `china.jpg` or `flower.jpg`.
        size: Side of a square, pixels.
        count: How many.
        seed: Which ones.
    """
    image = photo(name, 320).permute(2, 0, 1)
    random = np.random.default_rng(seed)
    tops = random.integers(0, image.shape[1] - size, count)
    lefts = random.integers(0, image.shape[2] - size, count)
    cut = [image[:, t : t + size, x : x + size] for t, x in zip(tops, lefts, strict=True)]
    return torch.stack(cut)


def elevation() -> Tensor:
    """Return heights of a piece of land, float32 [H, W], metres."""
    path = Path(mpl.get_data_path()) / "sample_data" / "jacksboro_fault_dem.npz"
    with np.load(path) as file:
        return torch.tensor(file["elevation"][::4, ::4].astype(np.float32))


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


@cache
def functions(kinds: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return what functions of Python's library are made of, in the order of the sources.

    Args:
        kinds: How many kinds of nodes of the syntax tree are counted, the most frequent ones.

    Returns:
        Numbers of nodes, float32 [functions, kinds]; lengths in lines, int64 [functions]; numbers
        of the modules, int64 [functions].
    """
    counts, lines, modules = [], [], []
    for module, source in enumerate(code_text().values()):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                counts.append(Counter(type(part).__name__ for part in ast.walk(node)))
                lines.append((node.end_lineno or node.lineno) - node.lineno + 1)
                modules.append(module)
    frequent = [kind for kind, _ in sum(counts, Counter()).most_common(kinds)]
    made_of = [[float(count[kind]) for kind in frequent] for count in counts]
    return torch.tensor(made_of), torch.tensor(lines), torch.tensor(modules)


@cache
def glyphs(text: str) -> tuple[Tensor, Tensor]:
    """Return letters in 21 fonts, two sizes, at two places each, in a random order.

    Args:
        text: The letters.

    Returns:
        Images, float32 [84 letters, 1, 12, 12] from 0 to 1, and places of the letters in the text,
        int64 [84 letters].
    """
    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    styles = {"DejaVuSans": ("", "-Bold", "-Oblique", "-BoldOblique")}
    styles["DejaVuSansMono"] = styles["DejaVuSans"]
    styles["DejaVuSerif"] = ("", "-Bold", "-Italic", "-BoldItalic")
    styles["STIXGeneral"] = ("", "Bol", "Italic", "BolIta")
    styles["cm"] = ("b10", "r10", "ss10", "ti10", "tt10")
    random = np.random.default_rng(0)
    images, labels = [], []
    for name in (family + style for family, own in styles.items() for style in own):
        for size in (11, 12, 11, 12):
            font = ImageFont.truetype(str(folder / f"{name}.ttf"), size)
            for label, letter in enumerate(text):
                image = Image.new("L", (12, 12))
                at = (6 + random.integers(-1, 2), 6 + random.integers(-1, 2))
                ImageDraw.Draw(image).text(at, letter, fill=255, font=font, anchor="mm")
                images.append(np.asarray(image, dtype=np.float32)[None] / 255)
                labels.append(label)
    order = random.permutation(len(labels))
    return torch.tensor(np.stack(images)[order]), torch.tensor(np.array(labels)[order])


def mountains() -> Split:
    """Return places of a map, float32 [B, 2] of mean 0, and which are above 1,000 m, int64 [B].

    One in ten is.
    """
    path = Path(mpl.get_data_path()) / "sample_data" / "topobathy.npz"
    with np.load(path) as file:
        heights = file["topo"].astype(np.float32)
    places = np.indices(heights.shape).reshape(2, -1).T.astype(np.float64)
    return _split(places, (heights.flatten() > 1000).astype(np.int64), scaled=True)  # noqa: PLR2004


def colours(*, scaled: bool = True) -> Split:
    """Return colours that people gave a name, with the last word of it out of nine, int64 [B].

    Colours are float32 [B, 6]: red, green, blue, hue, saturation, value.

    Args:
        scaled: Whether columns are of mean 0 and variance 1, else whole numbers from 0 to 255.
    """
    words = ("green", "blue", "pink", "purple", "brown", "yellow", "red", "grey", "orange")
    inputs, targets = [], []
    for name, code in mpl.colors.XKCD_COLORS.items():
        word = name.removeprefix("xkcd:").split()[-1]
        if word in words:
            rgb = mpl.colors.to_rgb(code)
            inputs.append([round(255 * part) for part in (*rgb, *colorsys.rgb_to_hsv(*rgb))])
            targets.append(words.index(word))
    return _split(np.array(inputs), np.array(targets), scaled=scaled)


def fonts(*, scaled: bool = True) -> Split:
    """Return measures of letters in PostScript fonts, and how wide they are, float32 [B].

    Measures are float32 [B, 8]: the letter's number, left, lower, right and upper end of its ink,
    slant of the font, height of its capitals, whether all its letters have one width. Lengths
    are in thousandths of the size.

    Args:
        scaled: Whether columns are of mean 0 and variance 1, else as they were measured.
    """
    inputs, targets = [], []
    for path in sorted((Path(mpl.get_data_path()) / "fonts" / "afm").glob("p*.afm")):
        text = path.read_text("latin-1")
        header = dict(_OF_FONT.findall(text))
        if "CapHeight" in header:  # fonts of symbols have none
            slant, height = float(header["ItalicAngle"]), float(header["CapHeight"])
            of_font = [slant, height, float(header["IsFixedPitch"] == "true")]
            for letter in _LETTER.findall(text):
                number, width, *ends = map(float, letter)
                inputs.append([number, *ends, *of_font])
                targets.append(width)
    return _split(np.array(inputs), np.array(targets), scaled=scaled)


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
