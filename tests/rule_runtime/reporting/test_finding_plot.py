"""The picture of a finding shows what its sentence says, for every rule there is."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from hook_layer.storage.memory import MemoryStore
from rule_runtime.engine.outcome import Evidence, IssueFound
from rule_runtime.reporting.finding_measures import LOSS, MEASURES, Agreement
from rule_runtime.reporting.finding_plot import FindingPlot, finding_plot
from rule_runtime.reporting.html_report import report_of_store
from rule_runtime.reporting.job_verdicts import verdicts_of
from rule_runtime.reporting.run_reader import read_run
from rule_runtime.rules.learning_rate_too_high import LearningRateTooHigh
from rule_runtime.rules.missing_gradient import MissingGradient
from rule_runtime.testing import TrialBuilder
from tools.golden_memories import RULES, contract_of

NOT_DRAWN = {
    "abs_mean_of_channel", "distinct_labels", "gradients_left", "imbalance",
    "layers_without_activation",
    "max_difference", "max_off_diag", "percentile_range", "relative_difference",
    "saturated_units_percent", "seconds_without_output", "token_percent", "tree_depth",
}  # fmt: skip
"""Measures of which neither statistics nor a value of one tensor tell anything."""


def finding_of(name: str) -> tuple[MemoryStore, Evidence]:
    """Return the sick trial of a rule, as its contract has it, and what the rule finds in it."""
    contract = contract_of(name)
    built = contract.build(contract.make_sick_steps, num_workers=max(2, contract.least_workers))
    found = [each for each in contract._outcomes(built) if isinstance(each, IssueFound)]
    assert isinstance(built.store, MemoryStore)
    return built.store, found[0].evidence


def plot_of(store: MemoryStore, evidence: Evidence) -> FindingPlot | None:
    return finding_plot(read_run(store, [evidence]).history, evidence)


@pytest.mark.parametrize("name", RULES)
def test_the_picture_of_each_rule_shows_its_measure_or_says_how_it_differs(name: str) -> None:
    store, evidence = finding_of(name)
    plot = plot_of(store, evidence)
    if plot is None:
        assert evidence.measure in NOT_DRAWN
        return
    assert evidence.measure not in NOT_DRAWN
    assert plot.measure == evidence.measure
    assert plot.at == evidence.step
    line = plot.lines[0]
    at = dict(zip(line.steps, line.numbers, strict=True)).get(evidence.step, math.nan)
    agreement = MEASURES.get(evidence.measure, LOSS).agreement
    if agreement is Agreement.SAME:
        assert plot.threshold == evidence.threshold
        assert at == pytest.approx(evidence.value, rel=1e-3)
    elif agreement is Agreement.SIDE:
        assert plot.threshold == evidence.threshold
        assert at is not None
        assert (at > plot.threshold) == (evidence.value > evidence.threshold)
        assert re.search("The rule compares|As far as|Computed from", plot.caption)
    else:
        assert plot.threshold is None
        assert agreement is Agreement.NONE or at == 0
        assert "The rule" in plot.caption or "the rule" in plot.caption
    assert plot.caption.startswith(plot.what[0].upper() + plot.what[1:])
    assert plot.unit in plot.caption


def test_a_gradient_that_vanished_is_drawn_and_not_its_weight() -> None:
    builder = TrialBuilder(MemoryStore())
    builder.collections(weights=("^[ab].weight",), gradients=("^gradient",))
    for step in range(30):
        builder.step(
            step,
            {
                "a.weight": np.full(4, 1.0 + step, np.float32),
                "b.weight": np.full(4, 1.0 + step, np.float32),
                "gradient/a.weight": np.full(4, 0.0 if step > 9 else 1.0, np.float32),
                "gradient/b.weight": np.full(4, 0.1, np.float32),
            },
        )
    state = builder.evaluate(MissingGradient(absent_percent=0.0))
    assert state.evidence is not None
    plot = plot_of(builder.store, state.evidence)  # it is of the memory
    assert plot is not None
    assert plot.lines[0].name == "gradient/a.weight"
    numbers = dict(zip(plot.lines[0].steps, plot.lines[0].numbers, strict=True))
    assert [numbers[step] for step in (0, 9, 10, 19)] == [2.0, 2.0, 0.0, 0.0]
    assert plot.caption == (
        "L2 norm: gradient/a.weight. The rule counts the saved steps at which it is zero."
    )


def test_no_picture_is_drawn_of_a_gradient_that_was_never_saved() -> None:
    store, evidence = finding_of("MissingGradient")
    for key in list(store.list()):
        if key.startswith("index/"):
            store.delete(key)
    assert plot_of(store, evidence) is None


def test_no_picture_is_drawn_of_values_that_are_gone(caplog: pytest.LogCaptureFixture) -> None:
    store, evidence = finding_of("DeadRelu")
    assert plot_of(store, evidence) is not None
    for key in list(store.list("events/")):
        store.delete(key)
    assert plot_of(store, evidence) is None
    assert "cannot be read" in caplog.text


def test_steps_too_large_are_drawn_as_changes_with_the_threshold() -> None:
    builder = TrialBuilder(MemoryStore())
    builder.collections(weights=("weight$",))
    rng = np.random.default_rng(0)
    for step in range(12):
        scale = 1.0 if step < 6 else 1.0 + 0.9 * (step - 5)
        weight = (rng.normal(size=8) * 0.01 + scale).astype(np.float32)
        builder.step(step, {"a.weight": weight, "loss": np.float32(1.0)})
    state = builder.evaluate(LearningRateTooHigh())
    assert state.evidence is not None
    plot = plot_of(builder.store, state.evidence)  # it is of the memory
    assert plot is not None
    assert plot.threshold == state.evidence.threshold
    numbers = dict(zip(plot.lines[0].steps, plot.lines[0].numbers, strict=True))
    assert 0 not in numbers  # there is nothing to compare it with
    assert all((numbers[step] or 0) < plot.threshold for step in range(1, 6))
    assert (numbers[state.evidence.step] or 0) > plot.threshold


def test_a_measure_of_a_rule_of_ones_own_is_drawn_where_it_is_the_value() -> None:
    builder = TrialBuilder(MemoryStore())
    for step in range(5):
        builder.step(step, {"loss": np.float32(step), "w": np.ones(3, np.float32)})
    found = Evidence(
        step=3, mode="TRAIN", worker="worker_0", tensor="loss", measure="my_number", value=3.0,
        threshold=2.5, sentence="loss: 3 > 2.5", remedy="none",
    )  # fmt: skip
    store = builder.store
    assert isinstance(store, MemoryStore)
    plot = plot_of(store, found)
    assert plot is not None
    assert plot.threshold == 2.5
    other = Evidence(**{**found.to_json(), "value": 70.0})
    plot = plot_of(store, other)
    assert plot is not None
    assert plot.threshold is None
    assert "The rule evaluates my number, which is not plotted." in plot.caption
    assert plot_of(store, Evidence(**{**found.to_json(), "tensor": "w"})) is None


def test_no_threshold_is_drawn_where_a_rule_compares_another_number_than_the_value() -> None:
    builder = TrialBuilder(MemoryStore())
    for step in range(5):
        builder.step(step, {"loss": np.float32(step)})
    mean = Evidence(
        step=3, mode="TRAIN", worker="worker_0", tensor="loss", measure="loss", value=2.0,
        threshold=1.5, sentence="loss: its mean is 2, more than 1.5", remedy="none",
    )  # fmt: skip
    plot = plot_of(builder.store, mean)  # it is of the memory
    assert plot is not None
    assert plot.threshold is None
    assert "another number, such as a mean; its threshold does not apply" in plot.caption


def test_validation_is_drawn_beside_training() -> None:
    store, evidence = finding_of("GeneralisationGap")
    plot = plot_of(store, evidence)
    assert plot is not None
    assert [line.name.rpartition(" ")[2] for line in plot.lines] == ["(EVAL)", "(TRAIN)"]


def test_the_page_has_the_caption_and_the_numbers_have_the_unit() -> None:
    store, evidence = finding_of("NonFinite")
    verdict = {
        "RuleConfigurationName": "NonFinite", "RuleEvaluationStatus": "IssuesFound",
        "StatusDetails": "found", "Evidence": evidence.to_json(),
    }  # fmt: skip
    report = report_of_store(store, verdicts_of([verdict]))
    assert "<figcaption" in report.html
    assert "Number of NaN, elements: Net_fc.weight" in report.html
    assert report.numbers["verdicts"][0]["Plot"]["unit"] == "elements"
