from __future__ import annotations

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.configuration.merging import merged
from rule_runtime.engine.findings import finding
from rule_runtime.engine.outcome import Missing
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.selection import is_training, why_not_applicable
from rule_runtime.facts.saved_tensors import finite_means
from rule_runtime.rules.non_finite import ExplodingTensor
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.tensor_rows import worst


def step_of(mode: ModeKeys = ModeKeys.TRAIN) -> StepView:
    trial = TrialBuilder(num_workers=2)
    for worker in ("worker_0", "worker_1"):
        trial.step(7, {"b": [1.0], "a": [2.0, np.nan], "c": [np.inf]}, mode=mode, worker=worker)
    (view,) = trial.views()
    return view


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (ModeKeys.TRAIN, True),
        (ModeKeys.GLOBAL, True),
        (ModeKeys.EVAL, False),
        (ModeKeys.PREDICT, False),
    ],
)
def test_weights_change_in_train_and_where_no_mode_was_set(mode: ModeKeys, expected: bool) -> None:
    assert is_training(step_of(mode)) is expected
    reason = why_not_applicable(create_rule("LearningRateTooLow"), step_of(mode))
    assert reason == ("" if expected else f"in mode {mode.name} no weight changes")
    assert not why_not_applicable(create_rule("NonFinite"), step_of(mode))


def test_steps_outside_the_bounds_are_not_applicable() -> None:
    rule = create_rule("LearningRateTooLow", {"start_step": "8"})
    assert why_not_applicable(rule, step_of()) == "the rule evaluates only steps from 8 on"


@pytest.mark.parametrize(
    ("values", "largest", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], True, ("c", "worker_1")),
        ([1, 2, 3, 4, 5, 6], False, ("b", "worker_0")),
        ([np.nan, 2, np.nan, 4, np.nan, np.nan], False, ("a", "worker_0")),
        ([3, 3, 3, 3, 3, 3], True, ("a", "worker_0")),
        ([3, 0, 3, 3, 0, 3], True, ("b", "worker_0")),
        ([0, 0, -np.inf, 0, 0, -np.inf], False, ("c", "worker_0")),
    ],
)
def test_ties_go_to_the_first_by_name_and_worker(
    values: list[float], largest: bool, expected: tuple[str, str]
) -> None:
    rows = step_of().tensors()
    at = worst(rows, values, largest=largest)
    assert (rows.names[at], rows.workers[at]) == expected


def test_why_no_selected_tensor_is_judged() -> None:
    for rule, reason in (
        (ExplodingTensor(tensor_regex=("^z$",)), "none of the selected tensors was saved: check"),
        (ExplodingTensor(collection_names=("weights",)), "none of the selected tensors was saved"),
    ):
        with pytest.raises(Missing, match=reason):
            rule.evaluated_tensors(step_of())
    assert set(ExplodingTensor().evaluated_tensors(step_of()).names) == {"a", "b", "c"}


def test_no_extreme_of_nothing() -> None:
    rows = step_of().tensors()
    with pytest.raises(ValueError, match="every value is NaN"):
        worst(rows, [np.nan] * 6, largest=True)
    with pytest.raises(ValueError, match="6 rows need as many values"):
        worst(rows, [1.0], largest=True)
    with pytest.raises(ValueError, match="there is none"):
        worst(step_of().tensors(regex=("nothing",)), [], largest=False)


def test_evidence_names_the_row() -> None:
    step = step_of()
    rows = step.tensors()
    at = worst(rows, [1, 9, 1, 1, 1, 1], largest=True)
    rule, measured = ExplodingTensor(), ("l2", 9, 2)
    found = finding(rule, step, (rows, at), measured, "is 9 > 2", remedy="Less.").evidence
    assert (found.step, found.mode, found.worker, found.tensor) == (7, "TRAIN", "worker_0", "a")
    assert (found.measure, found.value, found.threshold) == ("l2", 9.0, 2.0)
    assert (found.sentence, found.remedy) == ("a: is 9 > 2", "Less.")


def test_the_remedy_of_a_finding_is_what_the_rule_says_to_try() -> None:
    step = step_of()
    found = finding(ExplodingTensor(), step, (step.tensors(), 0), ("inf", 1.0, 0.0), "is high")
    assert found.evidence.sentence == f"{step.tensors().names[0]}: is high"
    assert found.evidence.remedy.startswith("Lower the learning rate tenfold")
    assert found.evidence.remedy.endswith("first in the step.")


def test_the_remedy_of_a_derived_rule_is_that_of_its_base() -> None:
    class Derived(ExplodingTensor):
        """Detects the same."""

    step = step_of()
    found = finding(Derived(), step, (step.tensors(), 0), ("inf", 1.0, 0.0), "is high")
    assert found.evidence.remedy.startswith("Lower the learning rate tenfold")


def test_a_mean_beside_elements_that_are_not_finite_counts_as_unknown() -> None:
    rows = step_of().tensors()
    means = dict(zip(rows.names, finite_means(rows), strict=True))
    assert means["b"] == 1.0
    assert np.isnan(means["a"])
    assert np.isnan(means["c"])


@pytest.mark.parametrize(
    ("rule", "more"),
    [
        ("AllZero", {}),
        ("ExplodingTensor", {}),
        ("LossNotDecreasing", {"use_losses_collection": "False"}),
        ("SaturatedActivation", {}),
        ("SimilarAcrossRuns", {"other_trials": "s3://bucket/other"}),
        ("TensorVariance", {"max_threshold": "1"}),
        ("UnchangedTensor", {}),
    ],
)
def test_what_a_rule_judges_is_asked_for(rule: str, more: dict[str, str]) -> None:
    given = {"collection_names": "metrics", "tensor_regex": "relu_\\d$,^my", **more}
    asked = create_rule(rule, given).requires()
    of_name = {config.name: config.parameters for config in merged(asked)}
    assert "metrics" in of_name
    assert of_name[f"{rule}_tensors"]["include_regex"] == "relu_\\d$,^my"
    if more.get("use_losses_collection"):
        assert "losses" not in of_name


def test_overfit_asks_for_the_losses_that_it_judges() -> None:
    (asked,) = create_rule("Overfit", {"tensor_regex": "my_loss"}).requires()
    assert asked.parameters["include_regex"] == "my_loss"
    (asked,) = create_rule("Overfit", {}).requires()
    assert asked.name == "losses"


def test_rows_name_their_extremes() -> None:
    rows = step_of().tensors(regex="^[ab]$")
    assert rows.largest("mean") == ("a", "worker_0", 2.0)
    assert rows.smallest("mean") == ("b", "worker_0", 1.0)
    assert step_of().tensors(collections="weights").largest("mean") is None
    with pytest.raises(ValueError, match="there is no statistic 'norm'"):
        rows.largest("norm")
