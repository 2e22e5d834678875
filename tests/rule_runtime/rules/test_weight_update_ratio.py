from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import event_key
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import IssueFound, Outcome
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.weight_update_ratio import UnchangedTensor, WeightUpdateRatio
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors
from tests.rule_runtime.counting_store import CountingStore
from tests.rule_runtime.outcomes import evidence_of, letters, make_run, reason_of
from tests.rule_runtime.rules.runs import with_maxima
from tests.tables import table

WEIGHT = "Net_fc.weight"
START = np.linspace(-1, 1, 10)


class TestWeightUpdateRatioContract(RuleContract):
    def make_rule(self) -> Rule:
        return WeightUpdateRatio()

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        """A weight that has gradients and does not change."""
        return {**tensors, WEIGHT: np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)}


OfStep = Callable[[int], Any]
OTHER = "b.weight"
MOVING = {OTHER: lambda step: START * (1 + 0.01 * step)}


def trial_of(
    weight: OfStep, steps: range = range(3), others: Mapping[str, OfStep] | None = None
) -> TrialBuilder:
    trial = TrialBuilder()
    for step in steps:
        tensors = {name: of_step(step) for name, of_step in (others or {}).items()}
        trial.step(step, {WEIGHT: weight(step), **tensors}, mode_step=step)
    return trial


def last(trial: TrialBuilder, **parameters: Any) -> Outcome:
    return trial.outcomes(WeightUpdateRatio(**parameters))[-1]


def by(factor: float) -> OfStep:
    return lambda step: START * factor**step


def fixed(_: int) -> Any:
    return START


def halved(step: int) -> Any:
    return np.array([1.0, 2.0]) * 2.0**-step


def gradient(step: int) -> Any:
    return np.full(10, 1.0 + step)


def permuted(step: int) -> Any:
    return np.random.default_rng(step).permutation(START)


def turned(step: int) -> Any:
    return START.reshape((2, 5) if step % 2 else (5, 2))


@table(
    "weight, others, letter",
    {
        "a usual update": (by(1.001), {}, "P"),
        "a ratio of 9.9, below 10": (by(1 / 10.9), {}, "P"),
        "a ratio of 10.1": (by(1 / 11.1), {}, "!"),
        "just above the smaller threshold": (by(1 + 1.1e-8), {}, "P"),
        "just below the smaller threshold": (by(1 + 0.9e-8), {}, "!"),
        "a weight without any gradient is frozen": (fixed, MOVING, "P"),
        "only the other one has one": (fixed, {**MOVING, "gradient/b.weight": gradient}, "P"),
        "it has a gradient": (fixed, {**MOVING, f"gradient/{WEIGHT}": gradient}, "!"),
        "no weight of the model changes": (fixed, {OTHER: fixed}, "!"),
        "only the values show the change": (permuted, {}, "P"),
        "another shape is not compared": (turned, {}, "-"),
    },
)
def test_what_a_weight_gives(weight: OfStep, others: dict[str, OfStep], letter: str) -> None:
    assert letters([last(trial_of(weight, others=others))]) == letter


@pytest.mark.parametrize(
    "value", [np.full(3, np.nan), [np.inf, 1.0], np.empty(0), ["a"], [1j], [True]]
)
def test_what_cannot_be_compared_is_ignored(value: Any) -> None:
    assert letters([last(trial_of(lambda _: value, others=MOVING))]) == "P"


@pytest.mark.parametrize(
    ("parameters", "letter"),
    [
        ({"large_threshold": 1}, "P"),
        ({"large_threshold": 0.99}, "!"),
        ({"small_threshold": 1}, "P"),
        ({"small_threshold": 1.01}, "!"),
    ],
)
def test_both_comparisons_are_strict(parameters: dict[str, float], letter: str) -> None:
    assert letters([last(trial_of(halved), epsilon=1e-300, **parameters)]) == letter


