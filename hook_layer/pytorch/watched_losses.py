"""Torch's loss functions, as `torch.nn.functional.cross_entropy`, that tell of their calls.

They are wrapped for good where this module is imported: scripts keep references to them, as
`criterion = F.cross_entropy`, long before a hook listens. Within a graph of torch.compile they tell
nothing, and are compiled as without a wrapper. What torch.jit scripts gets the function itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hook_layer.pytorch.calls import skip_compilation
from hook_layer.pytorch.watched_functions import WatchedFunction

__all__ = ["LOSS_FUNCTIONS", "WatchedLoss"]

_SET_OTHERWISE: Final = ("size_average", "reduce")
_is_tracing: Final[Callable[[], bool]] = torch.jit.is_tracing  # type: ignore[attr-defined]


class WatchedLoss(WatchedFunction):
    """A loss function; its listeners get it, the positional and the keyword arguments, the result.

    Args:
        name: Its name in `torch.nn.functional`.
        class_name: The module of `torch.nn` that does the same.
        num_inputs: How many of its first parameters are what it compares.
    """

    def __init__(self, name: str, class_name: str, num_inputs: int = 2) -> None:
        super().__init__(F, name)
        self.class_name = class_name
        self._parameters = tuple(inspect.signature(getattr(F, name)).parameters)
        self._input_names = self._parameters[:num_inputs]

    def inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[int, Tensor]:
        """Return what a call compares, by the numbers that inputs of the module have."""
        given = {**dict(zip(self._parameters, args, strict=False)), **kwargs}
        named = enumerate(given.get(name) for name in self._input_names)
        return {number: value for number, value in named if isinstance(value, Tensor)}

    def reduction(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """Return `mean`, `sum`, `none` or the like; None if it is told in an outdated way."""
        given = {**dict(zip(self._parameters, args, strict=False)), **kwargs}
        if any(given.get(name) is not None for name in _SET_OTHERWISE):
            return None
        reduction = given.get("reduction", "mean")
        return reduction if isinstance(reduction, str) else None

    def reduced(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], reduction: str) -> Tensor:
        """Return the result of a call with another reduction, without a gradient."""
        given = {**dict(zip(self._parameters, args, strict=False)), **kwargs}
        with torch.no_grad():
            result: Tensor = self.unwatched(**{**given, "reduction": reduction})
        return result

    def _wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def tell(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
            self._tell((self, args, kwargs), result)

        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if not torch.compiler.is_compiling() and not _is_tracing():
                tell(args, kwargs, result)
            return result

        skip_compilation(wrapper, tell)
        # How torch.jit.script knows wrappers of its own.
        vars(wrapper).update({"__script_if_tracing_wrapper": True, "__original_fn": original})
        return wrapper


LOSS_FUNCTIONS: Final = (
    WatchedLoss("binary_cross_entropy", "BCELoss"),
    WatchedLoss("binary_cross_entropy_with_logits", "BCEWithLogitsLoss"),
    WatchedLoss("cosine_embedding_loss", "CosineEmbeddingLoss", 3),
    WatchedLoss("cross_entropy", "CrossEntropyLoss"),
    WatchedLoss("ctc_loss", "CTCLoss", 4),
    WatchedLoss("gaussian_nll_loss", "GaussianNLLLoss", 3),
    WatchedLoss("hinge_embedding_loss", "HingeEmbeddingLoss"),
    WatchedLoss("huber_loss", "HuberLoss"),
    WatchedLoss("kl_div", "KLDivLoss"),
    WatchedLoss("l1_loss", "L1Loss"),
    WatchedLoss("margin_ranking_loss", "MarginRankingLoss", 3),
    WatchedLoss("mse_loss", "MSELoss"),
    WatchedLoss("multi_margin_loss", "MultiMarginLoss"),
    WatchedLoss("multilabel_margin_loss", "MultiLabelMarginLoss"),
    WatchedLoss("multilabel_soft_margin_loss", "MultiLabelSoftMarginLoss"),
    WatchedLoss("nll_loss", "NLLLoss"),
    WatchedLoss("poisson_nll_loss", "PoissonNLLLoss"),
    WatchedLoss("smooth_l1_loss", "SmoothL1Loss"),
    WatchedLoss("soft_margin_loss", "SoftMarginLoss"),
    WatchedLoss("triplet_margin_loss", "TripletMarginLoss", 3),
)
"""The functions; their modules are called `{class_name}`."""

for _function in LOSS_FUNCTIONS:
    _function.keep_wrapped()
