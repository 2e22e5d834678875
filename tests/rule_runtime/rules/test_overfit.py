from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import create_rule
from rule_runtime.rules.overfit import Overfit
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.rules.xgboost_trials import boost, judged, matrix

LOSS = "CrossEntropyLoss_output_0"
XGBOOST_LOSSES = ("^[a-zA-z]+-.+(?<!(auc|map))$",)


def epochs(worker: int, *, gap: float) -> Iterable[SavedStep]:
    """Yield epochs of four training and two evaluation steps, the losses a ratio apart."""
    for epoch in range(8):
        for at in range(6):
            is_training = at < 4
            noise = 1 + 0.01 * np.sin(7 * at + epoch + worker)
            loss = 2 * 0.8**epoch * noise * (1 if is_training else 1 + gap)
            mode = ModeKeys.TRAIN if is_training else ModeKeys.EVAL
            yield SavedStep(5 * (6 * epoch + at), {LOSS: np.float32(loss)}, mode)


class TestOverfitContract(RuleContract):
    def make_rule(self) -> Overfit:
        return Overfit()

    def make_steps(self, worker: int) -> Iterable[SavedStep]:
        return epochs(worker, gap=0.02)

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        return epochs(worker, gap=0.5)


class TestOverfitContractOfXgboost(RuleContract):
    def make_rule(self) -> Overfit:
        return Overfit(patience=2)

    def make_collections(self) -> dict[str, tuple[str, ...]]:
        return {"losses": XGBOOST_LOSSES}

    def make_steps(self, worker: int) -> Iterable[SavedStep]:
        for step in range(20):
            loss = 3 * 0.9**step + 0.01 * worker
            tensors = {"train-rmse": [loss], "validation-rmse": [loss * 1.05]}
            yield SavedStep(5 * step, tensors, ModeKeys.GLOBAL)

    def make_sick(self, tensors: dict[str, Any]) -> dict[str, Any]:
        return {**tensors, "validation-rmse": np.array([9.0])}


def phases(
    rule: Overfit, *parts: tuple[str, float], names: tuple[str, ...] = (LOSS,)
) -> list[Outcome]:
    """Return the outcomes of losses that are saved one after the other in modes."""
    trial = TrialBuilder()
    for step, (mode, loss) in enumerate(parts):
        trial.step(step, dict.fromkeys(names, np.float64(loss)), mode=ModeKeys[mode])
    return trial.outcomes(rule)


def kinds(outcomes: Iterable[Outcome]) -> str:
    names = {Passed: "P", IssueFound: "!", NotEvaluated: "-", NotApplicable: "-"}
    return "".join(names[type(outcome)] for outcome in outcomes)  # type: ignore[index]


def t(loss: float) -> tuple[str, float]:
    return "TRAIN", loss


def e(loss: float) -> tuple[str, float]:
    return "EVAL", loss


def test_a_pass_is_judged_when_training_continues() -> None:
    outcomes = phases(Overfit(), t(1), t(3), e(1), e(5), t(2))
    assert kinds(outcomes) == "----!"
    assert isinstance(outcomes[-1], IssueFound)
    evidence = outcomes[-1].evidence
    assert (evidence.step, evidence.mode, evidence.tensor) == (4, "TRAIN", LOSS)
    assert (evidence.value, evidence.threshold) == (0.5, 0.1)
    assert evidence.sentence == (
        f"{LOSS}: the validation loss 3 is larger than the training loss 2 by a ratio of 0.5, "
        "more than 0.1"
    )


def test_the_ratio_must_be_larger_than_the_threshold() -> None:
    rule = Overfit(ratio_threshold=0.5)
    assert kinds(phases(rule, t(2), e(3), t(2))) == "--P"
    assert kinds(phases(rule, t(2), e(3.001), t(2))) == "--!"


def test_a_phase_as_long_as_the_one_before_is_judged_at_its_end() -> None:
    """Or the last evaluation of a run would never be judged."""
    parts = [t(2), e(2), e(2), t(2), e(4), e(4)]
    assert kinds(phases(Overfit(), *parts)) == "---P-!"
    assert kinds(phases(Overfit(), *parts, e(9), t(2), e(2), e(2), e(2))) == "---P-!----P"


