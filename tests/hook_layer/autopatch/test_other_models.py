"""Scripts without a hook in which models come ahead of the one to watch, or follow it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hook_layer.format.modes import ModeKeys
from tests.hook_layer.autopatch.plain_runs import PlainRuns
from tests.hook_layer.autopatch.test_command import SCRIPTS
from tests.hook_layer.autopatch.test_models import ANOTHER, watched


@pytest.fixture(scope="module")
def unhooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainRuns]:
    runs = PlainRuns(SCRIPTS, tmp_path_factory.mktemp("plain"))
    yield runs
    runs.close()


@pytest.mark.parametrize("kind", ["once", "twice", "frozen", "by hand"])
def test_a_part_that_is_tried_out_ahead_of_the_model_is_not_the_model(
    unhooked: PlainRuns, tmp_path: Path, kind: str
) -> None:
    trial, log = watched(unhooked, tmp_path, kind, script="probing_script.py")
    weights = {name for name in trial.tensor_names() if name.endswith("weight")}
    assert weights == {"Net_0.weight", "Net_2.weight"}
    assert trial.steps(mode=ModeKeys.TRAIN) == trial.steps() == list(range(5))
    assert trial.tensor("MSELoss_output_0").steps() == list(range(5))
    assert ANOTHER not in log


# With the parameters of another module the optimiser trains more than the model.
@pytest.mark.parametrize("num_parameters", ["4", "6"])
def test_models_that_follow_add_nothing_and_what_scripts_let_go_of_is_gone(
    unhooked: PlainRuns, tmp_path: Path, num_parameters: str
) -> None:
    trial, log = watched(
        unhooked, tmp_path, "--parameters", num_parameters, script="searches_script.py"
    )
    assert trial.steps(mode=ModeKeys.EVAL) == [0]
    assert {name for name in trial.tensor_names() if "Loss" in name} == {"MSELoss_output_0"}
    assert "more tensors came after their step" not in log
