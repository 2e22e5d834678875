"""Short trainings with PyTorch, and what rules find in what the hook saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import nn

from hook_layer.pytorch import Hook, ReductionConfig, SaveConfig
from rule_runtime.cli.evaluation import evaluate_run
from rule_runtime.engine.evidence import Evidence
from rule_runtime.engine.rule import Rule
from tests.rule_runtime.recommended_hook import hook_file

__all__ = ["Batches", "Loss", "findings", "recommended_hook", "statistics_hook", "train"]

Batches = Callable[[], tuple[torch.Tensor, torch.Tensor]]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def recommended_hook(folder: Path, model: nn.Module) -> Hook:
    """Return a hook that saves what the recommended pack requires."""
    hook = Hook.create_from_json_file(hook_file(folder))
    hook.register_module(model)
    return hook


def statistics_hook(folder: Path, model: nn.Module) -> Hook:
    """Return a hook that saves the statistics of all inputs, outputs and parameters."""
    hook = Hook(
        folder / "run",
        save_config=SaveConfig(save_interval=1),
        reduction_config=ReductionConfig(),
        include_collections=["weights", "biases", "gradients", "losses"],
        include_regex=r"_(input|output)_\d+$",
    )
    hook.register_module(model)
    return hook


def train(
    hook: Hook,
    model: nn.Module,
    batches: Batches,
    loss: Loss,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int,
) -> None:
    """Train a model for some steps."""
    for _ in range(steps):
        inputs, targets = batches()
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
    hook.close()


def findings(
    folder: Path, rules: Iterable[tuple[str, Rule]], *, are_evaluated: bool = False
) -> dict[str, Evidence]:
    """Return the first finding of each rule in a run that has ended."""
    states = evaluate_run(str(folder / "run"), list(rules))
    assert all(not state.counts.failure for state in states.values())
    assert not are_evaluated or all(state.counts.evaluated for state in states.values())
    return {name: state.evidence for name, state in states.items() if state.evidence is not None}
