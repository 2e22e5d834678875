"""The loss of a batch that a model divided by more than that batch.

Where gradients are accumulated, a Hugging Face `Trainer` tells the model how many targets all
batches of the step have, `num_items_in_batch`, and its loss is the sum over one of them divided by
that number: a share, so that the shares of a step add up to a mean. In evaluation the same model
returns means. To be compared, a share has to be made the mean that it is a part of.
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
    """Return the mean loss [] over the targets that a batch itself has.

    Args:
        model: The model that computed the loss.
        loss: The loss [] that it returned.
        keywords: What it was called with by name.
        divides_sum: Whether the loss is a sum that was divided: some models ignore the number of
            targets. Of compiled code that is not known.

    Returns:
        The loss as it is, unless it was divided by the number of targets of more batches.
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
    # The first word is predicted from none before it, and is no target.
    return labels[..., 1:] if is_shifted else labels


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, Tensor) and value.numel() == 1)


def _is_compiled(loss: Tensor) -> bool:
    """Return whether compiled code computed a loss, or what it is a copy of."""
    node: Any = loss.grad_fn
    for _ in range(_MOST_COPIES):
        if node is None or node.name().startswith(_COMPILED):
            break
        node = node.next_functions[0][0] if node.next_functions else None
    return node is not None and node.name().startswith(_COMPILED)