def test_the_evidence() -> None:
    evidence = evidence_of(last(trial_of(lambda step: START * 0.05**step, range(2))))
    assert (evidence.tensor, evidence.measure, evidence.threshold) == (WEIGHT, "update_ratio", 10)
    assert evidence.value == pytest.approx(19)
    assert evidence.sentence == f"{WEIGHT}: update / weight 19 > 10, since step 0"


def test_the_most_extreme_is_reported_and_too_large_before_too_small() -> None:
    trial = TrialBuilder(num_workers=2)
    for step in range(2):
        for worker, factor in enumerate((0.05, 0.02)):
            tensors = {
                "a.weight": START * 0.06**step,
                "b.weight": START * factor**step,
                "c.weight": START * (1 + 1e-9 * step),
            }
            trial.step(step, tensors, worker=f"worker_{worker}")
    evidence = evidence_of(last(trial))
    assert (evidence.tensor, evidence.worker) == ("b.weight", "worker_1")


@pytest.mark.parametrize(
    ("num_steps", "reference"), [(None, 20), (5, 20), (10, 20), (19, 20), (20, 10), (25, 10)]
)
def test_the_reference_is_the_oldest_step_that_is_not_too_old(
    num_steps: int | None, reference: int
) -> None:
    """Saved at 0, 10, 20, 30: seen from 30."""
    trial = trial_of(lambda step: START * 0.01**step, range(0, 31, 10))
    evidence = evidence_of(last(trial, num_steps=num_steps))
    assert evidence.sentence.endswith(f"since step {reference}")


def test_a_model_none_of_whose_weights_changes_is_an_issue() -> None:
    evidence = evidence_of(last(trial_of(fixed, others={OTHER: lambda _: START * 2})))
    assert evidence.sentence == f"{WEIGHT}: update / weight 0 < 1e-08, since step 1"


def test_updates_that_statistics_prove_healthy_cost_no_read() -> None:
    store = CountingStore()
    trial = TrialBuilder(store)
    rng = np.random.default_rng(0)
    weight = rng.normal(size=1000).astype(np.float32)
    for step in range(4):
        weight = weight + rng.normal(0, 1e-3, 1000).astype(np.float32)
        trial.step(step, {WEIGHT: weight})
    assert letters(trial.outcomes(WeightUpdateRatio())) == "-PPP"
    assert not store.gets("events/")


def test_without_values_only_what_statistics_prove_is_judged() -> None:
    def outcome_of(*values: Any) -> Outcome:
        return last(make_run(*({WEIGHT: value} for value in values), save_values=False))

    outcomes = [outcome_of(START, START * factor) for factor in (1.01, 1, 0.05)]
    assert letters(outcomes) == "P!-"


G, T, E = ModeKeys.GLOBAL, ModeKeys.TRAIN, ModeKeys.EVAL


@table(
    "modes, mode_steps, expected",
    {
        "the first step has no reference": ([T] * 3, [0, 1, 2], "-PP"),
        "a counter that was set back begins anew": ([T] * 4, [5, 6, 0, 1], "-P-P"),
        "training after global steps": ([G, G, T, E, T, G], range(6), "-P-.P."),
    },
)
def test_steps_with_which_a_step_is_compared(
    modes: list[ModeKeys], mode_steps: Iterable[int], expected: str
) -> None:
    trial = TrialBuilder()
    for step, (mode, mode_step) in enumerate(zip(modes, mode_steps, strict=True)):
        trial.step(step, {WEIGHT: by(1.01)(step)}, mode=mode, mode_step=mode_step)
    assert letters(trial.outcomes(WeightUpdateRatio())) == expected


def test_the_memory_of_a_long_distance_is_bounded() -> None:
    trial = trial_of(lambda step: START * (1 + 0.01 * step), range(600))
    evaluation = Evaluation.fresh(WeightUpdateRatio(num_steps=100_000))
    sizes = []
    for view in trial.views():
        assert not isinstance(evaluation.feed(view), IssueFound)
        sizes.append(len(json.dumps(evaluation.memory)))
    assert max(sizes) < 3_000


