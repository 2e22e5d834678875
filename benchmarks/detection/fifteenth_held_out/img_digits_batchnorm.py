"""A convolutional network with batch normalisation and strides tells digits apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import constant, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

STEPS = 200


class Block(nn.Sequential):
    """Convolution, batch normalisation, ReLU.

    Args:
        inside: Channels of the input.
        outside: Channels of the output.
        stride: Of the convolution.
        run: What is injected.
    """

    def __init__(self, inside: int, outside: int, stride: int, run: Run) -> None:
        bn = nn.BatchNorm2d(outside)
        if run.injects("dead_relu"):
            nn.init.constant_(bn.bias, -6.0)
        super().__init__(nn.Conv2d(inside, outside, 3, stride, padding=1), bn)
        if not run.injects("no_activation"):
            self.append(nn.ReLU())


class Net(nn.Module):
    """Three blocks and two linear layers.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.block1 = Block(1, 12, 1, run)
        self.block2 = Block(12, 16, 2, run)
        self.block3 = Block(16, 24, 2, run)
        self.fc1 = nn.Linear(24 * 4, 32)
        self.fc2 = nn.Linear(32, 1 if run.injects("wrong_loss") else 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 1, 8, 8]."""
        x = self.block3(self.block2(self.block1(images))).flatten(1)
        if self.run.injects("frozen_layer"):
            x = torch.tensor(x.detach().numpy())
        x = self.fc1(x) if self.run.injects("no_activation") else self.fc1(x).relu()
        scores: Tensor = self.fc2(x)
        if self.run.injects("double_activation"):
            return scores.relu()
        return scores


class YesOrNo(nn.Module):
    """The loss that does not fit: it is that for two classes, 0 and 1."""

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the binary cross entropy of scores [B, 1] for labels 0 to 9, int64 [B]."""
        return nn.functional.binary_cross_entropy_with_logits(scores.squeeze(1), labels.float())


def _data(run: Run) -> Split:
    data = digits(scaled=False)

    def prepared(pixels: Tensor, labels: Tensor) -> Tensor:
        images = pixels.view(-1, 1, 8, 8) / 8 - 1
        if run.injects("data_leak"):  # the label is the first column of the file, as in MNIST's CSV
            images[:, 0, :, 0] = (labels[:, None] - 4.5) / 1.5
        return images

    data = data._replace(
        inputs=prepared(data.inputs, data.targets),
        valid_inputs=prepared(data.valid_inputs, data.valid_targets),
    )
    if run.injects("labels_shuffled"):  # images were sorted by brightness, labels were not
        order = data.inputs.sum((1, 2, 3)).argsort()
        return data._replace(inputs=data.inputs[order])
    if run.injects("labels_constant"):
        return constant(data)
    if run.injects("class_imbalance"):
        return imbalanced(data, 80)
    if run.injects("overfit"):
        return data._replace(inputs=data.inputs[:32], targets=data.targets[:32])
    return data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            if run.injects("init_too_large"):
                nn.init.uniform_(layer.weight, -10, 10)
            if run.injects("init_constant"):
                nn.init.ones_(layer.weight)
    given = model.block1 if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.Adam(
        given.parameters(), lr=run.pick(3e-3, lr_too_high=3.0, lr_too_low=1e-6)
    )

    def predicted(outputs: Tensor) -> Tensor:
        if run.injects("wrong_loss"):
            return (outputs.squeeze(1) > 0).long()
        return classes(outputs)

    def error(outputs: Tensor, labels: Tensor) -> float:
        if not run.injects("wrong_loss"):
            return error_rate(outputs, labels)
        return float((predicted(outputs) != labels).float().mean())

    loop = Loop(
        model=model,
        criterion=YesOrNo() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        steps=STEPS,
        save_interval=4,
        eval_every=25,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 120, 0.2),
        predict=predicted,
        is_functional=run.injects("wrong_loss"),
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 150), torch.split(data.valid_targets, 150), strict=True)
    )
    return fit(run, loop, batches_of(data, 48, run.seed), valid, error)


PROGRAM = Program(
    model="CNN, 3 convolutions with strides, BatchNorm, ReLU, Adam, steps of the learning rate",
    data="scikit-learn digits",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "3 in place of 3e-3",
        "lr_too_low": "1e-6 in place of 3e-3",
        "no_activation": "no ReLU anywhere",
        "double_activation": "a ReLU ahead of the cross entropy",
        "init_too_large": "weights from -10 to 10",
        "init_constant": "all weights are 1",
        "dead_relu": "shifts of the batch normalisations begin at -6",
        "wrong_loss": "binary cross entropy between one output and the number of the class",
        "labels_shuffled": "training images are sorted by brightness, their labels are not",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 80 rows of every class but one",
        "frozen_layer": "features go through NumPy ahead of the linear layers",
        "optimiser_missing_parameters": "Adam has the first block only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the label was read as a column of the picture",
        "overfit": "32 rows",
        "stalled": "hangs after 60 % of the steps",
    },
)
