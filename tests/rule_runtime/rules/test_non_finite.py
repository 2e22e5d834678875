from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.collections_file import CollectionEntry, CollectionsFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import collections_key
from rule_runtime.engine.outcome import IssueFound, Outcome, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.non_finite import ExplodingTensor, NonFinite
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors
from tests.rule_runtime.outcomes import evidence_of, letters, make_run
from tests.tables import table

EVAL, TRAIN = ModeKeys.EVAL, ModeKeys.TRAIN
STEP = {  # in the order in which the hook captures
    "Net_a.weight": np.ones((2, 3)),
    "Net_a.bias": np.ones(2),
    "a_input_0": np.ones((4, 3)),
    "a_output_0": np.ones((4, 2)),
    "b_output_0": np.ones((4, 2)),
    "CrossEntropyLoss_output_0": np.float32(1.0),
    "gradient/Net_b.weight": np.ones((2, 3)),
    "gradient/Net_a.weight": np.ones((2, 3)),
}


class TestNonFiniteContract(RuleContract):
    def make_rule(self) -> Rule:
        return NonFinite()

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        # One tensor only: of several the first in the order of the index is reported.
        return {**tensors, "Net_fc.weight": np.array([1.0, np.nan])}


def outcome_of(bad: dict[str, object], **options: Any) -> Outcome:
    trial = TrialBuilder()
    trial.step(3, {**STEP, **bad}, **options)
    (outcome,) = trial.outcomes(NonFinite())
    return outcome


def first_of(*names: str, value: float = np.nan) -> str:
    evidence = evidence_of(outcome_of({name: np.array([1.0, value]) for name in names}))
    return evidence.tensor


def test_the_first_in_the_order_of_execution_is_named() -> None:
    order = list(STEP)
    for at, name in enumerate(order):
        assert first_of(*order[at:]) == name
    assert first_of("gradient/Net_a.weight", "gradient/Net_b.weight") == "gradient/Net_b.weight"


def test_a_loss_comes_before_gradients_and_after_outputs_whatever_the_index_says() -> None:
    trial = TrialBuilder()
    names = ("gradient/Net_b.weight", "CrossEntropyLoss_output_0", "b_output_0")
    trial.step(0, {name: [np.nan] for name in names})
    assert evidence_of(*trial.outcomes(NonFinite())).tensor == "b_output_0"


def test_the_evidence_counts_and_advises() -> None:
    evidence = evidence_of(outcome_of({"gradient/Net_b.weight": [1.0, np.nan, np.nan]}))
    assert (evidence.measure, evidence.value, evidence.threshold) == ("nan", 2.0, 0.0)
    assert evidence.sentence == "gradient/Net_b.weight: 2 of 3 elements are NaN"
    assert evidence.remedy.startswith("The forward pass is finite")
    evidence = evidence_of(
        outcome_of({"Net_a.bias": [np.inf], "CrossEntropyLoss_output_0": [np.nan]})
    )
    message = "Net_a.bias: 1 of 1 elements are infinite; it is the first of 2 such tensors"
    assert evidence.sentence == message


def test_the_remedy_is_that_of_the_group() -> None:
    evidence = evidence_of(outcome_of({"Net_a.bias": [np.nan, 1.0]}))
    assert evidence.remedy.startswith("An update before this step broke it")


LOSS, NAN_LOSS = "CrossEntropyLoss_output_0", {"CrossEntropyLoss_output_0": np.float32(np.nan)}
MASKED = {"a_input_0": [np.nan, 0.0], "CrossEntropyLoss_input_1": [np.nan, 1.0]}
NAN = [np.nan, 1.0]
SKIPPED = {"Loss_output_0": np.float32(np.inf)}


IGNORED = {
    "CrossEntropyLoss_input_0": np.ones((8, 3)),
    "CrossEntropyLoss_input_1": np.full(8, -100),
}


