from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import open_store
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.dead_relu import DeadRelu
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors, healthy_tensors
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.step_view import StepReader
from tests.rule_runtime.outcomes import evidence_of, letters, make_run, reason_of
from tests.tables import table

OUTPUT = "net.relu_output_0"


def relu(step: int, worker: int, shape: tuple[int, ...] = (16, 8)) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(100 * worker + step)
    return np.maximum(rng.normal(0, 1, shape), 0).astype(np.float32)


class TestDeadReluContract(RuleContract):
    def make_rule(self) -> Rule:
        return DeadRelu()

    def make_tensors(self, step: int, worker: int) -> Tensors:
        return {**healthy_tensors(step, worker), OUTPUT: relu(step, worker)}

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        value = tensors[OUTPUT].copy()
        value[:, :5] = 0
        return {**tensors, OUTPUT: value}


def outcome_of(value: Any, *, name: str = OUTPUT, mode: ModeKeys = ModeKeys.TRAIN, **p: Any) -> Any:
    trial = TrialBuilder()
    trial.step(3, {name: value}, mode=mode)
    (outcome,) = trial.outcomes(DeadRelu(**p))
    return outcome


def with_dead(num_dead: int, num_units: int = 10, batch: int = 32) -> np.ndarray[Any, Any]:
    value = np.ones((batch, num_units), dtype=np.float32)
    value[:, :num_dead] = 0
    return value


def dense_layer(weights: np.ndarray[Any, Any]) -> Outcome:
    """Return the outcome for a layer of ten units without bias, as in the tests of 2019."""
    inputs = np.random.default_rng(0).uniform(0, 1, (64, weights.shape[1]))
    outcome: Outcome = outcome_of(np.maximum(inputs @ weights.T, 0), name="dense0_relu_output_0")
    return outcome


def test_original_fixture_a_layer_of_zero_weights_fires_and_one_of_xavier_does_not() -> None:
    assert isinstance(dense_layer(np.zeros((10, 10))), IssueFound)
    bound = (6 / 20) ** 0.5
    weights = np.random.default_rng(1).uniform(-bound, bound, (10, 10))
    assert isinstance(dense_layer(weights), Passed)


def with_active(num_active: int) -> np.ndarray[Any, Any]:
    """Return outputs of units that are active in some of 100 rows."""
    return np.repeat((np.arange(100) < num_active)[:, None], 4, axis=1).astype(np.float32)


CHANNELS = np.ones((2, 4, 5, 5), dtype=np.float32)
DEAD_CHANNELS = CHANNELS * (np.arange(4) > 2)[:, None, None]
ACTIVE_SOMEWHERE = CHANNELS * (np.arange(25).reshape(5, 5) == 0)
TWO_PERCENT = {"threshold_inactivity": 2}


@table(
    "value, options, letter",
    {
        "half of the units": (with_dead(5), {}, "P"),
        "more than half": (with_dead(6), {}, "!"),
        "all units": (with_dead(10), {}, "!"),
        "never active": (with_active(0), TWO_PERCENT, "!"),
        "active in 1 %": (with_active(1), TWO_PERCENT, "!"),
        "active in 2 %, the threshold": (with_active(2), TWO_PERCENT, "P"),
        "three of four channels": (DEAD_CHANNELS, {}, "!"),
        "channels that are active somewhere": (ACTIVE_SOMEWHERE, {}, "P"),
        "NaN counts as active": (np.full((8, 4), np.nan), {}, "P"),
        "in evaluation": (with_dead(9), {"mode": ModeKeys.EVAL}, "."),
        "without modes": (with_dead(9), {"mode": ModeKeys.GLOBAL}, "!"),
    },
)
def test_more_than_half_of_the_units_must_be_dead(
    value: Any, options: dict[str, Any], letter: str
) -> None:
    assert letters([outcome_of(value, **options)]) == letter


def test_the_evidence() -> None:
    trial = TrialBuilder(num_workers=2)
    trial.step(3, {OUTPUT: with_dead(7), "z_relu_output_0": with_dead(8)}, worker="worker_1")
    trial.step(3, {OUTPUT: with_dead(0)}, worker="worker_0")
    evidence = evidence_of(*trial.outcomes(DeadRelu()))
    assert (evidence.tensor, evidence.worker) == ("z_relu_output_0", "worker_1")
    assert (evidence.measure, evidence.value, evidence.threshold) == ("dead_units_percent", 80, 50)
    assert evidence.sentence == (
        "z_relu_output_0: 80 % of the units are active in less than 1 % of their outputs, "
        "more than 50 %"
    )


def test_layers_are_found_by_their_collection_whatever_they_are_called() -> None:
    trial = make_run(
        {"act1_output_0": with_dead(9)}, collections={"relu_output": (r"^act1_output_",)}
    )
    assert evidence_of(*trial.outcomes(DeadRelu())).tensor == "act1_output_0"


@pytest.mark.parametrize(("bias", "kind"), [(0.0, Passed), (-50.0, IssueFound)])
def test_a_real_layer_is_found_by_its_type(bias: float, kind: type) -> None:
    torch = pytest.importorskip("torch")
    hooks = pytest.importorskip("hook_layer.pytorch")
    torch.manual_seed(0)
    uri = f"memory://dead-relu-{bias}/"
    interval = hooks.SaveConfig(save_interval=1)
    hook = hooks.Hook(uri, save_config=interval, include_collections=["relu_output"])
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    torch.nn.init.constant_(net[0].bias, bias)
    hook.register_module(net)
    net(torch.randn(32, 8)).sum().backward()
    hook.close()
    store = open_store(uri)
    files = load_step_files(store, list(store.list("index/")))
    view = StepReader(store).view(0, files, num_workers=1)
    outcome = Evaluation.fresh(DeadRelu()).feed(view)
    assert isinstance(outcome, kind)
    if isinstance(outcome, IssueFound):
        assert outcome.evidence.tensor == "1_output_0"


def test_statistics_do_not_suffice() -> None:
    trial = make_run({OUTPUT: with_dead(9)}, save_values=False)
    assert OUTPUT in reason_of(*trial.outcomes(DeadRelu()))


def test_what_to_ask_for_is_reported() -> None:
    outcome = outcome_of(with_dead(9), name="act.output_0", tensor_regex=("^mine",))
    assert outcome == NotEvaluated(
        "no output of a ReLU layer was saved in the collection relu_output or named as ^mine: "
        "save that collection, which nn.ReLU and F.relu fill"
    )


def test_a_model_may_have_no_relu_layer() -> None:
    trial = make_run({"gelu_output_0": with_dead(9)}, collections={"relu_output": ()})
    (outcome,) = trial.outcomes(DeadRelu(tensor_regex=()))
    assert outcome == NotEvaluated(
        "no output of a ReLU layer was saved in the collection relu_output: "
        "the model has none, or the hook saves them at other steps"
    )
