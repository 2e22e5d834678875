"""What RESULTS.md says: how the runs came about, what was left out, and the tables."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from benchmarks.detection.faults import BY_CONSTRUCTION, FAULTS
from benchmarks.detection.fitting import FITTING
from benchmarks.detection.program import HALVES, load_program, program_names
from benchmarks.detection.report import Packs, Table, summary, tables
from benchmarks.detection.scores import HARM, Judged

__all__ = ["results"]

_LIBRARIES: Final = ("torch", "xgboost-cpu", "scikit-learn", "numpy")
_TITLES: Final = {"held_out": "Held-out programs", "calibration": "Calibration programs"}

_HEAD: Final = """# How well the rules find faults

Written by `python -m benchmarks.detection --write`; do not edit. {versions}.

Small programs are trained with the real hooks, healthy and with one injected fault of known kind.
Every rule of the packs `original` (the rules of Amazon SageMaker Debugger that need no argument,
at their published defaults) and `recommended` then judges the stored files, step by step. The
programs are split in two halves. Thresholds and rules of `recommended` were chosen on the
calibration half only; the other one, *held-out*, is what the numbers are to be read from.

* **Found** means: a rule that *fits* the fault had a finding. Which rule fits which fault is fixed
  in `fitting.py`, which was committed before a rule judged a held-out program. Until then held-out
  programs were trained only to see that healthy ones learn and that faults harm. Findings of other
  rules do not count.
* **A false alarm** is any finding in a healthy run, of any rule of the pack, at any of its steps;
  it **stops** the run if the pack says that this rule's findings are reason enough.
* **Steps** are global steps, of training and validation together, at which the rule had its first
  finding; for XGBoost rounds.
* **Harm**: a fault counts only if it does harm: the median validation error with it is above that
  of every healthy run of the program, and at least {harm:g} times their median. The error at the
  end says nothing of {by_construction}; the table of faults tells why these harm.
* A **stalled** run hangs after 60 % of its steps; rules are told of 2 hours of silence.
"""

_LIMITS: Final = """## What this does not show

* Programs train 40 to 400 steps, on one thread, with some thousand weights; the hook saves every 2
  to 10 steps, the same tensors for both packs. Long runs of large models give rules more steps at
  which to be wrong.
* Faults are injected one at a time, and most are gross. Faults that no rule knows of (wrong
  augmentation, a wrong split) are not in the corpus.
* The seeds of a program differ in initial weights and order of batches only, so its runs are much
  alike: the number of programs, not of runs, says how far results carry.
* Rules, programs and faults were written in the same project, and what rules look for was known
  when the held-out programs were written. The kinds of faults are the same in both halves.

## What was left out

* Pairs of program and fault that did no clear harm when they were tried: softmax ahead of the loss
  in `digits_cnn`, all parameters zero in `cancer_mlp`.
* A data leak in a neural network, a healthy program that is trained on several workers, and fp16 on
  a GPU: overflow is that of `torch.autocast` on the CPU with a fixed loss scale.
"""


def results(runs: Sequence[Judged], packs: Packs) -> str:
    """Return the text of the file.

    Args:
        runs: All runs.
        packs: Keys of the rules of each pack.
    """
    versions = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    head = _HEAD.format(
        versions=f"Python {platform.python_version()}, {versions}",
        harm=HARM,
        by_construction=" and ".join(f"`{fault}`" for fault in BY_CONSTRUCTION),
    )
    parts = [head]
    halves = {half: [run for run in runs if run.plan.half == half] for half in reversed(HALVES)}
    for half, own in halves.items():
        parts.append(summary(own, packs, _TITLES[half]).as_markdown())
    parts += [_LIMITS, "## Programs and faults\n", _kinds().as_markdown()]
    parts += [_programs(half, own).as_markdown() for half, own in halves.items()]
    for half, own in halves.items():
        parts.append(f"## {_TITLES[half]}\n")
        parts += [table.as_markdown() for table in tables(own, packs)]
    return "\n".join(parts)


def _kinds() -> Table:
    rows = []
    for fault, told in FAULTS.items():
        why = BY_CONSTRUCTION.get(fault)
        shown = f"{told} (harms by construction: {why})" if why else told
        rows.append((fault, shown, ", ".join(FITTING[fault])))
    return Table("Faults, and the rules that fit them", ("fault", "what is wrong", "fit"), rows)


def _programs(half: str, runs: Sequence[Judged]) -> Table:
    rows = []
    for name in program_names(half):
        program = load_program(half, name)
        own = [run.plan.is_healthy for run in runs if run.plan.program == name]
        faults = "; ".join(f"{fault}: {told}" for fault, told in program.faults.items())
        seeds = f"{sum(own)} + {len(own) - sum(own)}"
        rows.append((name, program.model, program.data, program.measure, seeds, faults))
    head = ("program", "model", "data", "error", "healthy + faulty runs", "faults")
    return Table(_TITLES[half], head, rows)