def test_why_no_weight_can_be_compared() -> None:
    trials = (
        trial_of(lambda step: START * (1.0 if step else np.nan), range(2)),
        trial_of(lambda step: START[step:], range(2)),
        with_maxima(WEIGHT, num_steps=2),
    )
    for trial in trials:
        reason = reason_of(last(trial))
        assert reason.startswith("no weight can be compared with step 0: save their values")


EVERYTHING = UnchangedTensor(tensor_regex=(".*",))
FIXED = np.linspace(-1, 1, 7, dtype=np.float32)


class TestUnchangedTensorContract(RuleContract):
    def make_rule(self) -> Rule:
        return UnchangedTensor(collection_names=("weights", "losses"))

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        return {**tensors, "Net_fc.weight": FIXED, "gradient/Net_fc.weight": FIXED}


def unchanged(steps: Iterable[dict[str, Any]], **options: Any) -> TrialBuilder:
    trial = TrialBuilder()
    for step, tensors in enumerate(steps):
        trial.step(step, tensors, **options)
    return trial


def found(trial: TrialBuilder, rule: UnchangedTensor = EVERYTHING) -> str:
    return letters(trial.outcomes(rule))


def moving(step: int, size: int = 7) -> np.ndarray[Any, Any]:
    return np.random.default_rng(step).normal(size=size).astype(np.float32)


MOVED = [{"a": moving(step)} for step in range(3)]
NEARLY = [{"a": FIXED * np.float32(1 + 1e-6 * step)} for step in range(3)]
TRAINED = [{"Net_a.weight": FIXED, "Net_b.weight": moving(step)} for step in range(3)]
ORIGINAL = [{"a": FIXED, "b": FIXED}] * 3 + [{"c": FIXED}, {"d": FIXED}, {"e": FIXED}]
"""The original's fixture: the tensors after the third step have one value each."""
WITH_NAN = UnchangedTensor(tensor_regex=("a",), equal_nan=True)
OF_WEIGHTS = UnchangedTensor(collection_names=("weights",))


def with_gradients(*names: str) -> list[dict[str, Any]]:
    return [{**tensors, **{f"gradient/{name}": FIXED for name in names}} for tensors in TRAINED]


@table(
    "steps, rule, expected",
    {
        "the original's fixture": (ORIGINAL, EVERYTHING, "--!---"),
        "only the values show the change": (
            [{"a": FIXED}, {"a": FIXED[::-1]}, {"a": FIXED}],
            EVERYTHING,
            "-PP",
        ),
        "within the tolerance": (NEARLY, EVERYTHING, "--!"),
        "NaN is no number": ([{"a": [np.nan, 1.0]}] * 3, EVERYTHING, "-PP"),
        "NaN equals NaN on request": ([{"a": [np.nan, 1.0]}] * 3, WITH_NAN, "--!"),
        "infinity equals itself": ([{"a": [np.inf, 1.0]}] * 3, EVERYTHING, "--!"),
        "another shape is a change": (
            [{"a": np.zeros(4)}, {"a": np.zeros((2, 2))}, {"a": np.zeros(4)}],
            EVERYTHING,
            "-PP",
        ),
        "no elements": ([{"a": np.empty((0, 3))}] * 4, EVERYTHING, "----"),
        "texts": ([{"a": np.array(["a", "b"])}] * 4, EVERYTHING, "----"),
        "no weight has a gradient": (TRAINED, OF_WEIGHTS, "-P!"),
        "frozen": (with_gradients("Net_b.weight"), OF_WEIGHTS, "-PP"),
        "not frozen": (with_gradients("Net_a.weight", "Net_b.weight"), OF_WEIGHTS, "-P!"),
    },
)
def test_what_tensors_give(
    steps: list[dict[str, Any]], rule: UnchangedTensor, expected: str
) -> None:
    assert found(unchanged(steps), rule) == expected


