"""Scores of classes that were read in another order than the model wrote them.

`scores.view(B, C, T)` instead of `scores.transpose(1, 2)` fails nowhere: what the loss takes for
the scores of one place are scores of several classes at several places. Only values tell, which
are saved seldom.

Shape legend: B = rows, T = places of a row, C = classes, N = places of all rows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.facts.loss_inputs import LossInputs
from rule_runtime.facts.loss_mismatch import LossMismatch
from rule_runtime.facts.loss_values import outputs_and_targets

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["MODEL_OUTPUT_VALUES", "scrambled_scores_of"]

MODEL_OUTPUT_VALUES: Final = CollectionConfig(
    "model_output_values",
    {
        "save_interval": "100",
        "end_step": "301",
        "save_raw_tensor": "True",
        "raw_max_elements": str(1 << 20),
    },
)
"""What the hook is to save of what models return: their values, seldom, and of no large ones."""

_OF_CLASSES: Final = re.compile(r"^(CrossEntropy)?Loss_output")
_OF_MODELS: Final = (r"^[A-Z]\w*_output_[0-9]+$",)
_CLASSES: Final = 1
_SEQUENCE: Final = 3
_STATISTICS: Final = ("size", "min", "max")
_ROUNDING: Final = 1e-4


def scrambled_scores_of(
    step: StepView, inputs: LossInputs, name: str, worker: str
) -> LossMismatch | None:
    """Return what is wrong with scores that a cross entropy gets in the wrong order.

    Each vector of scores over the classes has to be one that the model wrote, along a dimension of
    as many, if there is one; and where the targets of a text are the tokens that follow its inputs,
    scores and targets have to be of the same places.

    Args:
        step: The step.
        inputs: The inputs of its losses.
        name: Name of the loss, `X_output_0`.
        worker: The worker.

    Returns:
        None if nothing is, or values were not saved.
    """
    scores = _scores(step, inputs, name, worker)
    if scores is None:
        return None
    model, written, read, targets = scores
    shapes = f"of shape {list(read.shape)}, which the model returns as {list(written.shape)}"
    if not _has_vectors_of(written, read):
        message = f"gets scores {shapes}, by a view that mixes classes and places"
        return LossMismatch("order", float(read.shape[_CLASSES]), float(_CLASSES), message)
    if _are_of_other_places(step, (model, worker), (written, read), targets):
        message = (
            f"gets scores {shapes}, of other places than the targets, row by row and column by "
        )
        return LossMismatch("places", float(len(read)), 0.0, f"{message}column")
    return None


class _Scores(NamedTuple):
    """Scores of a model, by name: as it wrote them, as the loss reads them, and the targets."""

    model: str
    written: npt.NDArray[Any]
    read: npt.NDArray[Any]
    targets: npt.NDArray[Any]


def _scores(step: StepView, inputs: LossInputs, loss: str, worker: str) -> _Scores | None:
    """Return scores that have another shape in the loss; None if there are none with values."""
    given = inputs.of(loss, worker, 0)
    if not _OF_CLASSES.match(loss) or given is None or len(given.shape or ()) <= _CLASSES:
        return None
    model = _written_by(step, loss, worker)
    if model is None or model[1] == given.shape:
        return None
    values = outputs_and_targets(step, loss, worker)
    written = step.values((model[0],), worker).get(model[0])
    if values is None or written is None or not np.isfinite(written).all():
        return None
    read, targets = values
    are_equal = _are_the_same(np.sort(read, None), np.sort(written, None), written)
    return _Scores(model[0], written, read, targets) if are_equal else None


def _written_by(step: StepView, loss: str, worker: str) -> tuple[str, tuple[int, ...]] | None:
    """Return name and shape of the output of a model whose elements a loss gets."""
    given = f"{loss.removesuffix('_output_0')}_input_0"
    of_losses = set(step.tensors(collections=("losses",)).names)
    rows = step.tensors(regex=(*_OF_MODELS, f"^{re.escape(given)}$"))
    columns = np.stack([rows.column(of) for of in _STATISTICS], axis=1)
    known = {
        name: (columns[at], rows.shapes[at])
        for at, (name, of) in enumerate(zip(rows.names, rows.workers, strict=True))
        if of == worker and name not in of_losses
    }
    wanted, _ = known.pop(given, (None, None))
    for name in sorted(known):
        column, shape = known[name]
        is_it = wanted is not None and np.array_equal(column, wanted)
        if is_it and shape is not None and len(shape) >= _SEQUENCE:
            return name, shape
    return None


def _are_the_same(
    some: npt.NDArray[Any], others: npt.NDArray[Any], scores: npt.NDArray[Any]
) -> bool:
    """Return whether numbers are the same but for rounding, in units of the scores."""
    if some.size != others.size:  # of one of them only the first rows are stored
        return False
    far = np.abs(some.astype(np.float64) - others.astype(np.float64)).max()
    return bool(far <= _ROUNDING * np.abs(scores).max())


def _has_vectors_of(written: npt.NDArray[Any], read: npt.NDArray[Any]) -> bool:
    """Return whether the vectors over the classes are those along a dimension of what was written.

    Or along a part of one, as of several tables of classes; without a dimension that is the
    classes' own nothing tells how a script divides them.
    """
    shape, num_classes = written.shape, read.shape[_CLASSES]
    if num_classes not in shape:
        return True
    own = np.sort(_marks(read, _CLASSES))
    parts = [
        (axis + 1, written.reshape(*shape[:axis], -1, num_classes, *shape[axis + 1 :]))
        for axis, size in enumerate(shape)
        if size % num_classes == 0
    ]
    return any(_are_the_same(own, np.sort(_marks(part, axis)), own) for axis, part in parts)


def _marks(scores: npt.NDArray[Any], axis: int) -> npt.NDArray[np.float64]:
    """Return a number for each vector along a dimension, by which it is known [N]."""
    weights = np.cos(np.arange(scores.shape[axis], dtype=np.float64))
    return np.tensordot(np.moveaxis(scores, axis, -1).astype(np.float64), weights, 1).ravel()


def _are_of_other_places(
    step: StepView,
    output: tuple[str, str],
    scores: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    targets: npt.NDArray[Any],
) -> bool:
    """Return whether targets are the next tokens of rows, and scores stand in another order.

    Args:
        step: The step.
        output: Name of what the model returned, and the worker.
        scores: As the model wrote them [B, T, C], or [T, B, C], and as the loss gets them [N, C].
        targets: Numbers of classes [N].
    """
    (name, worker), (written, read) = output, scores
    model = name.rpartition("_output_")[0]
    tokens = step.values((f"{model}_input_0",), worker).get(f"{model}_input_0")
    places = written.shape[:-1]
    if tokens is None or tokens.shape != places or read.ndim != _CLASSES + 1:
        return False
    if targets.shape != read.shape[:1] or targets.size != tokens.size or min(places) == 1:
        return False
    by_rows = np.arange(targets.size).reshape(places)
    by_columns = np.arange(targets.size).reshape(places[::-1]).T
    orders = {"rows": by_rows, "columns": by_columns}
    read_as = [of for of, at in orders.items() if _are_the_same(read[at], written, written)]
    meant = [of for of, at in orders.items() if _follow(tokens, targets[at])]
    return len(read_as) == len(meant) == 1 and read_as != meant


def _follow(tokens: npt.NDArray[Any], targets: npt.NDArray[Any]) -> bool:
    """Return whether targets are the next tokens, along either dimension."""
    return bool((tokens[:, 1:] == targets[:, :-1]).all() or (tokens[1:] == targets[:-1]).all())