@table(
    "tensors, is_named",
    {
        "a mean of no target": (IGNORED | NAN_LOSS, True),
        "a model that returns it": ({"Net_output_0": [np.nan]} | IGNORED | NAN_LOSS, True),
        "some targets count": (
            IGNORED | NAN_LOSS | {"CrossEntropyLoss_input_1": np.arange(8) % 3 - 1},
            False,
        ),
        "parameters are the cause": ({"Net_a.bias": [np.nan]} | IGNORED | NAN_LOSS, False),
        "the loss is finite": ({"a_output_0": [np.nan], LOSS: np.float32(0)} | IGNORED, False),
    },
)
def test_a_loss_that_ignores_all_targets(tensors: dict[str, Any], is_named: bool) -> None:
    evidence = evidence_of(outcome_of(tensors))
    message = "all targets of CrossEntropyLoss_output_0 are negative, so it ignores them"
    assert (message in evidence.sentence) is is_named
    assert evidence.remedy.startswith("Check how labels and padding are made") is is_named


@table(
    "tensors, mode, letter",
    {
        "finite": (STEP, TRAIN, "P"),
        "finite in evaluation": (STEP, EVAL, "P"),
        "a loss in evaluation": (STEP | NAN_LOSS, EVAL, "!"),
        "a mask of infinite inputs": (STEP | {"a_input_0": [np.inf, 0.0]}, TRAIN, "P"),
        "a mask of the other sign": (STEP | {"a_input_0": [-np.inf, 0.0]}, TRAIN, "P"),
        "an output that is NaN": (STEP | {"a_output_0": [np.nan, 0.0]}, TRAIN, "!"),
        "an infinite gradient": (STEP | {"gradient/Net_a.weight": [-np.inf, 1.0]}, TRAIN, "!"),
        "masked inputs and targets": (STEP | MASKED, TRAIN, "P"),
        "masked inputs, and the loss is NaN": (STEP | MASKED | NAN_LOSS, TRAIN, "!"),
        "masked inputs without a loss": (MASKED, TRAIN, "!"),
        "tables and labels": ({"trees/Split": [np.nan, 1.0], "labels": [np.nan]}, TRAIN, "-"),
        "one of several losses, which was skipped": (STEP | SKIPPED, TRAIN, "P"),
        # Nothing says that it was skipped without gradients, or if no other loss is finite.
        "one of several losses without gradients": (
            {LOSS: np.float32(1.0), **SKIPPED},
            TRAIN,
            "!",
        ),
        "the only loss": (STEP | {LOSS: np.float32(np.inf)}, TRAIN, "!"),
    },
)
def test_what_a_step_gives(tensors: dict[str, Any], mode: ModeKeys, letter: str) -> None:
    assert letters(make_run(tensors, mode=mode).outcomes(NonFinite())) == letter


@table(
    "bad, measure",
    {
        "the input of the model": (("Net_input_0", "a_input_0", "a_output_0"), "nan_in_inputs"),
        "the targets": (("a_input_0", "MSELoss_input_1"), "nan_in_inputs"),
        "outputs alone": (("a_output_0", "MSELoss_input_0"), "nan"),
        "an output before": (("a_output_0", "b_output_0", "Net_input_0"), "nan"),
    },
)
def test_data_that_is_not_finite_is_named(bad: tuple[str, ...], measure: str) -> None:
    nan = np.array([1.0, np.nan])
    loss = {"CrossEntropyLoss_output_0": np.float32(np.nan)}
    others = {name: nan for name in bad if name not in STEP}
    evidence = evidence_of(outcome_of({**dict.fromkeys(bad, nan), **others, **loss}))
    assert evidence.measure == measure


@pytest.mark.parametrize(("grown", "is_named"), [(99.0, False), (101.0, True)])
def test_an_update_that_was_too_large_is_named(grown: float, is_named: bool) -> None:
    trial = TrialBuilder()
    trial.collections(weights=("weight$",))
    trial.step(0, STEP)
    bad = {"Net_a.weight": grown * np.ones((2, 3)), "CrossEntropyLoss_output_0": np.float32(np.nan)}
    trial.step(1, {**STEP, **bad})
    evidence = evidence_of(trial.outcomes(NonFinite())[-1])
    assert (evidence.measure == "growth") is is_named
    assert ("the largest weight grew 1e+02 times" in evidence.sentence) is is_named


