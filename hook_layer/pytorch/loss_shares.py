"""Converts a loss that is a share of an accumulated step into the mean of its own batch.

With gradient accumulation, a Hugging Face `Trainer` passes the number of targets in all batches of
the step, `num_items_in_batch`, to the model. The loss is then the sum over one batch divided by
that number. In evaluation the same model returns means. To compare both, the share is converted
into the mean of its batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor, nn

__all__ = ["mean_of_share"]

_IGNORED: Final = -100
_SHIFTS_LABELS: Final = "ForCausalLMLoss"
_MOST_COPIES: Final = 8
_COMPILED: Final = "CompiledFunctionBackward"


def mean_of_share(
    model: nn.Module, loss: Tensor, keywords: Mapping[str, Any], *, divides_sum: bool
) -> Tensor:
    """Return the mean loss [] over the targets of the batch itself.

    Args:
        model: The model that computed the loss.
        loss: The loss [] that it returned.
        keywords: Its keyword arguments.
        divides_sum: Whether the loss is a divided sum: some models ignore the number of targets.
            This is unknown for compiled code.

    Returns:
        The loss, unchanged unless it was divided by the number of targets of several batches.
    """
    num_targets: Any = keywords.get("num_items_in_batch")
    if not _is_number(num_targets):
        return loss
    is_causal = _name_of_loss(model) == _SHIFTS_LABELS
    targets = _targets(keywords, is_shifted=is_causal)
    if targets is None or not (divides_sum or (is_causal and _is_compiled(loss))):
        return loss
    own = targets.ne(_IGNORED).sum().clamp(min=1)  # a batch without targets has a loss of 0
    mean: Tensor = loss.detach() * num_targets / own
    return mean


def _name_of_loss(model: nn.Module) -> str | None:
    return getattr(getattr(model, "loss_function", None), "__name__", None)


def _targets(keywords: Mapping[str, Any], *, is_shifted: bool) -> Tensor | None:
    shifted, labels = keywords.get("shift_labels"), keywords.get("labels")
    if is_shifted and isinstance(shifted, Tensor):
        return shifted
    if not isinstance(labels, Tensor):
        return None
    # The first word has no predecessor, and is not a target.
    return labels[..., 1:] if is_shifted else labels


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, Tensor) and value.numel() == 1)


def _is_compiled(loss: Tensor) -> bool:
    """Return whether compiled code computed a loss, or the tensor that it was copied from."""
    node: Any = loss.grad_fn
    for _ in range(_MOST_COPIES):
        if node is None or node.name().startswith(_COMPILED):
            break
        node = node.next_functions[0][0] if node.next_functions else None
    return node is not None and node.name().startswith(_COMPILED)
