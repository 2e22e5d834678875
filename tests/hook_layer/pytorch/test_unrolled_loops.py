"""A module that is called so often in a step that no reader would take its index file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hook_layer.capture.statistics import array_statistics
from hook_layer.pytorch import Hook, ReductionConfig, SaveConfig
from rule_runtime import create_trial
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.rules.non_finite import NonFinite
from rule_runtime.trial.cut_values import CutValues
from rule_runtime.trial.step_index import list_index_files, load_step_files
from rule_runtime.trial.step_view import StepReader

NUM_CALLS = 2000
CELL = "recurrent_cell_of_a_model_with_a_deeply_nested_module" * 4
"""So long a name that 2,000 calls are enough: each tensor's name comes three times."""


class Unrolled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.add_module(CELL, nn.LSTMCell(2, 3))
        self.head = nn.Linear(3, 2)

    def forward(self, rows: Tensor) -> Tensor:
        cell = self.get_submodule(CELL)
        hidden = state = torch.zeros(len(rows), 3)
        self.outputs = []
        for _ in range(NUM_CALLS):
            hidden, state = cell(rows, (hidden, state))
            self.outputs += [hidden.detach(), state.detach()]
        return self.head(hidden)


def test_a_step_with_thousands_of_calls_of_a_cell_is_judged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model, criterion = Unrolled(), nn.CrossEntropyLoss()
    hook = Hook(
        tmp_path,
        save_config=SaveConfig(save_interval=1),
        reduction_config=ReductionConfig(),
        include_collections=["weights", "losses"],
        include_regex="_(input|output)_[0-9]+$",
    )
    hook.register_module(model)
    hook.register_loss(criterion)
    with caplog.at_level(logging.WARNING, "stepwatch"):
        criterion(model(torch.randn(4, 2)), torch.tensor([0, 1, 0, 1])).backward()
        hook.close()
    assert "calls of a module have one entry" in caplog.text
    report = hook.report()
    assert (report.writer.steps_shortened, report.writer.steps_lost) == (1, 0)
    assert "steps with merged calls: 1" in str(report)

    trial = create_trial(str(tmp_path))
    assert trial.steps() == [0]
    name = f"{CELL}_output_0"
    assert name in trial.tensor_names()
    assert f"{CELL}_output_1" not in trial.tensor_names(step=0)

    files = list(load_step_files(trial.store, [key for key, _ in list_index_files(trial.store)]))
    view = StepReader(trial.store).view(0, files, num_workers=1)
    row = view.tensors(regex=["^recurrent.*output_0$"])
    assert row.names == (name,)
    expected = array_statistics(torch.stack(model.outputs).numpy())
    assert row.column("size")[0] == expected[0] == 2 * NUM_CALLS * 4 * 3
    assert row.column("mean")[0] == pytest.approx(expected[5])
    assert row.column("std")[0] == pytest.approx(expected[6])
    evaluation = Evaluation.fresh(NonFinite())
    evaluation.feed(view)
    assert evaluation.counts.evaluated == 1
    notes = CutValues()
    notes.add(files)
    assert f"{name} (4,000 tensors)" in str(notes)