@pytest.mark.parametrize(
    ("bad", "of", "number", "said", "remedy"),
    [
        ("Loss_output_0", "value", 0, "log is the first operation", "The outputs are finite"),
        ("Loss_input_0", "value", 0, "log is the first operation", "The outputs are finite"),
        ("gradient/Net_a.weight", "gradient", 1, "sqrt is the last operation", "The forward pass"),
        ("Loss_output_0", "value", -1, "", "The outputs are finite"),
        ("b_output_0", "value", 0, "", "Check this layer"),
    ],
)
def test_the_operation_of_a_loss_is_named(
    bad: str, of: str, number: int, said: str, remedy: str
) -> None:
    trial = TrialBuilder()
    operations = {"0": "log at train.py:9", "1": "sqrt"}
    collections = {
        name: CollectionEntry(name, (regex,))
        for name, regex in (("losses", "Loss_output"), ("gradients", "^gradient/"))
    }
    file = CollectionsFile(collections, script_lines={"operations": operations})
    trial.store.put(collections_key("worker_0"), file.encode())
    tensors = {bad: [np.nan], f"Loss_not_finite/{of}_0": np.float32(number)}
    trial.step(0, tensors)
    evidence = evidence_of(*trial.outcomes(NonFinite()))
    assert said in evidence.sentence
    assert bool(said) == ("operation" in evidence.sentence)
    assert evidence.remedy.startswith(remedy)
    assert (evidence.lines or {}).get("tensor", "") == ("train.py:9" if "log" in said else "")


def test_of_equal_places_the_first_worker_is_reported() -> None:
    trial = TrialBuilder(num_workers=2)
    for worker in ("worker_1", "worker_0"):
        trial.step(0, {"a_output_0": [np.nan]}, worker=worker)
    assert evidence_of(*trial.outcomes(NonFinite())).worker == "worker_0"


def skipping(num_steps: int, since: float | None) -> TrialBuilder:
    """Return a run whose gradients are not finite, with backward passes since the last update."""
    counted = {} if since is None else {"optimizer_steps/backward_passes_since": np.float32(since)}
    return make_run(
        *({**STEP, "gradient/Net_a.weight": [np.nan], **counted} for _ in range(num_steps))
    )


@pytest.mark.parametrize(
    ("since", "finds"), [(None, True), (0, True), (1, False), (19, False), (20, True)]
)
def test_gradients_that_no_optimizer_used_count_once_many_steps_were_skipped(
    since: float | None, finds: bool
) -> None:
    (outcome,) = skipping(1, since).outcomes(NonFinite())
    assert isinstance(outcome, IssueFound) is finds
    if since and finds:
        assert "20 steps in a row were skipped" in outcome.evidence.sentence


class TestExplodingTensorContract(RuleContract):
    def make_rule(self) -> ExplodingTensor:
        return ExplodingTensor()


def outcomes_of(rule: ExplodingTensor, *steps: dict[str, object]) -> list[Outcome]:
    return make_run(*steps).outcomes(rule)


HEALTHY, SICK = {"a": [1.0, 2.0]}, {"a": [1.0, np.nan]}
OF_GROUPS = {"relu_1": [1.0], "fc.weight": [1.0], "input": [np.nan]}
SELECTED = {"collection_names": ("weights",), "tensor_regex": ("^relu",)}


@table(
    "steps, parameters, expected",
    {
        "the original's test of 2019": ([SICK, HEALTHY, SICK], {}, "!P!"),
        "huge values": ([{"a": [1e308, -1e308]}], {}, "P"),
        "other types": ([{"i": np.arange(3), "b": np.array([True]), "e": np.empty(0)}], {}, "P"),
        "infinite elements": ([{"a": [np.inf]}], {"only_nan": True}, "P"),
        "NaN beside infinite elements": ([{"a": [np.inf, np.nan]}], {"only_nan": True}, "!"),
        "a tensor that is not selected": ([OF_GROUPS, {"input": [np.nan]}], SELECTED, "P-"),
        "a tensor of the collection": ([OF_GROUPS | {"fc.weight": [np.nan]}], SELECTED, "!"),
        "a tensor by its name": ([OF_GROUPS | {"relu_1": [np.nan]}], SELECTED, "!"),
    },
)
def test_what_steps_give(
    steps: list[dict[str, object]], parameters: dict[str, Any], expected: str
) -> None:
    assert letters(outcomes_of(ExplodingTensor(**parameters), *steps)) == expected


