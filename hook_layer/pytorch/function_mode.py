"""Observes the functions of torch that one thread calls, for a limited time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from hook_layer.guard import FailureLog
from hook_layer.process.tracebacks import hide_frame
from hook_layer.pytorch.calls import register_hook
from hook_layer.pytorch.watched_functions import TENSOR_BACKWARD

__all__ = ["CallObserver", "ObservedCalls"]

CallObserver: TypeAlias = Callable[[Any, "tuple[Any, ...]", Any], None]
"""Called with a function, the values of all arguments, and its result."""
_modes: Final[Callable[[], list[Any]]] = _get_current_function_mode_stack
_CACHE: Final = "cached_backends"
_OF_DEVICES: Final = "DeviceContext"
_ATTENTION: Final = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)


class ObservedCalls:
    """Reports the functions of torch that a thread calls between `begin` and `end`.

    All that observe a thread share one mode. Attention that may use its fast path is not observed,
    because a mode disables that path.

    Args:
        observer: Called for each function; not for functions that these call, nor in compiled code.
        failures: Counts its errors, which end the observation.
        part: The part of the hook that they are counted for.
        is_opaque: Returns whether the calls within a module are not reported.
        on_return: Called with such a module and what it returned, before reporting continues.

    Attributes:
        called: The modules whose calls are active, innermost last.
    """

    def __init__(
        self,
        observer: CallObserver,
        failures: FailureLog,
        part: str,
        *,
        is_opaque: Callable[[nn.Module], bool] | None = None,
        on_return: Callable[[nn.Module, Any], None] = lambda *_: None,
    ) -> None:
        self.called: list[nn.Module] = []
        self._observer = observer
        self._failures = failures
        self._part = part
        self._is_opaque = is_opaque or _is_fast_attention
        self._on_return = on_return
        self._mode: _Mode | None = None
        self._handles: tuple[Any, ...] = ()
        self._thread = self._opaque_depth = 0
        self._ends_with_module = False

    @property
    def is_on(self) -> bool:
        """Whether calls are reported."""
        return self._mode is not None

    def begin(
        self,
        module: nn.Module | None = None,
        *,
        ends_with_module: bool = False,
        awaits_return: bool = False,
    ) -> bool:
        """Report the calls of this thread; return whether it does.

        It does not once torch.compile was used, nor under a mode of the script: where that ends,
        torch would remove ours instead.

        Args:
            module: A module whose call has just begun.
            ends_with_module: Whether to stop reporting when that module returns.
            awaits_return: Whether to begin only when an opaque module returns.
        """
        self.end()
        is_hidden = _has_compiled_anything() or (module is not None and self._is_opaque(module))
        if is_hidden or not (awaits_return or self._report()):
            return False
        self.called = [] if module is None else [module]
        self._thread, self._ends_with_module = threading.get_ident(), ends_with_module
        self._handles = (
            register_hook(register_module_forward_pre_hook, self._on_module_begins),
            register_hook(register_module_forward_hook, self._on_module_ends, always_call=True),
        )
        return True

    def _report(self) -> bool:
        mode = _of_thread.mode
        if mode is None:  # the mode of `torch.set_default_device` does not count
            is_free = all(type(other).__name__ == _OF_DEVICES for other in _modes())
        else:
            is_free = _modes()[-1:] == [mode]
        if not is_free or self._part in self._failures.off:
            return False
        if mode is None:
            mode = _of_thread.mode = _Mode()
            mode.begin()
        mode.observers = (*mode.observers, self._observe)
        self._mode = mode
        return True

    def _observe(self, *call: Any) -> None:
        try:
            self._observer(*call)
        except Exception as error:  # noqa: BLE001 - the script continues after any error
            self._failures.failed(self._part, error)
            self._leave()

    def _is_ours(self) -> bool:
        is_traced = torch.compiler.is_compiling()  # torch.compile traces hooks as code of the model
        return not is_traced and threading.get_ident() == self._thread

    def _on_module_begins(self, module: nn.Module, _: Any) -> None:
        if self._is_ours():
            self.called.append(module)
            if not self._opaque_depth and self._is_opaque(module):
                self._opaque_depth = len(self.called)
                self._pause()

    def _on_module_ends(self, module: nn.Module, _: Any, outputs: Any) -> None:
        if not self._is_ours() or not any(called is module for called in self.called):
            return
        while self.called.pop() is not module:
            pass  # the pass raised an exception that the script caught
        if self._opaque_depth > len(self.called):
            self._opaque_depth = 0
            self._on_return(module, outputs)
            self._report()
        if self._ends_with_module and not self.called:
            self._pause()
            if outputs is not None:  # after an exception, torch iterates over the handles' hooks
                self._remove_handles()

    def _leave(self) -> None:
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.observers = tuple(each for each in mode.observers if each != self._observe)

    def _pause(self) -> None:
        self._leave()
        mode = _of_thread.mode
        if mode is not None and not mode.observers:
            mode.end()

    def _remove_handles(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = ()

    def end(self) -> None:
        """Stop reporting.

        The mode stays, without effect, in another thread and under a newer mode of the script.
        """
        self.called, self._opaque_depth = [], 0
        self._remove_handles()
        self._pause()


class _Mode(TorchFunctionMode):
    """Reports functions to its observers, until a backward pass begins.

    `Tensor.backward` must not be reported: torch puts a mode back after a function that removes it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.observers: tuple[Callable[..., None], ...] = ()
        self._listening: Any = None

    def begin(self) -> None:
        """Report the functions of this thread."""
        self.__enter__()  # type: ignore[no-untyped-call]
        self._listening = TENSOR_BACKWARD.listen(self.end, is_before_call=True)

    def end(self, *_: Any) -> None:
        """Stop reporting, if this is the newest mode of the thread."""
        if _of_thread.mode is self and _modes()[-1:] == [self]:
            self._listening.remove()
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            _of_thread.mode = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        try:
            result = func(*args, **keywords)
        except BaseException as error:
            hide_frame(error)
            raise
        if self.observers and not torch.compiler.is_compiling():
            for observer in self.observers:
                observer(func, (*args, *keywords.values()), result)
        return result


class _OfThread(threading.local):
    """The mode of a thread, while any call is observed in it."""

    mode: _Mode | None = None


_of_thread: Final = _OfThread()


def _has_compiled_anything() -> bool:
    """Return whether torch.compile was used, ignoring functions that it must skip."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return any(backend is not None for backend in getattr(dynamo, _CACHE, {}).values())


def _is_fast_attention(module: nn.Module) -> bool:
    return isinstance(module, _ATTENTION) and not module.training
