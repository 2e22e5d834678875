"""Healthy first: on trainings that learn well, no rule of the recommended pack finds anything.

20 trainings of a digits classifier by the real hook: 4 optimiser settings, 5 seeds each. One seed
saves every step, the others save every tenth.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

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
SEEDS = {1: (0,), 10: (1, 2, 3, 4)}
"""Seeds by the interval at which training steps are saved."""
NUM_EPOCHS = 6
BATCH = 32


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def train(folder: Path, optimizer_name: str, seed: int, interval: int) -> float:
    """Train with a hook that saves statistics at an interval of steps; return the accuracy."""
    torch.manual_seed(seed)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = (images / 16).float()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    valid, training = order[:397], order[397:]
    model, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = OPTIMIZERS[optimizer_name](model)
    hook = _hook(folder, interval)
    hook.register_module(model)
    hook.register_loss(criterion)
    for _ in range(NUM_EPOCHS):
        hook.set_mode(modes.TRAIN)
        for batch in training[torch.randperm(len(training))].split(BATCH):
            optimizer.zero_grad()
            criterion(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        hook.set_mode(modes.EVAL)
        with torch.no_grad():
            outputs = model(images[valid])
            criterion(outputs, labels[valid])
    hook.close()
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


@pytest.mark.parametrize("interval", SEEDS)
def test_nothing_is_found_in_healthy_runs(interval: int, tmp_path: Path) -> None:
    judged: set[str] = set()
    found = []
    for name, seed in product(OPTIMIZERS, SEEDS[interval]):
        path = tmp_path / f"{name}-{seed}"
        accuracy = train(path, name, seed, interval)
        assert accuracy > 0.85, "the training itself is not healthy"
        views = views_of(path)
        for rule_name, rule in PACKS["recommended"].rules().items():
            evaluation = Evaluation.fresh(rule)
            for view in views:
                evaluation.feed(view)
            if evaluation.evidence is not None:
                found.append((name, seed, rule_name, evaluation.evidence.line))
            if evaluation.counts.evaluated:
                judged.add(rule_name)
    assert not found
    needs_something_else = {
        "ClassImbalance",  # labels and predictions, which the script saves
        "DeadRelu",  # values, not statistics
        "LossInputMismatch",  # values of outputs and targets
        "ReplicaDivergence",  # more than one worker
        "SaturatedActivation",  # tanh or sigmoid layers
        "SuspiciouslyGood",  # values of inputs
    }
    assert set(PACKS["recommended"].rules()) - judged <= needs_something_else
