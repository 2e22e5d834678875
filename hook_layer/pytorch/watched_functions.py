"""Functions and methods of torch that have no hooks of their own, and report their calls.

Scripts keep references to loss functions such as `torch.nn.functional.cross_entropy`, tensor
subclasses look them up in tables, and torch.compile identifies them. So the function object stays,
and only its code is replaced while a hook listens: it calls a copy of the function and reports the
call. Compiled, traced and scripted graphs use the original function and report nothing. Warnings of
a function still name the line of its caller.
"""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import Any, Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from hook_layer.capture.patched_functions import patch
from hook_layer.capture.watched_functions import Watched, WatchedFunction
from hook_layer.process.tracebacks import hide_frame
from hook_layer.pytorch.calls import uncompiled

__all__ = [
    "BACKWARD",
    "LOSS_FUNCTIONS",
    "SCALER_SCALE",
    "SCALER_STEP",
    "TENSOR_BACKWARD",
    "WatchedLoss",
    "call_after",
    "call_before_compiled",
]

_WARNINGS: Final = "_stepwatch_warnings"
_OWN_FRAMES: Final = 2
"""Frames between a function and its caller while a hook listens: the trampoline and `report`."""
_SET_OTHERWISE: Final = ("size_average", "reduce")
_is_tracing: Final[Callable[[], bool]] = torch.jit.is_tracing


class _TorchFunction(WatchedFunction):
    """A function of torch, whose wrapper is in no compiled code."""

    def _wrapped(
        self, original: Callable[..., Any], report: Callable[..., None]
    ) -> Callable[..., Any]:
        wrapper = super()._wrapped(original, uncompiled(report))
        # What it calls may be compiled, as without it, but not the wrapper itself.
        skipped: Callable[..., Any] = torch.compiler.disable(wrapper, recursive=False)  # type: ignore[no-untyped-call]
        return skipped


BACKWARD: Final = _TorchFunction(torch.autograd, "backward")
"""`torch.autograd.backward`, which `Tensor.backward` calls."""
TENSOR_BACKWARD: Final = _TorchFunction(torch.Tensor, "backward")
SCALER_SCALE: Final = _TorchFunction(GradScaler, "scale")
SCALER_STEP: Final = _TorchFunction(GradScaler, "step")


def call_after(kind: type, name: str, callback: Callable[[Any], None]) -> None:
    """Call back with the object whenever a method of a class was called."""
    patch(kind, name, after=lambda _, obj, *__, **___: callback(obj))


