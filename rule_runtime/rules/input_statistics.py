"""InputStatistics: inputs of a model that were not scaled, or do not vary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.evaluation.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.evaluation.selection import evidence, is_training, worst
from rule_runtime.numerics.row_memory import RowMemory, row_keys

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["InputStatistics"]

_FLOATS: Final = ("float", "bfloat")
_REMEDY: Final = (
    "Scale each input to mean 0 and variance 1 with numbers of the training data, or divide pixels "
    "by 255; look at a batch of what the data loader returns."
)


class InputStatistics(Rule):
    """Finds inputs of a model that are not scaled, or are the same throughout.

    What it detects:
        Inputs whose root mean square lies far from 1, or whose elements are all equal.

    Why it matters:
        Initialisations and learning rates are made for inputs of about 1: larger ones saturate
        units and let the loss explode, smaller ones stop the gradients. Constant ones say nothing.

    How it decides:
        Inputs of the registered model, `{model}_input_{i}`, are judged at training steps if they
        are floating-point numbers with at least two dimensions; numbers of words, masks and lengths
        are not. It fires if sqrt(mean^2 + std^2) of the finite elements is more than `max_rms` or
        less than `min_rms`, or the standard deviation is 0, at `patience` saved steps in a row.
        The model is recognised by its parameters, `{model}_...`.

    Parameters:
        max_rms: Largest root mean square.
        min_rms: Smallest root mean square.
        patience: Saved steps in a row.

    What to try:
        Scale inputs with mean and standard deviation of the training data; a normalisation layer
        at the beginning.

    Known false alarms:
        Models that begin with a normalisation of their own.

    Source:
        Stepwatch; UMLAUT (2021) and TheDeepChecker (2022) look at the range of inputs.
    """

    max_rms: Annotated[float, GreaterThan(0), Unit("root mean square")] = 5.0
    min_rms: Annotated[float, AtLeast(0), Unit("root mean square")] = 1e-3
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = (
        CollectionConfig(
            "model_inputs", {"include_regex": "_input_[0-9]+$", "save_interval": "10"}
        ),
        CollectionConfig("weights", {"save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Look at the model's inputs.

        Args:
            step: What was saved at the step.
            memory: `rows`: for how many saved steps each of at most 2,048 inputs was bad.
        """
        if not is_training(step):
            return NotEvaluated(f"steps of mode {step.mode.name} are not judged")
        rows = step.tensors(regex=(r"_input_\d+$",))
        mean, std, size = (rows.column(name) for name in ("mean", "std", "size"))
        is_judged = _of_models(step, rows) & ~np.isnan(std) & (size > 1)
        if not is_judged.any():
            return NotEvaluated("no input of the model, of floating-point numbers, was saved")
        rms = np.sqrt(mean**2 + std**2)
        with np.errstate(invalid="ignore"):
            bad = is_judged & ((rms > self.max_rms) | (rms < self.min_rms) | (std == 0))
        streaks_of = RowMemory(memory.get("rows", ""))
        keys = row_keys(rows.names, rows.workers)
        streaks = streaks_of.update(keys, np.zeros(len(keys), np.uint32), bad)
        memory["rows"] = streaks_of.to_json()
        found = streaks >= self.patience
        if not found.any():
            return Passed()
        with np.errstate(divide="ignore"):
            at = worst(rows, np.where(found, np.abs(np.log(rms)), np.nan), largest=True)
        limit = self.max_rms if rms[at] > self.max_rms else self.min_rms
        told = f"has a root mean square of {rms[at]:.3g}, and should be between {self.min_rms:g} "
        told += f"and {self.max_rms:g}"
        if std[at] == 0:
            told = f"is {mean[at]:.3g} in all {int(size[at])} elements"
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="rms",
                value=float(rms[at]),
                threshold=limit,
                told=told,
                remedy=_REMEDY,
            )
        )


def _of_models(step: StepView, rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] are inputs of a registered model, and real numbers."""
    weights = step.tensors(collections=("weights",)).names
    names = [name.rpartition("_input_")[0] for name in rows.names]
    is_model = {name: any(weight.startswith(f"{name}_") for weight in weights) for name in names}
    shapes, dtypes = rows.shapes, rows.dtypes
    return np.array(
        [
            is_model[name] and (dtypes[at] or "").startswith(_FLOATS) and len(shapes[at] or ()) >= 2  # noqa: PLR2004 - rows and columns
            for at, name in enumerate(names)
        ],
        dtype=bool,
    )
