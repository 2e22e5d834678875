"""Torch's loss functions, as `torch.nn.functional.cross_entropy`, that tell of their calls.

Scripts keep references to them (`criterion = F.cross_entropy`), tensors of classes of their own
look them up in tables, and torch.compile knows them by identity. So while somebody listens a
function stays the object that it is, and only its code is another: it calls a copy of the function,
and tells of that. Graphs that are compiled, traced or scripted are made as of the function itself,
and tell nothing.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import Any, Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hook_layer.pytorch.calls import uncompiled
from hook_layer.pytorch.watched_functions import WatchedFunction

__all__ = ["LOSS_FUNCTIONS", "WatchedLoss"]

_SET_OTHERWISE: Final = ("size_average", "reduce")
_is_tracing: Final[Callable[[], bool]] = torch.jit.is_tracing  # type: ignore[attr-defined]
_CODE: Final = """
def {name}({parameters}):
    if torch.compiler.is_compiling():
        return _stepwatch_{name}({arguments})
    return _stepwatch_told_{name}({arguments})
"""


class WatchedLoss(WatchedFunction):
    """A loss function; its listeners get it and the arguments by name, and the result.

    Args:
        name: Its name in `torch.nn.functional`.
        class_name: The module of `torch.nn` that does the same.
        num_inputs: How many of its first parameters are what it compares.
    """

    def __init__(self, name: str, class_name: str, num_inputs: int = 2) -> None:
        super().__init__(F, name)
        self.class_name = class_name
        self._watched: Any = getattr(F, name)
        self._signature = inspect.signature(self._watched)
        self._parameters = tuple(self._signature.parameters)
        self._input_names = self._parameters[:num_inputs]
        self._code: CodeType | None = None

    def inputs(self, given: Mapping[str, Any]) -> dict[int, Tensor]:
        """Return what a call compares, by the numbers that inputs of the module have."""
        named = enumerate(given[name] for name in self._input_names)
        return {number: value for number, value in named if isinstance(value, Tensor)}

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return how a call compares its inputs, but for the reduction."""
        others = self._parameters[len(self._input_names) :]
        return {name: given[name] for name in others if name != "reduction"}

    def reduction(self, given: Mapping[str, Any]) -> str | None:
        """Return `mean`, `sum`, `none` or the like; None if it is told in an outdated way."""
        if any(given.get(name) is not None for name in _SET_OTHERWISE):
            return None
        reduction = given["reduction"]
        return reduction if isinstance(reduction, str) else None

    def reduced(self, given: Mapping[str, Any], reduction: str) -> Tensor:
        """Return the result of a call with another reduction, without a gradient."""
        with torch.no_grad(), _inside:
            result: Tensor = self._watched(**{**given, "reduction": reduction})
        return result

    @property
    def is_wrapped(self) -> bool:
        """Whether the function tells of its calls at present."""
        return self._code is not None

    def _wrap(self) -> None:
        if self._code is not None:
            return
        function = self._watched
        original = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__
        )
        names = {"name": function.__name__, "arguments": ", ".join(self._parameters)}
        made: dict[str, Any] = {}
        exec(_CODE.format(**names, parameters=names["arguments"]), made)  # noqa: S102
        code = made[function.__name__].__code__
        function.__globals__[f"_stepwatch_{function.__name__}"] = original
        function.__globals__[f"_stepwatch_told_{function.__name__}"] = self._told(original)
        self._code = function.__code__
        # What looks for the source, as torch.jit does, finds that of the function.
        function.__code__ = code.replace(
            co_filename=self._code.co_filename, co_firstlineno=self._code.co_firstlineno
        )

    def _unwrap(self) -> None:
        if self._code is not None:
            self._watched.__code__ = self._code
            self._code = None

    def _told(self, original: Callable[..., Any]) -> Callable[..., Any]:
        tell = uncompiled(self._tell)
        parameters = self._parameters

        def told(*args: Any) -> Any:
            # Tensors of other classes may call the function again, and torch.jit traces it.
            if _inside.depth or _is_tracing():
                return original(*args)
            with _inside:
                result = original(*args)
            tell((self, dict(zip(parameters, args, strict=True))), result)
            return result

        return told


class _Inside(threading.local):
    """How deep this thread is within loss functions that tell nothing new."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


_inside: Final = _Inside()

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
"""The functions; what they compute is called `{class_name}_output_{i}`."""
