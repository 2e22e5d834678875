"""Validation passes with one change each: when Overfit and Overtraining find a fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.overfit import Overfit, Overtraining
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.outcomes import evidence_of, reason_of
from tests.rule_runtime.rules.xgboost_trials import boost, judged, matrix
from tests.tables import table

LOSS = "CrossEntropyLoss_output_0"
XGBOOST_LOSSES = ("^[a-zA-z]+-.+(?<!(auc|map))$",)
MANY = {f"test_{number:02}-rmse": 1.0 for number in range(32)}
FALLING = [5.0 - 0.1 * epoch for epoch in range(20)]


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


class TestOvertrainingContract(RuleContract):
    def make_rule(self) -> Overtraining:
        return Overtraining(patience_validation=4, patience_train=3)

    def make_steps(self, worker: int) -> Iterable[SavedStep]:
        noise = np.random.default_rng(worker)
        for epoch in range(12):
            for at in range(4):
                loss = 2 * 0.9**epoch * noise.uniform(0.98, 1.02) * (1 if at < 3 else 1.05)
                mode = ModeKeys.TRAIN if at < 3 else ModeKeys.EVAL
                yield SavedStep(5 * (4 * epoch + at), {LOSS: np.float32(loss)}, mode)

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        """The validation loss rises from the third epoch on."""
        for saved in self.make_steps(worker):
            is_late = saved.mode is ModeKeys.EVAL and saved.step > 50
            tensors = {LOSS: np.float32(1.8 + 0.001 * saved.step)} if is_late else saved.tensors
            yield saved._replace(tensors=tensors)


def t(loss: float) -> tuple[str, float]:
    return "TRAIN", loss


def e(loss: float) -> tuple[str, float]:
    return "EVAL", loss


def phases(
    rule: Rule, *parts: tuple[str, float], names: tuple[str, ...] = (LOSS,)
) -> list[Outcome]:
    """Return the outcomes of losses that are saved one after the other in modes."""
    trial = TrialBuilder()
    for step, (mode, loss) in enumerate(parts):
        trial.step(step, dict.fromkeys(names, np.float64(loss)), mode=ModeKeys[mode])
    return trial.outcomes(rule)


def kinds(outcomes: Iterable[Outcome]) -> str:
    names = {Passed: "P", IssueFound: "!", NotEvaluated: "-", NotApplicable: "-"}
    return "".join(names[type(outcome)] for outcome in outcomes)


@table(
    "rule, parts, expected",
    {
        "a pass ends": (Overfit(), [t(1), t(3), e(1), e(5), t(2)], "----!"),
        "at the limit": (Overfit(ratio_threshold=0.5), [t(2), e(3), t(2)], "--P"),
        "above it": (Overfit(ratio_threshold=0.5), [t(2), e(3.001), t(2)], "--!"),
        # otherwise the last pass of a run would be lost
        "a pass as long as the previous one ends with its last step": (
            Overfit(),
            [t(2), e(2), e(2), t(2), e(4), e(4), e(9), t(2), e(2), e(2), e(2)],
            "---P-!----P",
        ),
        "means since the previous pass": (
            Overfit(),
            [t(100), e(100), t(1), t(3), e(2), t(1)],
            "--P-P-",
        ),
        "steps before start_step are ignored": (
            Overfit(start_step=3),
            [t(1), e(9), t(1), t(2), e(2), t(1)],
            "-----P",
        ),
        "validation comes first": (Overfit(), [e(9), e(9), t(1), e(1), e(1), t(1)], "-----P"),
        "patience in a row": (
            Overfit(patience=3),
            [t(1), e(2), t(1), e(2), t(1), e(1), t(1), *[e(2), t(1)] * 3, e(2)],
            "--PP-P-P-P-!-!",
        ),
        "a pass without a ratio ends the row": (
            Overfit(patience=2),
            [t(1), e(2), t(0), e(2), t(1), e(2), t(1)],
            "--P--P-",
        ),
        "losses that are not finite": (
            Overfit(),
            [t(1), t(np.nan), e(np.inf), e(1), e(1), t(1)],
            "-----P",
        ),
        "only the latest passes": (Overfit(), [t(1), e(1), t(2), e(3)], "--P!"),
        "other losses": (Overfit(tensor_regex=("^my$",)), [t(1), e(9), t(1)], "---"),
    },
)
def test_when_a_pass_is_overfit(rule: Rule, parts: list[tuple[str, float]], expected: str) -> None:
    assert kinds(phases(rule, *parts)) == expected


@pytest.mark.parametrize(
    ("rule", "parts", "reason"),
    [
        (Overfit(start_step=3), [t(1)], "needs 3 steps, had 0: start_step is set"),
        (Overfit(), [e(9)], "no training loss was saved before this validation"),
        (Overfit(), [t(0), e(5), t(0)], f"a ratio needs positive losses; that of {LOSS} is not"),
        (Overfit(), [t(-1), e(5), t(-1)], f"a ratio needs positive losses; that of {LOSS} is not"),
        (Overfit(), [t(1), e(1), t(2), t(2)], "no validation pass ended at this step"),
        (Overfit(), [t(1), t(1)], "no validation loss was saved"),
        (
            Overfit(),
            [("PREDICT", 9.0)],
            "steps of mode PREDICT are not evaluated",
        ),
        (Overtraining(), [t(1), t(1)], "no validation loss was saved"),
        (Overtraining(), [t(1), e(np.nan)], "no saved loss is finite"),
    ],
)
def test_why_a_step_is_not_evaluated(
    rule: Rule, parts: list[tuple[str, float]], reason: str
) -> None:
    assert reason_of(phases(rule, *parts)[-1]).startswith(reason)


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        ("train-auc", "train-auc may not be a loss: use a metric that is known to fall"),
        *[(f"train-{name}", "train-") for name in ("aucpr", "map", "ndcg", "map@5", "pre@3")],
    ],
)
def test_metrics_that_should_grow_are_no_losses(metric: str, reason: str) -> None:
    (outcome,) = of_xgboost(Overfit(tensor_regex=("train",)), {metric: 0.5})
    assert isinstance(outcome, NotEvaluated)
    assert outcome.reason.startswith(reason)


def test_the_evidence_of_overfit() -> None:
    evidence = evidence_of(phases(Overfit(), t(1), t(3), e(1), e(5), t(2))[-1])
    assert (evidence.step, evidence.mode, evidence.tensor) == (4, "TRAIN", LOSS)
    assert (evidence.value, evidence.threshold) == (0.5, 0.1)
    assert evidence.sentence == (
        f"{LOSS}: the validation loss 3 is larger than the training loss 2 by a ratio of 0.5, "
        "more than 0.1"
    )
    evidence = evidence_of(phases(Overfit(patience=2), t(1), e(2), t(1), e(2))[-1])
    assert evidence.sentence.endswith("more than 0.1, 2 passes in a row")


def test_the_worst_of_losses_and_workers_is_reported() -> None:
    trial = TrialBuilder(num_workers=2)
    for step, mode in enumerate((ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.TRAIN)):
        for worker, factor in (("worker_0", 2.0), ("worker_1", 3.0)):
            value = factor if mode is ModeKeys.EVAL else 1.0
            losses = {"a_loss_output": [value], "b_loss_output": [1.0]}
            trial.step(step, losses, mode=mode, worker=worker)
    evidence = evidence_of(trial.outcomes(Overfit())[-1])
    assert (evidence.worker, evidence.tensor) == ("worker_1", "a_loss_output")
    assert evidence.value == 2


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


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ({"train-rmse": 1.0, "validation-mae": 5.0}, "-"),
        ({"train-rmse": 1.0, "eval-rmse": 1.0, "test-rmse": 2.0}, "!"),
        ({"train-rmse": 1.0, **MANY, "val-rmse": 9.0}, "P"),  # at most 32 validation losses
    ],
)
def test_several_losses_of_xgboost(losses: dict[str, float], expected: str) -> None:
    assert kinds(of_xgboost(Overfit(tensor_regex=("-",)), losses)) == expected


def test_no_more_than_32_validation_losses_are_followed() -> None:
    trial = TrialBuilder()
    names = [f"{number:02}_loss_output" for number in range(40)]
    for step, mode in enumerate((ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.TRAIN)):
        values = [9.0 if mode is ModeKeys.EVAL and n >= 32 else 1.0 for n in range(40)]
        trial.step(step, dict(zip(names, values, strict=True)), mode=mode)
    assert kinds(trial.outcomes(Overfit())) == "--P"


@pytest.mark.parametrize(
    ("rule", "parameters", "num_evaluated", "fires"),
    [
        (Overfit(patience=3, ratio_threshold=0.5), {"max_depth": 6, "eta": 0.8}, 12, True),
        (Overfit(patience=3, ratio_threshold=0.5), {"max_depth": 1, "eta": 0.02}, 12, False),
        (Overtraining(), {"max_depth": 6, "eta": 1.0}, 4, True),
        (Overtraining(), {"max_depth": 1, "eta": 0.05}, 4, False),
    ],
)
def test_on_what_the_hook_for_xgboost_writes(
    tmp_path: Path, rule: Rule, parameters: dict[str, Any], num_evaluated: int, *, fires: bool
) -> None:
    num_rows = 60 if isinstance(rule, Overfit) else 200
    data, validation = matrix(rows=slice(0, num_rows)), matrix(rows=slice(num_rows, 400))
    trial = boost(tmp_path / "t", data=data, validation=validation, rounds=14, **parameters)
    state = judged(trial, rule)
    assert (state.evidence is not None) == fires
    assert state.counts.evaluated == num_evaluated
    if state.evidence is not None:
        assert state.evidence.tensor == "validation-rmse"


@pytest.mark.parametrize(("num_examples", "fires"), [(1000, False), (20, True)])
def test_on_what_the_hook_for_pytorch_writes(
    tmp_path: Path, num_examples: int, fires: bool
) -> None:
    """A network that sees few digits memorises them."""
    torch = pytest.importorskip("torch")
    hooks = pytest.importorskip("hook_layer.pytorch")
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


def outcomes(
    rule: Overtraining, training: Sequence[float], validation: Sequence[float]
) -> list[Outcome]:
    """Return the outcomes of the evaluations of a run with one TRAIN and one EVAL step each."""
    trial = TrialBuilder()
    for epoch, losses in enumerate(zip(training, validation, strict=True)):
        for at, (loss, mode) in enumerate(zip(losses, ("TRAIN", "EVAL"), strict=True)):
            trial.step(2 * epoch + at, {LOSS: loss}, mode=ModeKeys[mode])
    trial.step(2 * len(training), {LOSS: 1.0})
    return [o for o in trial.outcomes(rule) if not isinstance(o, NotEvaluated)]


def findings(
    rule: Overtraining, training: Sequence[float], validation: Sequence[float]
) -> list[int]:
    found = outcomes(rule, training, validation)
    assert len(found) == len(training)
    return [epoch for epoch, outcome in enumerate(found) if isinstance(outcome, IssueFound)]


@pytest.mark.parametrize(
    ("rule", "training", "validation", "found"),
    [
        (Overtraining(), FALLING, [3.0, 2.0, *[2.5] * 18], [*range(11, 20)]),
        (Overtraining(), [1.0] * 7, [3.0, 2.0, *[2.5] * 5], [6]),
        (Overtraining(), [1.0] * 20, FALLING, []),
        (Overtraining(), FALLING[:11], [2.0, *[2.5] * 10], [10]),
        (
            Overtraining(patience_validation=1, delta=0.25),
            [4.0, 3.0, 2.0],
            [2.0, 1.75, 1.5],
            [1],
        ),
        (Overtraining(patience_validation=1, delta=0.25), [4.0, 3.0], [2.0, 1.7], []),
        (Overtraining(patience_validation=4), FALLING, 2.0 - 0.004 * np.arange(20), []),
    ],
    ids=[
        *("validation alone", "both losses", "training alone", "training improves"),
        *("exactly delta", "more than delta", "slow progress adds up"),
    ],
)
def test_when_a_run_is_overtrained(
    rule: Overtraining, training: Sequence[float], validation: Sequence[float], found: list[int]
) -> None:
    assert findings(rule, training, validation) == found


@pytest.mark.parametrize(
    ("training", "text", "measured"),
    [
        (FALLING, "the validation loss, now 2.5, has not improved on 2 by 0.01 in 10 ", (10, 10)),
        ([1.0] * 20, "in 5 evaluations, and the training loss has not either", (5, 5)),
    ],
)
def test_the_evidence_of_overtraining(
    training: list[float], text: str, measured: tuple[float, float]
) -> None:
    found = outcomes(Overtraining(), training, [3.0, 2.0, *[2.5] * 18])
    evidence = next(each.evidence for each in found if isinstance(each, IssueFound))
    assert evidence.tensor == LOSS
    assert (evidence.value, evidence.threshold) == measured
    assert text in evidence.sentence


def test_the_loss_that_stands_longest_is_reported() -> None:
    trial = TrialBuilder(num_workers=2)
    for epoch in range(6):
        for worker in ("worker_0", "worker_1"):
            trial.step(2 * epoch, {LOSS: 9.0 - epoch}, worker=worker)
            falls = worker == "worker_0" and epoch < 2
            losses = {LOSS: 9.0 - epoch if falls else 9.0}
            trial.step(2 * epoch + 1, losses, mode=ModeKeys.EVAL, worker=worker)
    evidence = trial.evaluate(Overtraining(patience_validation=3)).evidence
    assert evidence is not None
    assert (evidence.worker, evidence.value) == ("worker_1", 3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3)), min_size=1, max_size=25),
    st.integers(1, 6),
    st.integers(1, 6),
    st.floats(0, 0.5),
)
def test_as_the_definition(
    losses: list[tuple[float, float]], train: int, validation: int, delta: float
) -> None:
    """Compared with early stopping as its definition is written."""

    def stale(values: Sequence[float]) -> list[int]:
        best, counts = np.inf, []
        for value in values:
            improves = value < best - delta
            best = value if improves else best
            counts.append(0 if improves or not counts else counts[-1] + 1)
        return counts

    rule = Overtraining(patience_train=train, patience_validation=validation, delta=delta)
    of_training, of_validation = (list(side) for side in zip(*losses, strict=True))
    expected = [
        epoch
        for epoch, (one, two) in enumerate(
            zip(stale(of_training), stale(of_validation), strict=True)
        )
        if two >= validation or min(one, two) >= train
    ]
    assert findings(rule, of_training, of_validation) == expected