def call_before_compiled(module: nn.Module, callback: Callable[[nn.Module], bool]) -> None:
    """Call back before each call of a module that was compiled in place, while that is True."""
    compiled: Any = module._compiled_call_impl  # noqa: SLF001 - no public way

    def call(*args: Any, **kwargs: Any) -> Any:
        if not callback(module):
            module._compiled_call_impl = compiled  # noqa: SLF001
        try:
            return compiled(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    module._compiled_call_impl = call  # noqa: SLF001


def _trampoline(*args: Any, **kwargs: Any) -> Any:
    """Replacement code of a function, which looks up names in that function's globals."""
    if torch.compiler.is_compiling():
        return _original(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821
    return _reporting(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821


class WatchedLoss:
    """A loss function whose calls can be reported.

    Args:
        name: Its name in `torch.nn.functional`.
        class_name: The equivalent module of `torch.nn`.
        num_inputs: Number of its first parameters that it compares.
    """

    def __init__(self, name: str, class_name: str, num_inputs: int = 2) -> None:
        self.class_name = class_name
        self._watched: Any = getattr(F, name)
        self._signature = inspect.signature(self._watched)
        self._parameters = tuple(self._signature.parameters)
        self._defaults = {p.name: p.default for p in self._signature.parameters.values()}
        self._input_names = self._parameters[:num_inputs]
        self._codes: tuple[CodeType, CodeType] | None = None

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments of a call by name, including defaults."""
        return {**self._defaults, **dict(zip(self._parameters, args, strict=False)), **kwargs}

    def inputs(self, given: Mapping[str, Any]) -> dict[int, Tensor]:
        """Return the tensors that a call compares, numbered like the inputs of the module."""
        named = enumerate(given[name] for name in self._input_names)
        return {number: value for number, value in named if isinstance(value, Tensor)}

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a call, except the reduction."""
        others = self._parameters[len(self._input_names) :]
        return {name: given[name] for name in others if name != "reduction"}

    def reduction(self, given: Mapping[str, Any]) -> str | None:
        """Return `mean`, `sum`, `none` or the like; None if it is specified in a deprecated way."""
        if any(given.get(name) is not None for name in _SET_OTHERWISE):
            return None
        reduction = given["reduction"]
        return reduction if isinstance(reduction, str) else None

    def reduced(self, given: Mapping[str, Any], reduction: str) -> Tensor:
        """Return the result of a call with another reduction, without gradient and warnings."""
        _nesting.is_silent = True
        try:
            with torch.no_grad(), _nesting:
                result: Tensor = self._watched(**{**given, "reduction": reduction})
        finally:
            _nesting.is_silent = False
        return result

    def watch(self, report: Callable[..., None]) -> None:
        """Report calls, with this function, the given arguments and the result."""
        if self._codes is None:
            self._codes = self._watched.__code__, self._prepared(report)
        self._watched.__signature__ = self._signature
        self._watched.__code__ = self._codes[1]

    def unwatch(self) -> None:
        """Restore the original function."""
        if self._codes is not None:
            self._watched.__code__ = self._codes[0]
            del self._watched.__signature__

    def _prepared(self, notify: Callable[..., None]) -> CodeType:
        """Return the code that reports a call; add the names it uses to the function's globals."""
        function = self._watched
        name, code, names = function.__name__, function.__code__, function.__globals__
        renamed = {"_original": f"_stepwatch_{name}", "_reporting": f"_stepwatch_reporting_{name}"}
        names[renamed["_original"]] = FunctionType(code, names, name, function.__defaults__)
        names[_WARNINGS] = _WarningsOfCallers()
        deeper = _renamed(code, {"warnings": _WARNINGS})
        names[renamed["_reporting"]] = self._reporting(
            FunctionType(deeper, names, name, function.__defaults__), notify
        )
        own = _renamed(_trampoline.__code__, renamed)
        # Keep the source location, so that torch.jit and others find the function's source.
        return own.replace(
            co_name=name,
            co_filename=code.co_filename,
            co_firstlineno=code.co_firstlineno,
        )

    def _reporting(
        self, original: Callable[..., Any], notify: Callable[..., None]
    ) -> Callable[..., Any]:
        def report(*args: Any, **kwargs: Any) -> Any:
            # Tensor subclasses may call the function again, and torch.jit traces it.
            try:
                if _nesting.depth or _is_tracing():
                    return original(*args, **kwargs)
                with _nesting:
                    result = original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            notify((self, args, kwargs), result)
            return result

        return report


class LossFunctions(Watched):
    """Loss functions that are listened to together."""

    def __init__(self, *functions: WatchedLoss) -> None:
        super().__init__()
        self.functions = functions
        self._notify = uncompiled(self._report)

    def _wrap(self) -> None:
        for function in self.functions:
            function.watch(self._notify)

    def _unwrap(self) -> None:
        for function in self.functions:
            function.unwatch()


class _WarningsOfCallers:
    """Replacement of the module `warnings`, for functions that a trampoline calls."""

    def __getattr__(self, name: str) -> Any:
        return getattr(warnings, name)

    def warn(
        self,
        message: Any,
        category: type[Warning] | None = None,
        stacklevel: int = 1,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Warn like `warnings.warn` without a trampoline."""
        if not _nesting.is_silent:
            deeper = stacklevel + 1 + (_OWN_FRAMES if stacklevel > 1 else 0)
            warnings.warn(message, category, deeper, *args, **kwargs)


def _renamed(code: CodeType, names: Mapping[str, str]) -> CodeType:
    """Return code that uses other names for some globals."""
    return code.replace(co_names=tuple(names.get(each, each) for each in code.co_names))


class _Nesting(threading.local):
    """Depth of nested loss functions in this thread; nested calls are not reported."""

    depth = 0
    is_silent = False

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


_nesting: Final = _Nesting()

LOSS_FUNCTIONS: Final = LossFunctions(
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
"""The loss functions; their results are named `{class_name}_output_{i}`."""
