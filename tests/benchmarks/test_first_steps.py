"""The first steps that rules evaluate, as their documentation shows."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

import stepwatch
from benchmarks.detection.first_steps import FIRST_STEPS, first_steps_of
from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.registry import available_rules
from stepwatch.torch import Hook

NEEDS_SOMETHING_ELSE = {"ReplicaDivergence"}  # several ranks
MEASURED = json.loads(FIRST_STEPS.read_text())


def test_all_rules_of_the_recommended_pack_are_measured() -> None:
    assert set(PACKS["recommended"].parameters) - set(MEASURED) <= NEEDS_SOMETHING_ELSE
    assert set(MEASURED) <= set(available_rules())
    for steps in MEASURED.values():
        assert 0 <= steps["evaluates"] <= steps.get("finds", steps["evaluates"])


def test_no_rule_evaluates_before_the_step_that_its_documentation_names(tmp_path: Path) -> None:
    torch.manual_seed(0)
    collections = stepwatch.collections_for("recommended", begins_densely=True)
    hook = Hook(str(tmp_path / "trial"), include_collections=collections)
    model, criterion = (
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)),
        nn.CrossEntropyLoss(),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook.register_module(model)
    hook.register_loss(criterion)
    for _ in range(60):
        optimizer.zero_grad()
        criterion(model(torch.randn(16, 4)), torch.randint(0, 3, (16,))).backward()
        optimizer.step()
    hook.close()
    found = first_steps_of(tmp_path / "trial")
    early = {
        name: steps["evaluates"]
        for name, steps in found.items()
        if name in MEASURED and steps["evaluates"] < MEASURED[name]["evaluates"]
    }
    assert not early
    assert len(found) > 15