def test_means_are_of_the_steps_since_the_phase_before() -> None:
    outcomes = phases(Overfit(), t(100), e(100), t(1), t(3), e(2), t(1))
    assert kinds(outcomes) == "--P-P-"
    outcomes = phases(Overfit(), t(1), e(1), t(2), e(3))
    assert isinstance(outcomes[-1], IssueFound)
    assert outcomes[-1].evidence.value == 0.5


def test_patience_counts_phases_in_a_row() -> None:
    parts = [t(1), e(2), t(1), e(2), t(1), e(1), t(1), e(2), t(1), e(2), t(1), e(2), t(1), e(2)]
    found = [
        number
        for number, outcome in enumerate(phases(Overfit(patience=3), *parts))
        if isinstance(outcome, IssueFound)
    ]
    assert found == [11, 13]
    last = phases(Overfit(patience=3), *parts)[-1]
    assert isinstance(last, IssueFound)
    assert last.evidence.sentence.endswith("more than 0.1, 3 passes in a row")


def test_steps_before_start_step_are_not_looked_at() -> None:
    outcomes = phases(Overfit(start_step=3), t(1), e(9), t(1), t(2), e(2), t(1))
    assert kinds(outcomes) == "-----P"
    assert isinstance(outcomes[0], NotEvaluated)
    assert outcomes[0].reason == "needs 3 steps, had 0: start_step"


def test_an_evaluation_before_training_is_no_phase() -> None:
    outcomes = phases(Overfit(), e(9), e(9), t(1), e(1), e(1), t(1))
    assert kinds(outcomes) == "-----P"
    assert isinstance(outcomes[0], NotEvaluated)
    assert outcomes[0].reason.startswith("no training loss was saved before this validation")


@pytest.mark.parametrize("loss", [0.0, -1.0])
def test_a_training_loss_that_is_not_above_zero_has_no_ratio(loss: float) -> None:
    outcomes = phases(Overfit(), t(loss), e(5), t(loss))
    assert outcomes[-1] == NotEvaluated(f"the mean training loss for {LOSS} is not above zero")


def test_a_phase_without_ratio_ends_the_row() -> None:
    parts = [t(1), e(2), t(0), e(2), t(1), e(2), t(1)]
    assert kinds(phases(Overfit(patience=2), *parts)) == "--P--" + "P-"


def test_losses_that_are_not_finite_are_left_out_of_the_means() -> None:
    parts = [t(1), t(np.nan), e(np.inf), e(1), e(1), t(1)]
    assert kinds(phases(Overfit(), *parts)) == "-----P"


def test_each_loss_and_worker_is_judged_by_itself_and_the_worst_is_reported() -> None:
    trial = TrialBuilder(num_workers=2)
    for step, mode in enumerate((ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.TRAIN)):
        for worker, factor in (("worker_0", 2.0), ("worker_1", 3.0)):
            value = factor if mode is ModeKeys.EVAL else 1.0
            losses = {"a_loss_output": [value], "b_loss_output": [1.0]}
            trial.step(step, losses, mode=mode, worker=worker)
    outcome = trial.outcomes(Overfit())[-1]
    assert isinstance(outcome, IssueFound)
    assert (outcome.evidence.worker, outcome.evidence.tensor) == ("worker_1", "a_loss_output")
    assert outcome.evidence.value == 2


def test_the_regex_names_the_losses_alone() -> None:
    rule = Overfit(tensor_regex=("^mine$",))
    assert kinds(phases(rule, t(1), e(9), t(1), names=("mine", LOSS))) == "--!"
    assert kinds(phases(rule, t(1), e(9), t(1))) == "---"


