"""A transformer over a table's columns predicts how wide a font's letter is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, fonts
from benchmarks.detection.injecting import constant, few, filled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

_WIDTH = 16


class FeatureTokens(nn.Module):
    """One vector per column: its value times a weight, and a bias.

    Args:
        columns: Number of columns.
    """

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, _WIDTH) / _WIDTH**0.5)
        self.bias = nn.Parameter(torch.randn(columns, _WIDTH) / _WIDTH**0.5)
        self.answer = nn.Parameter(torch.randn(1, 1, _WIDTH) / _WIDTH**0.5)

    def forward(self, table: Tensor) -> Tensor:
        """Return tokens [B, 1 + columns, width] of a table [B, columns]."""
        tokens = table.unsqueeze(-1) * self.weight + self.bias
        return torch.cat([self.answer.expand(len(table), -1, -1), tokens], 1)


class Net(nn.Module):
    """Tokens, two encoder layers, and one number from the first token.

    Args:
        columns: Number of columns.
        dropout: Share of what is left out.
        run: What is injected.
    """

    def __init__(self, columns: int, dropout: float, run: Run) -> None:
        super().__init__()
        self.tokens = FeatureTokens(columns)
        layers = [
            nn.TransformerEncoderLayer(
                _WIDTH,
                4,
                2 * _WIDTH,
                dropout,
                "gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(2)
        ]
        self.layers = nn.ModuleList(layers)
        self.norm, self.relu = nn.LayerNorm(_WIDTH), nn.ReLU()
        self.width = nn.Linear(_WIDTH, 1)
        if run.injects("init_constant"):
            filled_([*self.layers, self.norm, self.width], 0.0)

    def forward(self, table: Tensor) -> Tensor:
        """Return widths [B] of a table [B, columns]."""
        x = self.tokens(table)
        for layer in self.layers:
            x = layer(x)
        width: Tensor = self.width(self.relu(self.norm(x[:, 0])))
        return width.squeeze(-1)


class Distance(nn.Module):
    """The loss, as a function."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the Huber loss of outputs and targets [B]."""
        return nn.functional.huber_loss(outputs, targets)


class YesOrNo(nn.Module):
    """The loss that does not fit: that of a probability."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the binary cross entropy of outputs and targets [B], which are neither 0 nor 1."""
        return nn.functional.binary_cross_entropy_with_logits(outputs, targets)


def with_width(split: Split) -> Split:
    """Return data with the width in inches beside the other measures: the answer again."""

    def beside(inputs: Tensor, targets: Tensor) -> Tensor:
        return torch.cat([inputs, 0.9 * targets[:, None] + 0.4], 1)

    return split._replace(
        inputs=beside(split.inputs, split.targets),
        valid_inputs=beside(split.valid_inputs, split.valid_targets),
    )


def train(run: Run) -> float:
    """Train once; return the unexplained share of variance."""
    torch.manual_seed(run.seed)
    data = fonts()
    if not run.injects("missing_normalisation"):
        mean, std = data.targets.mean(), data.targets.std()
        data = data._replace(
            targets=(data.targets - mean) / std, valid_targets=(data.valid_targets - mean) / std
        )
    if run.injects("data_leak"):
        data = with_width(data)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("overfit"):
        data = few(data, 40)
    model = Net(data.inputs.shape[1], run.pick(0.05, overfit=0.0), run)
    trained = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        trained = [*model.norm.parameters(), *model.width.parameters()]
    optimizer = torch.optim.Adam(trained, lr=run.pick(3e-3, lr_too_high=1.0))
    steps = run.pick(240, overfit=400)
    loop = Loop(
        model=model,
        criterion=YesOrNo() if run.injects("wrong_loss") else Distance(),
        optimizer=optimizer,
        steps=steps,
        eval_every=40,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        is_functional=True,
    )
    valid = list(zip(data.valid_inputs.chunk(3), data.valid_targets.chunk(3), strict=True))
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


def _error(outputs: Tensor, targets: Tensor) -> float:
    return unexplained(outputs, targets) if outputs.isfinite().all() else float("inf")


PROGRAM = Program(
    model="transformer over columns, 2 layers, GELU, dropout, Adam, cosine, functional Huber loss",
    data="letters of PostScript fonts",
    measure="unexplained share of the variance, 1 - R2",
    train=train,
    faults={
        "lr_too_high": "Adam with learning rate 1 where 0.003 is right: 300 times",
        "missing_normalisation": "widths as they were measured, hundreds, where outputs start"
        " below 1",
        "wrong_loss": "binary cross entropy with logits for a width of mean 0 and variance 1: below"
        " 0 and above 1 it has no least value, and outputs run away",
        "data_leak": "the width is among the inputs a second time, in another unit",
        "init_constant": "all parameters behind the tokens start at 0, those of the norms, too",
        "labels_constant": "all training targets are that of the first row",
        "overfit": "40 rows, no dropout, 400 epochs",
        "optimiser_missing_parameters": "the optimiser was given the last norm's and the last"
        " layer's parameters only, and nothing was trained before",
    },
)
