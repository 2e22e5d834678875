"""Healthy first: on trainings that learn well, no rule of the recommended pack finds anything.

Trainings of a digits classifier by the real hook. With each of 4 optimizers, 2 seeds save every
step of 3 epochs and one saves every tenth step of 6. Two more runs save every step: they add weight
decay to the loss by hand, from random weights and from trained ones.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.optim import Optimizer

from hook_layer.pytorch import Hook, ReductionConfig, SaveConfig, SaveConfigMode, modes
from hook_layer.storage.local import LocalStore
from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.trial.step_index import list_index_files, load_step_files
from rule_runtime.trial.step_view import StepReader, StepView

OPTIMIZERS = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=1e-3),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=3e-3),
}
SEEDS = {1: (0, 1), 10: (2,)}
"""Seeds by the interval at which training steps are saved."""
NUM_EPOCHS = {1: 3, 10: 6}
"""Epochs by that interval: the rules take 8 ms for each saved step."""
BATCH = 32
DECAY = 1e-3


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


Loss = Callable[[Net, torch.Tensor, torch.Tensor], torch.Tensor]


def decayed_error(model: Net, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    decay = sum(parameter.square().sum() for parameter in model.parameters())
    return (
        functional.mse_loss(outputs, functional.one_hot(labels.long(), 10).float()) + DECAY * decay
    )


def train(folder: Path, optimizer_name: str, seed: int, interval: int) -> float:
    """Train with a hook that saves statistics at an interval of steps; return the accuracy."""
    torch.manual_seed(seed)
    model, criterion = Net(), nn.CrossEntropyLoss()
    hook = _hook(folder, interval)
    hook.register_module(model)
    hook.register_loss(criterion)
    optimizer = OPTIMIZERS[optimizer_name](model)
    accuracy = fit(
        model, lambda _, *pair: criterion(*pair), optimizer, hook, num_epochs=NUM_EPOCHS[interval]
    )
    hook.close()
    return accuracy


def fit(
    model: Net, loss: Loss, optimizer: Optimizer, hook: Hook | None, *, num_epochs: int
) -> float:
    """Train, with a hook if there is one; return the accuracy."""
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = (images / 16).float()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    valid, training = order[:397], order[397:]
    for _ in range(num_epochs):
        if hook is not None:
            hook.set_mode(modes.TRAIN)
        for batch in training[torch.randperm(len(training))].split(BATCH):
            optimizer.zero_grad()
            loss(model, model(images[batch]), labels[batch]).backward()
            optimizer.step()
        if hook is not None:
            hook.set_mode(modes.EVAL)
        with torch.no_grad():
            outputs = model(images[valid])
            loss(model, outputs, labels[valid])
    return float((outputs.argmax(1) == labels[valid]).float().mean())


def _hook(folder: Path, interval: int) -> Hook:
    names = [config.name for config in PACKS["recommended"].collections()]
    of_modules = ("weights", "biases", "gradients", "losses", "relu_output", "optimizer_steps")
    hook = Hook(
        folder,
        save_config=SaveConfig(
            {modes.TRAIN: SaveConfigMode(interval), modes.EVAL: SaveConfigMode(1)}
        ),
        reduction_config=ReductionConfig(),
        include_collections=[name for name in names if name in of_modules],
        include_regex=r"_(input|output)_\d+$",
    )
    hook.get_collection("optimizer_steps").include("^optimizer_steps/")
    return hook


def views_of(path: Path) -> list[StepView]:
    store = LocalStore(path)
    reader = StepReader(store)
    files = load_step_files(store, [key for key, _ in list_index_files(store)])
    return [reader.view(file.step, [file], num_workers=1) for file in files]


def evaluations_of(path: Path) -> dict[str, Evaluation]:
    """Evaluate the rules of the recommended pack."""
    views = views_of(path)
    found = {}
    for name, rule in PACKS["recommended"].rules().items():
        found[name] = Evaluation.fresh(rule)
        for view in views:
            found[name].feed(view)
    return found


def findings(evaluations: dict[str, Evaluation]) -> list[str]:
    return [each.evidence.line for each in evaluations.values() if each.evidence is not None]


@pytest.mark.parametrize("is_trained", [False, True])
def test_nothing_is_found_with_weight_decay_in_the_loss(is_trained: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net()
    if is_trained:
        fit(model, decayed_error, OPTIMIZERS["adam"](model), None, num_epochs=20)
    hook = _hook(tmp_path / "run", 1)
    hook.register_module(model)
    optimizer = OPTIMIZERS["adam"](model)
    assert fit(model, decayed_error, optimizer, hook, num_epochs=NUM_EPOCHS[1]) > 0.85
    hook.close()
    evaluations = evaluations_of(tmp_path / "run")
    assert not findings(evaluations)
    assert sum(each.counts.evaluated > 0 for each in evaluations.values()) > 10


@pytest.mark.parametrize("interval", SEEDS)
def test_nothing_is_found_in_healthy_runs(interval: int, tmp_path: Path) -> None:
    judged: set[str] = set()
    found = []
    for name, seed in product(OPTIMIZERS, SEEDS[interval]):
        path = tmp_path / f"{name}-{seed}"
        accuracy = train(path, name, seed, interval)
        assert accuracy > 0.8, "the training itself is not healthy"
        evaluations = evaluations_of(path)
        found += [(name, seed, line) for line in findings(evaluations)]
        judged |= {rule for rule, each in evaluations.items() if each.counts.evaluated}
    assert not found
    needs_something_else = {
        "ClassImbalance",  # labels and predictions, which the script saves
        "DeadRelu",  # values, not statistics
        "LossInputMismatch",  # values of outputs and targets
        "ReplicaDivergence",  # more than one worker
        "SaturatedActivation",  # tanh or sigmoid layers
        "SuspiciouslyGood",  # values of inputs
        *({"PlateauedLoss"} if interval == 1 else ()),  # more steps than 3 epochs have
    }
    assert set(PACKS["recommended"].rules()) - judged <= needs_something_else
