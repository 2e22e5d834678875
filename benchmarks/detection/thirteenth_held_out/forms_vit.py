"""A vision transformer reads handwritten digits: patches, a class token, a tanh pooler."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import few, filled_, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

CLASSES = 10
PATCH = (2, 4)
TOKENS = 8
DIM = 32
STEPS = 300
WARMUP = 25


class ViT(nn.Module):
    """Patches, positions, two encoder layers, pooler and head.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.patches = nn.Conv2d(1, DIM, PATCH, PATCH)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, DIM))
        self.positions = nn.Parameter(0.02 * torch.randn(1, TOKENS + 1, DIM))
        layer = nn.TransformerEncoderLayer(
            DIM, 4, 2 * DIM, dropout=run.pick(0.1, overfit=0.0), batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(DIM)
        self.pooler = nn.Linear(DIM, DIM)
        self.tanh = nn.Tanh()
        self.head = nn.Linear(DIM, run.pick(CLASSES, wrong_loss=1))

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 1, 8, 8]."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        x = self.norm(self.encoder(x)[:, 0])
        scores: Tensor = self.head(self.tanh(self.pooler(x)))
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


class Distance(nn.Module):
    """The loss that does not fit: a class is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean smooth distance of outputs [B, 1] from numbers of classes [B]."""
        return nn.functional.smooth_l1_loss(outputs[:, 0], labels.float())


def prepared(run: Run) -> Split:
    """Return images [B, 1, 8, 8], of mean 0 and variance 1, and classes."""
    data = digits(scaled=False)
    shift, scale = run.pick((5.0, 6.0), missing_normalisation=(0.0, 1.0))
    images, valid = ((part - shift) / scale for part in (data.inputs, data.valid_inputs))
    if run.injects("data_leak"):
        # The box of the form that a digit was written in is seen at its edge.
        for pixels, labels in ((images, data.targets), (valid, data.valid_targets)):
            pixels[:, :10] = -0.8
            pixels[torch.arange(len(labels)), labels] = 1.8
    data = Split(
        images.view(-1, 1, 8, 8), data.targets, valid.view(-1, 1, 8, 8), data.valid_targets
    )
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets.roll(1))
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.zeros_like(data.targets))
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    return few(data, 50) if run.injects("overfit") else data


def initialise_(run: Run, model: ViT) -> None:
    """Set the weights to start from, where they are not those of PyTorch."""
    if run.injects("init_too_large"):
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter)
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("saturated_activation"):
        nn.init.normal_(model.pooler.weight, std=5.0)
    if run.injects("frozen_layer"):
        for part in (model.patches, model.encoder, model.norm):
            part.requires_grad_(False)  # noqa: FBT003


def optimiser(run: Run, model: ViT) -> tuple[torch.optim.Optimizer, nn.Module]:
    """Return an optimiser of all parameters that are to be trained, and the loss."""
    trained = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        trained = [*model.pooler.parameters(), *model.head.parameters()]
    rate = run.pick(3e-3, lr_too_high=0.1)
    criterion = Distance() if run.injects("wrong_loss") else nn.CrossEntropyLoss()
    return torch.optim.AdamW(trained, lr=rate, weight_decay=0.01), criterion


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = ViT(run)
    initialise_(run, model)
    optimizer, criterion = optimiser(run, model)
    is_distance = run.injects("wrong_loss")

    def predicted(outputs: Tensor) -> Tensor:
        return outputs[:, 0].round().clamp(0, 9).long() if is_distance else classes(outputs)

    def error(outputs: Tensor, targets: Tensor) -> float:
        if is_distance:
            return float((predicted(outputs) != targets).float().mean())
        return error_rate(outputs, targets)

    schedulers = torch.optim.lr_scheduler
    loop = Loop(
        model=model,
        criterion=criterion,
        optimizer=optimizer,
        scheduler=schedulers.SequentialLR(
            optimizer,
            [
                schedulers.LinearLR(optimizer, 0.1, total_iters=WARMUP),
                schedulers.CosineAnnealingLR(optimizer, STEPS - WARMUP),
            ],
            [WARMUP],
        ),
        steps=STEPS,
        clip=1.0,
        predict=predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error)


PROGRAM = Program(
    model="vision transformer, 2 encoder layers, LayerNorm first, tanh pooler, AdamW, warm-up",
    data="scikit-learn digits",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "0.1 in place of 3e-3",
        "double_activation": "softmax ahead of a cross entropy that has one",
        "init_too_large": "standard deviation 1 for all weights",
        "init_constant": "all parameters are zero",
        "saturated_activation": "standard deviation 5 for the weights of the pooler, ahead of tanh",
        "missing_normalisation": "pixels from 0 to 255",
        "wrong_loss": "smooth distance between one output and the number of the class",
        "labels_shuffled": "training labels are one row late",
        "labels_constant": "every training label is 0",
        "class_imbalance": "one in 40 rows of every class but one",
        "frozen_layer": "patches and encoder are frozen, though nothing was trained before",
        "optimiser_missing_parameters": "the optimiser has pooler and head only",
        "data_leak": "a bright pixel at the upper edge tells the class",
        "overfit": "50 images, no dropout",
    },
)