def test_only_nan_is_counted_if_only_nan_counts() -> None:
    evidence = evidence_of(*outcomes_of(ExplodingTensor(only_nan=True), {"a": [np.inf, np.nan]}))
    assert (evidence.measure, evidence.value) == ("nan", 1)


def test_the_largest_share_of_bad_elements_is_the_evidence() -> None:
    evidence = evidence_of(
        *outcomes_of(
            ExplodingTensor(), {"a": [1.0, 2.0, np.nan], "b": [np.inf, -np.inf, 0.0], "c": [1e300]}
        )
    )
    assert (evidence.tensor, evidence.measure, evidence.value) == ("b", "inf", 2)
    assert evidence.sentence == "b: 2 of 3 elements are infinite"


@pytest.mark.parametrize(
    ("name", "value", "measure"),
    [("mean", np.nan, "nan"), ("abs_mean", np.inf, "inf"), ("max", np.inf, "inf")],
)
def test_a_stored_reduction_shows_a_bad_element(name: str, value: float, measure: str) -> None:
    trial = TrialBuilder(run=None)
    trial.step(0, {f"smdebug/reductions/{name}/w": np.float32([value])})
    trial.step(1, {f"smdebug/reductions/{name}/w": np.float32([1.0])})
    issue, passed = trial.outcomes(ExplodingTensor())
    assert isinstance(issue, IssueFound)
    assert (issue.evidence.tensor, issue.evidence.measure) == ("w", measure)
    assert isinstance(passed, Passed)


def test_the_tables_of_boosted_trees_have_nan_for_what_a_leaf_lacks() -> None:
    trees = {"trees/Split": [1.5, np.nan, np.nan], "metrics/train-rmse": [0.5]}
    assert outcomes_of(ExplodingTensor(), trees) == [Passed()]
    (chosen,) = outcomes_of(ExplodingTensor(tensor_regex="Split"), trees)
    assert isinstance(chosen, IssueFound)
    evidence = evidence_of(
        *outcomes_of(ExplodingTensor(), {**trees, "metrics/train-rmse": [np.nan]})
    )
    assert evidence.tensor == "metrics/train-rmse"


MASK = "inf_of_mask"


@table(
    "tensors, name, measure",
    {
        "a mask that the layer gets": (
            {"b_input_1": [np.inf, 0.0], "b_output_0": NAN},
            "b_input_1",
            MASK,
        ),
        "a function in the layer": (
            {"b.drop_input_0": NAN, "b.drop_output_0": NAN, "b_input_1": [-np.inf, 0.0]},
            "b_input_1",
            MASK,
        ),
        "a function in the model": (
            {"b_input_0": NAN, "Net_input_1": [np.inf]},
            "Net_input_1",
            MASK,
        ),
        "a mask of another layer": (
            {"a_input_1": [np.inf], "b_output_0": NAN},
            "b_output_0",
            "nan",
        ),
        "another input than a mask": (
            {"b_input_1": [np.inf, 0.3, -1.2], "b_output_0": NAN},
            "b_output_0",
            "nan",
        ),
        "an overflow in the model": (
            {"b_input_0": [np.inf, 1.0], "b_output_0": NAN},
            "b_output_0",
            "nan",
        ),
        "infinite data": (
            {"Net_input_0": [np.inf, 1.0], "b_input_0": [np.inf], "b_output_0": [np.nan] * 2},
            "Net_input_0",
            "inf_in_inputs",
        ),
        "an infinite input of a loss": (
            {"b_input_0": NAN, "CrossEntropyLoss_input_0": [np.inf]},
            "b_input_0",
            "nan",
        ),
        "a parameter": (
            {"Net_b.weight": NAN, "b_input_1": [np.inf], "b_output_0": NAN},
            "Net_b.weight",
            "nan",
        ),
    },
)
def test_an_infinite_input_is_named_if_it_is_a_mask_or_data(
    tensors: dict[str, Any], name: str, measure: str
) -> None:
    evidence = evidence_of(outcome_of(tensors | NAN_LOSS))
    assert (evidence.tensor, evidence.measure, evidence.value) == (name, measure, 1)
    assert evidence.remedy.startswith("A mask of attention") is (measure == MASK)
    assert evidence.remedy.startswith("Look for missing values") is (measure == "inf_in_inputs")
    assert ("infinite, of b" in evidence.sentence) is (measure != "nan")
