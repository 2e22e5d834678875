"""A vision transformer reads Greek letters that are printed in twelve styles."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

_ALPHABET: Final = "αβγδεθλμξπωζ"
_SIDE: Final = 16
_PATCH: Final = 4
_WIDTH: Final = 40
_STYLES: Final = (
    *("Sans", "Sans-Bold", "Sans-Oblique", "Sans-BoldOblique", "SansMono", "SansMono-Bold"),
    *("SansMono-Oblique", "SansMono-BoldOblique", "Serif", "Serif-Bold", "Serif-Italic"),
    "Serif-BoldItalic",
)


@cache
def prints() -> tuple[Tensor, Tensor]:
    """Return letters, float32 [1152, 1, 16, 16] from 0 to 255, and numbers, int64 [1152]."""
    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    random = np.random.default_rng(5)
    images, labels = [], []
    for style in _STYLES:
        for size in (11, 12, 13, 14) * 2:
            font = ImageFont.truetype(str(folder / f"DejaVu{style}.ttf"), size)
            for label, letter in enumerate(_ALPHABET):
                image = Image.new("L", (_SIDE, _SIDE))
                at = (8 + random.integers(-1, 2), 8 + random.integers(-1, 2))
                ImageDraw.Draw(image).text(at, letter, fill=255, font=font, anchor="mm")
                images.append(np.asarray(image, dtype=np.float32)[None])
                labels.append(label)
    order = random.permutation(len(labels))
    return torch.tensor(np.stack(images)[order]), torch.tensor(labels)[order]


class VisionTransformer(nn.Module):
    """Patches as tokens, a token for the class, two layers, and a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.patches = nn.Conv2d(1, _WIDTH, _PATCH, stride=_PATCH)
        self.summary = nn.Parameter(torch.zeros(1, 1, _WIDTH))
        self.places = nn.Parameter(0.1 * torch.randn(1, 1 + (_SIDE // _PATCH) ** 2, _WIDTH))
        layer = nn.TransformerEncoderLayer(
            _WIDTH, 4, 80, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(_WIDTH, len(_ALPHABET))
        if run.injects("init_constant"):
            for weights in self.parameters():
                nn.init.constant_(weights, 0.02)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 12] of images [B, 1, 16, 16]."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.summary.expand(len(x), -1, -1), x], 1) + self.places
        scores: Tensor = self.head(self.encoder(x)[:, 0])
        if self.run.injects("double_activation"):
            scores = torch.softmax(scores, -1)
        return scores


def prepared(run: Run) -> Split:
    """Return the data as the run gets it."""
    images, labels = prints()
    images = (images - images.mean()) / images.std()
    data = Split(images[300:], labels[300:], images[:300], labels[:300])
    if run.injects("labels_shuffled"):  # sorted files, labels in the order of the alphabet
        data = data._replace(targets=data.targets.sort().values)
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.zeros_like(data.targets))
    if run.injects("class_imbalance"):
        often = data.targets == _ALPHABET.index("β")
        often[::100] = True
        data = data._replace(inputs=data.inputs[often], targets=data.targets[often])
    return few(data, 20) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = VisionTransformer(run)
    trained = [p for n, p in model.named_parameters() if n.startswith("head")]
    if not run.injects("optimiser_missing_parameters"):
        trained = list(model.parameters())
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(trained, lr=run.pick(2e-3, lr_too_low=1e-6)),
        clip=1.0,
        steps=260,
        predict=classes,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 150), torch.split(data.valid_targets, 150), strict=True)
    )
    return fit(run, loop, batches_of(data, 48, run.seed), valid, error_rate)


PROGRAM = Program(
    model="vision transformer, 17 tokens, 2 layers, Adam, clipped gradients",
    data="Greek letters in the DejaVu fonts that come with matplotlib",
    measure="error rate",
    train=train,
    faults={
        "lr_too_low": "a learning rate of 0.000001",
        "double_activation": "softmax ahead of cross entropy",
        "init_constant": "every parameter is 0.02",
        "labels_shuffled": "labels in the order of the alphabet, images are not",
        "labels_constant": "every label is alpha",
        "class_imbalance": "all betas and eight other letters",
        "optimiser_missing_parameters": "only the head's parameters",
        "overfit": "20 letters",
    },
)
