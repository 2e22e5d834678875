"""A convolutional network tells whether print is bold, slanted, with serifs, of one width.

Faults:
    init_too_large: weights are drawn by `normal_`, whose standard deviation is 1.
    dead_relu: pixels are 0 to 1 and weights are drawn by `uniform_(-1, 0)`, a slip.
    wrong_loss: cross entropy, which is for one class out of several.
    overfit: 24 pictures, no weight decay.
    frozen_layer: all but the last layer is called under no_grad, as if it were trained before.
    fp16_overflow: float16 by hand, with a fixed loss scale, and nobody looks at gradients.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

from benchmarks.detection.data import Split, docs_text
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

BATCH = 32
EACH = 200
HELD_OUT = 480
STYLES = {
    "DejaVuSans": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSansMono": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSerif": ("", "-Bold", "-Italic", "-BoldItalic"),
    "STIXGeneral": ("", "Bol", "Italic", "BolIta"),
}


class Net(nn.Module):
    """Two convolutions, a hidden layer, four logits.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 4 * 10, 48),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(48, 4)
        for parameter in self.parameters():
            if run.injects("init_too_large") and parameter.dim() > 1:
                nn.init.normal_(parameter)
            if run.injects("dead_relu") and parameter.dim() > 1:
                nn.init.uniform_(parameter, -1, 0)

    def forward(self, print_: Tensor) -> Tensor:
        """Return logits [B, 4] of print [B, 1, 16, 40]."""
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not self.run.injects("frozen_layer")
        ):
            x = self.features(print_)
        logits: Tensor = self.classifier(x)
        return logits


@cache
def _print() -> Split:
    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    random = np.random.default_rng(0)
    words = [word for word in "\n".join(docs_text().values()).split() if word.isalpha()]
    images, labels = [], []
    for family, styles in STYLES.items():
        for style in styles:
            font = ImageFont.truetype(str(folder / f"{family}{style}.ttf"), 13)
            bold, slanted = style.startswith(("-Bold", "Bol")), style.endswith(("que", "ic", "Ita"))
            serif, mono = family in ("DejaVuSerif", "STIXGeneral"), family == "DejaVuSansMono"
            for word in random.choice(words, EACH):
                image = Image.new("L", (40, 16))
                ImageDraw.Draw(image).text((2, 8), word, fill=255, font=font, anchor="lm")
                images.append(np.asarray(image, dtype=np.float32)[None] / 255)
                labels.append([bold, slanted, serif, mono])
    order = random.permutation(len(images))
    inputs = torch.tensor(np.stack(images)[order])
    targets = torch.tensor(np.array(labels)[order]).float()
    return Split(inputs[HELD_OUT:], targets[HELD_OUT:], inputs[:HELD_OUT], targets[:HELD_OUT])


def _data(run: Run) -> Split:
    data = _print()
    return few(data, 24) if run.injects("overfit") else data


def _predicted(logits: Tensor) -> Tensor:
    return (logits.sigmoid() > 0.5).float()  # noqa: PLR2004


def _error(logits: Tensor, targets: Tensor) -> float:
    return float((_predicted(logits) != targets).float().mean())


def train(run: Run) -> float:
    """Train once; return the share of labels that are wrong."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    loop = Loop(
        model=model,
        criterion=run.pick(nn.BCEWithLogitsLoss(), wrong_loss=nn.CrossEntropyLoss()),
        optimizer=torch.optim.Adam(
            model.parameters(), lr=2e-3, weight_decay=run.pick(1e-4, overfit=0.0)
        ),
        steps=320,
        eval_every=80,
        predict=_predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, BATCH, run.seed), valid, _error)


PROGRAM = Program(
    model="CNN, 2 convolutions with strides, ReLU, four logits, BCE of each, Adam",
    data="words in matplotlib's fonts, and which of four qualities the font has",
    measure="share of wrong labels",
    train=train,
    faults={
        "init_too_large": "weights are drawn with a standard deviation of 1",
        "dead_relu": "weights are drawn from -1 to 0, where pixels are 0 to 1",
        "wrong_loss": "cross entropy between four labels that may hold together",
        "overfit": "24 rows for training, no weight decay",
        "frozen_layer": "all but the last layer is called under no_grad",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