def test_predictions_are_no_evaluation_and_a_run_without_one_says_so() -> None:
    outcomes = phases(Overfit(), t(1), ("PREDICT", 9.0), t(1))
    reasons = [o.reason for o in outcomes if isinstance(o, NotEvaluated)]
    assert [reason.partition(":")[0] for reason in reasons] == [
        "no validation loss was saved",
        "a step of mode PREDICT is neither training nor validation",
        "no validation loss was saved",
    ]


def of_xgboost(rule: Overfit, *steps: dict[str, float]) -> list[Outcome]:
    trial = TrialBuilder()
    trial.collections(losses=XGBOOST_LOSSES)
    for step, losses in enumerate(steps):
        tensors = {name: [value] for name, value in losses.items()}
        trial.step(step, tensors, mode=ModeKeys.GLOBAL)
    return trial.outcomes(rule)


@pytest.mark.parametrize(
    "name", ["validation", "valid", "val", "eval", "test", "holdout", "validation_0", "dev"]
)
def test_names_show_the_sides_of_xgboosts_losses(name: str) -> None:
    outcomes = of_xgboost(
        Overfit(tensor_regex=(".*-.*",)),
        {"train-rmse": 1.0, f"{name}-rmse": 1.1},
        {"train-rmse": 0.5, f"{name}-rmse": 1.0},
    )
    assert kinds(outcomes)[-1] == "!"
    assert isinstance(outcomes[-1], IssueFound)
    assert (outcomes[-1].evidence.tensor, outcomes[-1].evidence.value) == (f"{name}-rmse", 1.0)


@pytest.mark.parametrize("metric", ["auc", "aucpr", "map", "ndcg", "map@5", "pre@3", "ndcg@2-"])
def test_metrics_that_should_grow_are_no_losses(metric: str) -> None:
    (outcome,) = of_xgboost(
        Overfit(tensor_regex=(".*",)), {f"train-{metric}": 0.5, f"validation-{metric}": 0.9}
    )
    assert isinstance(outcome, NotEvaluated)


def test_metrics_are_not_mixed() -> None:
    outcomes = of_xgboost(Overfit(), {"train-rmse": 1.0, "validation-mae": 5.0})
    assert kinds(outcomes) == "-"


def test_two_validation_sets_are_judged_by_themselves() -> None:
    losses = {"train-rmse": 1.0, "eval-rmse": 1.0, "test-rmse": 2.0}
    (outcome,) = of_xgboost(Overfit(), losses)
    assert isinstance(outcome, IssueFound)
    assert outcome.evidence.tensor == "test-rmse"


def test_no_more_than_32_validation_losses_are_followed() -> None:
    trial = TrialBuilder()
    names = [f"{number:02}_loss_output" for number in range(40)]
    for step, mode in enumerate((ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.TRAIN)):
        values = [9.0 if mode is ModeKeys.EVAL and n >= 32 else 1.0 for n in range(40)]
        trial.step(step, dict(zip(names, values, strict=True)), mode=mode)
    assert kinds(trial.outcomes(Overfit())) == "--P"
    named = {"train-rmse": 1.0, **{f"test_{n:02}-rmse": 1.0 for n in range(32)}, "val-rmse": 9.0}
    assert kinds(of_xgboost(Overfit(tensor_regex=("rmse",)), named)) == "P"


@pytest.mark.parametrize(
    ("parameters", "fires"),
    [({"max_depth": 6, "eta": 0.8}, True), ({"max_depth": 1, "eta": 0.02}, False)],
)
def test_on_what_the_hook_for_xgboost_writes(
    tmp_path: Path, parameters: dict[str, Any], fires: bool
) -> None:
    data, validation = matrix(rows=slice(0, 60)), matrix(rows=slice(60, 200))
    trial = boost(tmp_path / "t", data=data, validation=validation, rounds=12, **parameters)
    state = judged(trial, Overfit(patience=3, ratio_threshold=0.5))
    assert (state.evidence is not None) == fires
    assert state.counts.evaluated == 12 - 2  # three passes decide
    if state.evidence is not None:
        assert state.evidence.tensor == "validation-rmse"


