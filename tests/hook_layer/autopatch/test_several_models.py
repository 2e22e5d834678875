"""Scripts without a hook that train several models in one training."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.hook_layer.autopatch.watched_scripts import ScriptRuns

COLLECTIONS = ["weights", "gradients", "losses", "optimizer_steps"]
NUM_STEPS = 6
MSE = "MSELoss_output_{}"
BCE = "BCEWithLogitsLoss_output_{}"


def owner_of(weight: str) -> str:
    """Return the model of a weight such as `Net2_0.weight`."""
    return weight.partition("_")[0]


@pytest.mark.parametrize(
    ("kind", "weights", "losses"),
    [
        ("in_alternation", {"Encoder": 2, "Head": 2}, [MSE.format(0), MSE.format(1)]),
        ("adversarial", {"Net": 2, "Net2": 2}, [BCE.format(n) for n in range(3)]),
        ("in_one_step", {"Encoder": 2, "Head": 2}, [MSE.format(0)]),
        ("with_one_optimizer", {"Encoder": 2, "Head": 2}, [MSE.format(0)]),
        ("with_a_shared_part", {"Sequential": 3, "Sequential2": 3}, ["Loss_output_0"]),
        ("of_a_teacher", {"Head": 2}, [MSE.format(0)]),
        ("with_an_average", {"Head": 2}, [MSE.format(0)]),
        ("one_after_the_other", {"Encoder": 2}, [MSE.format(0)]),
    ],
)
def test_every_model_that_is_trained_is_watched(
    runs: ScriptRuns,
    tmp_path: Path,
    kind: str,
    weights: dict[str, int],
    losses: list[str],
) -> None:
    trial, _ = runs.trial(tmp_path, "several_models_script.py", kind, collections=COLLECTIONS)
    assert trial.steps() == list(range(NUM_STEPS))
    names = trial.tensor_names(collection="weights")
    assert Counter(map(owner_of, names)) == weights
    assert trial.tensor_names(collection="losses") == losses
    for name in names:
        steps = trial.tensor(name).steps()
        assert steps[-2:] == list(range(NUM_STEPS))[-2:]
        assert trial.tensor(f"gradient/{name}").steps()[-1] == NUM_STEPS - 1
        assert not np.array_equal(trial.tensor(name).value(2), trial.tensor(name).value(4))


def test_a_critic_has_the_gradients_that_its_own_optimizer_saw(
    runs: ScriptRuns, tmp_path: Path
) -> None:
    """The generator's loss reaches the critic's weights, after its optimizer has stepped."""
    trial, _ = runs.trial(
        tmp_path, "several_models_script.py", "adversarial", collections=COLLECTIONS
    )
    for step in range(2, 5):
        weight = trial.tensor("Net2_0.weight")
        change = weight.value(step + 1) - weight.value(step)
        gradient = trial.tensor("gradient/Net2_0.weight").value(step)
        np.testing.assert_allclose(change, -0.1 * gradient, atol=1e-6)


def test_a_detach_for_another_optimizer_is_not_what_stops_gradients(
    runs: ScriptRuns, tmp_path: Path
) -> None:
    """The critic's loss must not reach the generator; the generator's own loss should."""
    script = ("several_models_script.py", "adversarial_without_gradient")
    runs.trial(tmp_path, *script, collections=COLLECTIONS)
    (file,) = (tmp_path / "tensors").rglob("*_collections.json")
    assert "detach" not in file.read_text()


def test_a_model_whose_calls_are_not_seen_is_watched_by_its_optimizer(
    runs: ScriptRuns, tmp_path: Path
) -> None:
    trial, log = runs.trial(
        tmp_path, "several_models_script.py", "by_forward", collections=COLLECTIONS
    )
    assert "no call of a Net is seen" in log
    assert trial.tensor_names(collection="losses") == [MSE.format(0)]
    weight = trial.tensor("Net_0.weight")
    first, *_, last = weight.steps()
    for step in range(first, last):
        gradient = trial.tensor("gradient/Net_0.weight").value(step)
        change = weight.value(step + 1) - weight.value(step)
        np.testing.assert_allclose(change, -0.1 * gradient, atol=1e-6)
