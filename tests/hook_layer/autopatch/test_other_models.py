"""Scripts without a hook with models before or after the one to watch."""

from __future__ import annotations

from pathlib import Path

import pytest

from hook_layer.format.modes import ModeKeys
from tests.hook_layer.autopatch.watched_scripts import ScriptRuns


@pytest.mark.parametrize("kind", ["once", "twice", "frozen", "by hand"])
def test_a_part_that_is_called_before_the_model_is_not_the_model(
    runs: ScriptRuns, tmp_path: Path, kind: str
) -> None:
    trial, log = runs.trial(tmp_path, "probing_script.py", kind, collections=["weights", "losses"])
    weights = {name for name in trial.tensor_names() if name.endswith("weight")}
    assert weights == {"Net_0.weight", "Net_2.weight"}
    assert trial.steps(mode=ModeKeys.TRAIN) == trial.steps() == list(range(5))
    assert trial.tensor("MSELoss_output_0").steps() == list(range(5))
    assert "the other model" not in log


# With the parameters of another module the optimiser trains more than the model.
@pytest.mark.parametrize("num_parameters", ["4", "6"])
def test_later_models_add_nothing_and_released_models_are_freed(
    runs: ScriptRuns, tmp_path: Path, num_parameters: str
) -> None:
    command = ["searches_script.py", "--parameters", num_parameters]
    trial, log = runs.trial(tmp_path, *command, collections=["weights", "losses"])
    assert trial.steps(mode=ModeKeys.EVAL) == [0]
    assert {name for name in trial.tensor_names() if "Loss" in name} == {"MSELoss_output_0"}
    assert "more tensors came after their step" not in log
