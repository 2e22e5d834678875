"""Measure how often the diagnosis of a faulty run names the injected fault.

The half `write` of the programs may be looked at to write the table of causes, the half `judge`
measures it. `stalled` is left out: one rule finds it, and its only cause.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.detection.evaluated_runs import RUNS, evaluated_runs
from benchmarks.detection.packs import class_of
from benchmarks.detection.plans import read_frozen
from benchmarks.detection.report import Table, share
from benchmarks.detection.scores import EvaluatedRun
from rule_runtime.diagnosis.diagnosis import diagnose, symptoms_of

__all__ = ["ACCEPTED", "HALVES", "Diagnosed", "diagnosed", "half_of", "main", "tables_of"]

HALVES, _NONE = ("write", "judge"), "none"
ACCEPTED: Final[Mapping[str, tuple[str, ...]]] = {
    # Boosted trees have a cause of their own; both causes advise a lower rate.
    "lr_too_high": ("learning_rate_too_high", "shrinkage_too_weak"),
    "lr_too_low": ("learning_rate_too_low",),
    # Before the loss, a forgotten or second activation is outputs that do not fit it.
    "no_activation": ("missing_activation", "outputs_do_not_fit_the_loss"),
    "double_activation": ("activation_twice", "outputs_do_not_fit_the_loss"),
    # In the last layer, large weights show as a large first loss only.
    "init_too_large": ("initial_scale", "large_initial_loss"),
    "init_constant": ("constant_initial_weights",),
    "dead_relu": ("inactive_relu",),
    "saturated_activation": ("saturated_units",),
    "missing_normalisation": ("inputs_not_scaled",),
    # A loss of the wrong kind is a wrong formula, or one that the outputs and targets do not fit.
    "wrong_loss": ("wrong_loss_formula", "outputs_do_not_fit_the_loss"),
    "labels_shuffled": ("labels_do_not_belong_to_inputs",),
    "labels_constant": ("labels_of_one_class",),
    "class_imbalance": ("rare_classes",),
    # Weight decay makes the steps of trees tiny, or prevents their splits.
    "weight_decay": ("learning_rate_too_low", "trees_without_splits"),
    "without_split": ("trees_without_splits",),
    # A layer is cut off from the loss in some programs, from the optimizer in others.
    "frozen_layer": ("gradient_is_cut", "parameters_not_in_optimizer"),
    "optimiser_missing_parameters": ("parameters_not_in_optimizer",),
    # A state that grows shows in the loss first, or as numbers that are not finite.
    "exploding_rnn": ("diverging", "not_finite"),
    "fp16_overflow": ("not_finite",),
    "data_leak": ("target_leakage",),
    "overfit": ("overfitting",),
}
"""Causes that count as the injected fault."""


class Diagnosed(NamedTuple):
    """A faulty run with a finding: names of its causes, and the cause of its earliest finding."""

    fault: str
    causes: tuple[str, ...]
    of_earliest: str

    def has(self, *causes: str) -> bool:
        """Return whether one of some causes is the injected fault."""
        return not set(causes).isdisjoint(ACCEPTED[self.fault])


def half_of(program: str) -> str:
    """Return to which half a program belongs."""
    return HALVES[hashlib.sha256(program.encode()).digest()[0] % len(HALVES)]


def diagnosed(run: EvaluatedRun) -> Diagnosed | None:
    """Return the causes of a run's findings; None without findings."""
    symptoms = symptoms_of({class_of(key): of.evidence for key, of in run.verdicts.items()})
    if not symptoms:
        return None
    earliest = min(symptoms, key=lambda symptom: symptom.evidence.first_step)
    whole, first = diagnose(symptoms), diagnose([earliest])
    causes = () if whole is None else tuple(one.cause.name for one in whole.explanations)
    return Diagnosed(run.plan.fault, causes, _NONE if first is None else first.first.cause.name)


def tables_of(runs: Sequence[Diagnosed]) -> list[Table]:
    """Return the shares of right causes, and which cause came first for which fault."""
    right = {
        "the first cause is the injected one": sum(run.has(*run.causes[:1]) for run in runs),
        "it is among the three causes": sum(run.has(*run.causes) for run in runs),
        "the cause of the earliest finding alone is": sum(run.has(run.of_earliest) for run in runs),
    }
    rows = [(what, share(number, len(runs))) for what, number in right.items()]
    counts = Counter((run.fault, (*run.causes, _NONE)[0]) for run in runs)
    confused = [
        (fault, cause, "yes" if cause in ACCEPTED[fault] else "NO", str(number))
        for (fault, cause), number in sorted(counts.items())
    ]
    head = "injected fault", "first cause", "right", "runs"
    return [Table("Causes", ("", "runs"), rows), Table("Confusion", head, confused)]


def main(given: Sequence[str] | None = None) -> None:
    """Train, evaluate, diagnose and print."""
    parser = argparse.ArgumentParser("python -m benchmarks.detection.diagnoses")
    parser.add_argument("--half", choices=HALVES, default=HALVES[1], help="default: judge")
    parser.add_argument("--program", action="append", help="only this program")
    parser.add_argument("--fault", action="append", choices=ACCEPTED, help="only this fault")
    parser.add_argument("--folder", type=Path, default=RUNS, help="cache of runs")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    chosen = parser.parse_args(given)
    plans = [
        plan
        for plan in read_frozen()
        if plan.fault in (chosen.fault or ACCEPTED) and half_of(plan.program) == chosen.half
        if plan.program in (chosen.program or [plan.program])
    ]
    runs = evaluated_runs(plans, chosen.folder, jobs=chosen.jobs, only_packs=("recommended",))
    found = [one for run in runs if (one := diagnosed(run)) is not None]
    print(f"half {chosen.half}: {len(runs)} runs with one fault, {len(found)} with a finding\n")
    print("\n".join(table.as_text() for table in tables_of(found)))


if __name__ == "__main__":
    main()
