"""What the workers of a soak's jobs save at a step; the same each time it is asked for."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hook_layer.capture.captured_step import (
    ArraySnapshot,
    CapturedTensor,
    StepRecord,
    TensorStatistics,
)
from hook_layer.format.modes import ModeKeys
from tests.soak.plan import RunPlan, Sickness, StepPlan

LOSS = "CrossEntropyLoss_output_0"
WEIGHT, GRADIENT = "dense.weight", "gradient/dense.weight"
FALL = 0.97
"""By which factor a healthy loss changes between two saved training steps."""
NUM_SAME = 3

Array = NDArray[np.float32]


def saved_arrays(run: RunPlan, step: StepPlan, worker: int) -> dict[str, Array]:
    """Return the tensors that a worker saves: of a validation step the loss alone.

    Args:
        run: The run.
        step: The step.
        worker: Number of the worker.
    """
    if step.mode is ModeKeys.EVAL:
        return {LOSS: np.float32(1.0 + 1.0 / (step.mode_step + 1)).reshape(())}
    sickness = run.sickness
    if sickness is not None and sickness.worker != worker:
        sickness = None
    drawn_at = step.number
    if _is(sickness, "UnchangedTensor") and sickness is not None:
        drawn_at = min(drawn_at, sickness.number - NUM_SAME + 1)
    weight = _normal(run.run_id, drawn_at, worker, (8, 8))
    gradient = _normal(run.run_id, step.number, worker, (64,))
    falls = step.number
    if sickness is not None and step.number >= sickness.number:
        if sickness.rule == "ExplodingTensor":
            weight[3, 5] = np.nan
        elif sickness.rule == "VanishingGradient":
            gradient *= np.float32(1e-12)
        elif sickness.rule == "LossNotDecreasing":
            falls = sickness.number - 1
    loss = np.float32((2.0 + 0.1 * worker) * FALL**falls).reshape(())
    return {WEIGHT: weight, LOSS: loss, GRADIENT: gradient}


def step_record(run: RunPlan, step: StepPlan, worker: int) -> StepRecord:
    """Return what the hook hands to its writer at a step.

    Args:
        run: The run.
        step: The step.
        worker: Number of the worker.
    """
    record = StepRecord(step.step, step.mode, step.mode_step)
    snapshots = {
        name: ArraySnapshot(array) for name, array in saved_arrays(run, step, worker).items()
    }
    statistics = TensorStatistics(list(snapshots.values()))
    for row, (name, snapshot) in enumerate(snapshots.items()):
        array = snapshot.array()
        tensor = CapturedTensor(
            array.dtype.name, array.shape, raw=snapshot, statistics=statistics, row=row
        )
        record.add({name: tensor})
    return record


def _is(sickness: Sickness | None, rule: str) -> bool:
    return sickness is not None and sickness.rule == rule


def _normal(run_id: str, number: int, worker: int, shape: tuple[int, ...]) -> Array:
    generator = np.random.default_rng(crc32(f"{run_id} {number} {worker}".encode()))
    return generator.standard_normal(shape).astype("f4")