@pytest.mark.parametrize(
    ("steps", "expected"), [([{"a": FIXED}] * 3, "--!"), (MOVED, "-PP"), (NEARLY, "---")]
)
def test_without_values_equal_statistics_count_as_unchanged(
    steps: list[dict[str, Any]], expected: str
) -> None:
    assert found(unchanged(steps, save_values=False)) == expected


def test_the_evidence_of_an_unchanged_tensor() -> None:
    evidence = evidence_of(unchanged(ORIGINAL).outcomes(EVERYTHING)[2])
    assert evidence.tensor == "a"
    assert evidence.sentence == "a: unchanged at the last 3 steps that have it; 1 more like it"
    assert (evidence.measure, evidence.value) == ("unchanged_steps", 3)


def test_steps_need_not_be_consecutive_and_each_tensor_has_its_own() -> None:
    steps = []
    for step in range(41):
        tensors: dict[str, Any] = {"loss": np.float32(step)}
        if step % 20 == 0:
            tensors["w"] = FIXED
        steps.append(tensors)
    assert found(unchanged(steps)) == "-" + "P" * 39 + "!"


@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 1), min_size=1), max_size=14),
    st.integers(2, 4),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_it_finds_what_a_walk_through_all_steps_finds(
    values: list[dict[str, int]], num_steps: int, save_values: bool
) -> None:
    shown = {0: FIXED, 1: FIXED[::-1] * np.float32(1 if save_values else 2)}
    steps = [{name: shown[value] for name, value in saved.items()} for saved in values]
    rule = UnchangedTensor(tensor_regex=(".*",), num_steps=num_steps)
    outcomes = found(unchanged(steps, save_values=save_values), rule)
    for step, saved in enumerate(values):
        last = {name: [v[name] for v in values[: step + 1] if name in v] for name in saved}
        is_issue = any(
            len(seen) >= num_steps and len(set(seen[-num_steps:])) == 1 for seen in last.values()
        )
        assert (outcomes[step] == "!") == is_issue, step


def test_a_change_that_statistics_prove_costs_no_read() -> None:
    store = CountingStore()
    trial = TrialBuilder(store)
    for step in range(5):
        trial.step(step, {"a": moving(step, 1000), "loss": np.float32(step)})
    rule = UnchangedTensor(tensor_regex=("a", "loss"))
    assert found(trial, rule) == "-PPPP"
    assert not store.gets("events/")


def test_steps_of_evaluation_are_ignored() -> None:
    trial = TrialBuilder()
    for step in range(6):
        mode = ModeKeys.EVAL if step in (1, 2, 3) else ModeKeys.TRAIN
        trial.step(step, {"w": FIXED if step < 4 else moving(step)}, mode=mode)
    assert found(trial) == "-...PP"


def test_each_worker_is_judged_by_itself() -> None:
    trial = TrialBuilder(num_workers=2)
    for step in range(3):
        trial.step(step, {"a": moving(step)}, worker="worker_0")
        trial.step(step, {"a": FIXED}, worker="worker_1")
    assert evidence_of(trial.outcomes(EVERYTHING)[2]).worker == "worker_1"


def test_steps_whose_files_are_gone_are_ignored() -> None:
    trial = unchanged([{"a": FIXED}] * 5)
    evaluation = Evaluation.fresh(EVERYTHING)
    for view in trial.views()[:2]:
        evaluation.feed(view)
    trial.store.delete(trial.keys[1])
    assert letters(evaluation.feed(view) for view in trial.views()[1:]) == "--!"


def test_a_damaged_value_is_not_evaluated() -> None:
    trial = unchanged([{"a": FIXED}] * 3)
    key = event_key(2, "worker_0")
    trial.store.put(key, b"\0" * len(trial.store.get(key)))
    assert "events/" in reason_of(trial.outcomes(EVERYTHING)[2])