@pytest.mark.parametrize(("num_examples", "fires"), [(1000, False), (20, True)])
def test_on_what_the_hook_for_pytorch_writes(
    tmp_path: Path, num_examples: int, fires: bool
) -> None:
    """A network that sees few digits memorises them."""
    torch = pytest.importorskip("torch")
    hooks = pytest.importorskip("hook_layer.pytorch")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    datasets = pytest.importorskip("sklearn.datasets")
    digits, labels = map(torch.tensor, datasets.load_digits(return_X_y=True))
    order = torch.randperm(len(labels))
    digits, labels = digits[order].float() / 16, labels[order]
    net, loss = torch.nn.Linear(64, 10), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    trial = WrittenTrial(str(tmp_path / "t"))
    config = hooks.SaveConfig(save_interval=1)
    hook = hooks.Hook(trial.uri, save_config=config, include_collections=["losses"])
    hook.register_module(net)
    hook.register_loss(loss)
    for _ in range(6):
        hook.set_mode(hooks.modes.TRAIN)
        for rows in torch.arange(num_examples).repeat(1000 // num_examples).split(100):
            optimizer.zero_grad()
            loss(net(digits[rows]), labels[rows]).backward()
            optimizer.step()
        hook.set_mode(hooks.modes.EVAL)
        with torch.no_grad():
            for rows in torch.arange(1000, 1600).split(200):
                loss(net(digits[rows]), labels[rows])
    hook.close()
    state = judged(trial, Overfit(patience=2, ratio_threshold=0.5))
    assert (state.evidence is not None) == fires
    assert state.counts.evaluated == 6 - 1  # two passes decide


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("te"), st.floats(0.5, 2)), max_size=30))
def test_without_any_gap_nothing_is_found(parts: list[tuple[str, float]]) -> None:
    steps = [t(loss) if mode == "t" else e(0.5) for mode, loss in parts]
    assert "!" not in kinds(phases(Overfit(), *steps))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["TRAIN", "EVAL"]), st.floats(0.1, 100)), max_size=30),
    st.floats(0, 5),
)
def test_phases_have_the_means_of_their_steps(
    parts: list[tuple[str, float]], threshold: float
) -> None:
    """Compared with means over whole passes, separated afterwards."""
    expected: list[float] = []
    training: list[float] = []
    validation: list[float] = []
    for mode, loss in [*parts, t(1)]:
        if mode == "EVAL" and training:
            validation.append(loss)
        elif mode == "TRAIN":
            if validation:
                expected.append(np.mean(validation) / np.mean(training) - 1)
                training, validation = [], []
            training.append(loss)
    # The first phase is always judged at its end, whatever its length.
    outcomes = phases(Overfit(ratio_threshold=threshold), *parts, t(1))
    judged = [outcome for outcome in outcomes if not isinstance(outcome, NotEvaluated)]
    assert len(judged) == len(expected)
    if expected and abs(expected[0] - threshold) > 1e-9:
        assert isinstance(judged[0], IssueFound) == (expected[0] > threshold)


def test_parameters_may_be_strings() -> None:
    rule = create_rule(
        "Overfit", {"patience": "2", "ratio_threshold": "0.2", "tensor_regex": "loss,rmse"}
    )
    assert rule == Overfit(patience=2, ratio_threshold=0.2, tensor_regex=("loss", "rmse"))
    assert Overfit() == Overfit(tensor_regex=None, start_step=0, patience=1, ratio_threshold=0.1)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="patience is 0 validation passes, but must be at"):
        create_rule("Overfit", {"patience": "0"})


def test_why_no_pass_ended() -> None:
    *_, last = phases(Overfit(), t(1), e(1), t(2), t(2))
    assert last == NotApplicable("no validation pass ended at this step")
    for name, value, message in (
        ("train-auc", 0.5, "train-auc is not known to fall, so it may not be a loss"),
        ("train-rmse", np.nan, "no saved loss is finite"),
    ):
        trial = TrialBuilder()
        trial.step(0, {name: [value]}, mode=ModeKeys.GLOBAL)
        assert trial.outcomes(Overfit(tensor_regex=("train",))) == [NotEvaluated(message)]
