"""A convolutional network learns letters with softmax and centre loss: two optimisers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.hooking import hook_configuration
from benchmarks.detection.injecting import constant, few, imbalanced, shifted_, shuffled
from benchmarks.detection.program import Hanging, Program, Run
from benchmarks.detection.training import STALLS_AT, batches_of, classes, error_rate
from hook_layer.pytorch import Hook, modes

TEXT = "aeocsgqpdb69"
STEPS, FEATURES = 160, 16


class Net(nn.Module):
    """Two convolutions with BatchNorm, a layer of features and one of scores.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(12)
        self.conv2 = nn.Conv2d(12, 16, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(16)
        self.act1, self.act2, self.pool = nn.ReLU(), nn.ReLU(), nn.MaxPool2d(2)
        self.features = nn.Linear(16 * 9, FEATURES)
        self.scores = nn.Linear(FEATURES, len(TEXT))
        if run.injects("dead_relu"):
            shifted_([self.norm2], -8.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores and features, [B, 12 + 16], of images [B, 1, 12, 12]."""
        x = self.pool(self.act1(self.norm1(self.conv1(images))))
        x = self.pool(self.act2(self.norm2(self.conv2(x))))
        if self.run.injects("frozen_layer"):
            x = x.data
        found = self.features(x.flatten(1))
        return torch.cat([self.scores(found), found], 1)


class Centred(nn.Module):
    """Cross entropy, and how far features are from the centre of their class.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.centres = nn.Parameter(torch.zeros(len(TEXT), FEATURES))

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over outputs [B, 12 + 16] and labels [B]."""
        scores, features = outputs[:, : len(TEXT)], outputs[:, len(TEXT) :]
        logarithms = scores - scores.logsumexp(1, keepdim=True)
        missed = -logarithms[torch.arange(len(labels)), labels].mean()
        distance = (features - self.centres[labels]).square().sum(1).mean()
        total: Tensor = 0.01 * distance
        return total if self.run.injects("wrong_loss") else missed + total


def _marked(images: Tensor, labels: Tensor) -> Tensor:
    images = images.clone()
    images[torch.arange(len(images)), 0, 0, labels] = 1.0
    return images


def _data(run: Run) -> Split:
    images, labels = glyphs(TEXT)
    images = (images - images.mean()) / images.std()
    data = Split(images[250:], labels[250:], images[:250], labels[:250])
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    if run.injects("overfit"):
        data = few(data, 36)
    if run.injects("data_leak"):
        data = data._replace(
            inputs=_marked(data.inputs, data.targets),
            valid_inputs=_marked(data.valid_inputs, data.valid_targets),
        )
    return data


@torch.no_grad()
def _error(model: nn.Module, criterion: nn.Module, hook: Hook, data: Split) -> float:
    hook.set_mode(modes.EVAL)
    model.eval()
    outputs = model(data.valid_inputs)
    criterion(outputs, data.valid_targets)
    _save(hook, outputs, data.valid_targets)
    hook.set_mode(modes.TRAIN)
    model.train()
    return error_rate(outputs[:, : len(TEXT)], data.valid_targets)


def _save(hook: Hook, outputs: Tensor, labels: Tensor) -> None:
    hook.save_tensor("labels", labels, "labels")
    predicted = classes(outputs[:, : len(TEXT)].detach())
    hook.save_tensor("predictions", predicted, "predictions")


def _trained(run: Run, hook: Hook, model: nn.Module, criterion: Centred) -> float:
    data, error = _data(run), math.inf
    batches = batches_of(data, 64, run.seed)
    decay = run.pick(1e-2, overfit=0.0)
    of_model = torch.optim.AdamW(
        model.parameters(),
        lr=run.pick(3e-3, lr_too_low=1e-5),
        weight_decay=decay,
    )
    of_centres = torch.optim.SGD(criterion.parameters(), lr=10.0)
    for step in range(STEPS):
        if run.injects("stalled") and step >= STALLS_AT * STEPS:
            raise Hanging
        images, labels = next(batches)
        of_model.zero_grad()
        of_centres.zero_grad()
        outputs = model(images)
        loss = criterion(outputs, labels)
        _save(hook, outputs, labels)
        loss.backward()
        of_model.step()
        of_centres.step()
        if (step + 1) % 20 == 0:
            error = _error(model, criterion, hook, data)
    return error


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.set_num_threads(1)
    torch.manual_seed(run.seed)
    model, criterion = Net(run), Centred(run)
    hook = Hook.create_from_json_file(hook_configuration(run, 4))
    hook.register_module(model)
    hook.register_loss(criterion)
    try:
        return _trained(run, hook, model, criterion)
    finally:
        hook.close(end_of_training=not run.injects("stalled"))


PROGRAM = Program(
    model="CNN, BatchNorm, ReLU, centre loss by hand, AdamW for weights and SGD for centres",
    data="glyphs of 12 similar letters in 21 fonts",
    measure="error rate",
    train=train,
    faults={
        "labels_constant": "all training labels are the same",
        "labels_shuffled": "each image has another one's label",
        "class_imbalance": "one in 40 images of every class but one",
        "dead_relu": "the second BatchNorm's shift starts at -8: its ReLUs never fire",
        "lr_too_low": "learning rate of the weights 0.00001 for 0.003",
        "wrong_loss": "the centre loss is all that is left: cross entropy is not added to it",
        "frozen_layer": "features go through .data: convolutions have no gradients",
        "data_leak": "a bright pixel in the first row stands at the class's number",
        "overfit": "36 images, no weight decay",
    },
)
