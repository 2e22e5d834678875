"""Hooks that are registered with torch's modules and optimizers, and are not copied with them.

In a graph of torch.compile, a call becomes the operator `stepwatch::module_called`, which the
compiler does not look into. The hook decides at run time what to save, and the graph does not
break.
"""

from __future__ import annotations

import copyreg
import inspect
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import cache, wraps
from types import MappingProxyType
from typing import Any, Final, ParamSpec
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from hook_layer.capture.watched_functions import Watched
from hook_layer.core.state import HookState
from hook_layer.process.tracebacks import hide_frame
from hook_layer.pytorch.tensor_elements import own_shard
from hook_layer.weak_method import WeakMethod

__all__ = [
    "STEP_BEGINS",
    "STEP_ENDED",
    "Arguments",
    "CompiledInputs",
    "ModuleCall",
    "ModuleCallback",
    "ModuleHooks",
    "WatchedSteps",
    "drop_calls",
    "prepare_scripting",
    "register_hook",
    "skip_compilation",
    "tensors_in",
    "uncompiled",
    "versions_of",
]

ModuleCallback = Callable[[nn.Module, Any, Any], None]
"""Called with a module, its inputs, and its outputs (None before the forward pass)."""

_compiler: Final[Callable[[], object]] = torch._C._dynamo.eval_frame.get_eval_frame_callback  # noqa: SLF001
_P = ParamSpec("_P")
_FRAMES: Final = "_frames_up"
_keys = itertools.count()
_calls: WeakValueDictionary[str, ModuleCall] = WeakValueDictionary()
_FIRST: Final = int.from_bytes(b"Stepwatc", "big")
"""The first id of Stepwatch's hooks; torch never counts this far."""
_NUM: Final = 1 << 40
_numbers = itertools.count(_FIRST)
_registering: Final = threading.RLock()
with torch.inference_mode(mode=False):
    _TOKEN: Final = torch.zeros(1, device="cpu")
# New in torch 2.7. Earlier versions cannot distinguish torch.export from torch.compile.
_is_tracing: Final[Callable[[], bool]] = torch.jit.is_tracing
_is_exporting: Final = getattr(torch.compiler, "is_exporting", lambda: False)


class Arguments(tuple[Any, ...]):  # noqa: SLOT001 - tuples have no slots
    """Inputs of a module: a tuple of the positional ones, plus the keyword arguments."""

    keywords: Mapping[str, Any] = MappingProxyType({})
    """The keyword arguments."""


class CompiledInputs(list[Tensor]):
    """Inputs of a module in compiled code, which may soon reuse their memory."""


def register_hook(function: Callable[..., Any], hook: Callable[..., Any], **options: Any) -> Any:
    """Register a hook with a function of torch, and return torch's handle.

    torch numbers all hooks of a process, and copies and stores a module with its hooks by number.
    Stepwatch's hooks have ids of their own. Copies and pickles of a dict of hooks leave these ids
    out, so a copied module behaves as if it had never been watched.
    """
    _leave_out_of_copies()
    with _registering:
        others = RemovableHandle.next_id
        RemovableHandle.next_id = next(_numbers)
        try:
            return function(hook, **options)
        finally:
            RemovableHandle.next_id = others


def _put(module: nn.Module, hook: Callable[..., Any], *, always_call: bool = False) -> int:
    """Set a forward hook with keyword arguments on a module, and return its id, for `_take`.

    torch's own function takes ten times as long, and a saved step sets hundreds.
    """
    _leave_out_of_copies()
    number = next(_numbers)
    module._forward_hooks[number] = hook  # noqa: SLF001
    module._forward_hooks_with_kwargs[number] = True  # noqa: SLF001
    if always_call:  # also if the pass raises an exception
        module._forward_hooks_always_called[number] = True  # noqa: SLF001
    return number


def _take(module: nn.Module, number: int) -> None:
    """Remove the hook with an id of Stepwatch from a module."""
    for hooks in (
        module._forward_hooks,  # noqa: SLF001
        module._forward_hooks_with_kwargs,  # noqa: SLF001
        module._forward_hooks_always_called,  # noqa: SLF001
        module._forward_pre_hooks,  # noqa: SLF001
        module._forward_pre_hooks_with_kwargs,  # noqa: SLF001
    ):
        hooks.pop(number, None)


@cache
def _leave_out_of_copies() -> None:
    # Copying, pickling and everything built on them use this entry.
    reduced: Callable[[Any], Any] = copyreg.dispatch_table.get(OrderedDict, OrderedDict.__reduce__)

    def reduced_without_ours(hooks: OrderedDict[Any, Any]) -> Any:
        if any(map(_is_ours, hooks)):
            hooks = OrderedDict((key, hook) for key, hook in hooks.items() if not _is_ours(key))
        return reduced(hooks)

    copyreg.pickle(OrderedDict, reduced_without_ours)


def _is_ours(key: object) -> bool:
    return type(key) is int and _FIRST <= key < _FIRST + _NUM


class ModuleCall:
    """A forward hook or forward pre-hook that calls a method with its module.

    It does nothing in a model that torch.jit traces or torch.export exports, because that is not
    training. The module and the owners of methods are referenced weakly. `on_compile` is called
    when torch.compile traces the hook, before it traces the module.
    """

    def __init__(
        self,
        module: nn.Module,
        callback: ModuleCallback,
        on_compile: Callable[[nn.Module], None] | None = None,
    ) -> None:
        self._key = str(next(_keys))
        self._module = ref(module)
        self._callback = WeakMethod(callback)
        self._on_compile = None if on_compile is None else WeakMethod(on_compile)
        _prepare_compiler()
        prepare_scripting()
        self._run = uncompiled(self.run)
        _calls[self._key] = self

    def is_of(self, state: object) -> bool:
        """Return whether it calls a part of the hook with this state; None: of a deleted hook."""
        owner = getattr(self._callback(), "__self__", None)
        return (None if owner is None else getattr(owner, "state", owner)) is state

    def __call__(
        self, _: nn.Module, inputs: Any, keywords: dict[str, Any], outputs: Any = None
    ) -> None:
        """Run as a torch hook that is registered `with_kwargs`; change nothing."""
        if torch.compiler.is_compiling():
            if _at_compilation(self._key):
                with_grad = torch.is_grad_enabled()  # always off in a compiled graph
                values = ((*inputs, *keywords.values()), outputs)
                detached = [[own_shard(t).detach() for t in tensors_in(v)] for v in values]
                torch.ops.stepwatch.module_called(_TOKEN, self._key, with_grad, *detached)
        elif not _is_tracing():
            if keywords:
                inputs = Arguments((*inputs, *keywords.values()))
                inputs.keywords = keywords
            if _compiler() is not None:
                self._run(inputs, outputs, compiles=True)
                return
            module, owner = self._module(), self._callback.owner()
            if module is not None and owner is not None:  # most steps: one call, no more
                self._callback.function(owner, module, inputs, outputs)

    def run(self, inputs: Any, outputs: Any, *, compiles: bool = False) -> None:
        """Notify the owner of a compilation, and call the method, if the owner still exists."""
        if compiles:
            self.note_compilation()
        module, callback = self._module(), self._callback()
        if module is not None and callback is not None:
            callback(module, inputs, outputs)

    def note_compilation(self) -> None:
        """Notify the owner that this call is being compiled."""
        module = self._module()
        on_compile = None if self._on_compile is None else self._on_compile()
        if module is not None and on_compile is not None:
            on_compile(module)


def _note_compilation(key: str) -> bool:
    """Notify the owner of a call that is being compiled; return whether the graph reports it."""
    if _is_exporting():
        return False
    call = _calls.get(key)
    if call is not None:
        call.note_compilation()
    return True


@cache
def prepare_scripting() -> None:
    """Hide Stepwatch's hooks from `torch.jit.script`, from now on."""
    original = torch.jit.script
    signature = inspect.signature(original)

    @wraps(original)
    def script(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        if _FRAMES in signature.parameters:  # where the names of a class are resolved
            given.arguments[_FRAMES] = given.arguments.get(_FRAMES, 0) + 1
        try:
            with _without_calls(*given.args, *given.kwargs.values()):
                return original(*given.args, **given.kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    torch.jit.script = script


@contextmanager
def _without_calls(*objects: Any) -> Iterator[None]:
    """Remove Stepwatch's hooks from modules and their parts temporarily."""
    parts = [part for obj in objects if isinstance(obj, nn.Module) for part in obj.modules()]
    hooks_of = [h for part in parts for h in (part._forward_hooks, part._forward_pre_hooks)]  # noqa: SLF001
    before = [dict(hooks) for hooks in hooks_of]
    for hooks in hooks_of:
        for key in [key for key, hook in hooks.items() if isinstance(hook, ModuleCall)]:
            del hooks[key]
    try:
        yield
    finally:
        for hooks, all_of_them in zip(hooks_of, before, strict=True):
            hooks.clear()
            hooks.update(all_of_them)


@cache
def _prepare_compiler() -> None:
    # Importing it takes seconds; creating an optimizer does it, too.
    from torch._dynamo import config  # noqa: PLC0415

    # Otherwise, compiled code would be reused for a module whose hooks have changed.
    config.skip_nnmodule_hook_guards = False
    # Only a surrounding graph may compile it, not torch.compile by itself.
    skip_compilation(ModuleCall.__call__)


def skip_compilation(*functions: Callable[..., Any]) -> None:
    """Exclude functions from compilation without slowing down their calls.

    Functions that they call may still be compiled.
    """
    from torch._dynamo import eval_frame  # noqa: PLC0415 - see above

    for function in functions:
        eval_frame.skip_code(function.__code__)


def uncompiled(function: Callable[_P, None]) -> Callable[_P, None]:
    """Return a function that is never compiled, including everything that it calls."""
    disabled: Callable[_P, None] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]

    def call(*args: _P.args, **kwargs: _P.kwargs) -> None:
        # `disabled` costs microseconds per call, so it is used only while something compiles.
        (function if _compiler() is None else disabled)(*args, **kwargs)

    skip_compilation(call)
    return call


class WatchedSteps(Watched):
    """Calls methods when any optimizer begins, or has ended, a step.

    They get the optimizer, and whether its step was given a closure. One hook is registered with
    torch for all of them, because torch iterates over its hooks while other threads may add or
    remove some. It breaks the graph of a compiled optimizer step, as torch itself does there.
    """

    def __init__(self, register: Callable[..., Any]) -> None:
        super().__init__()
        self._register = register
        self._handle: Any = None
        self._run_uncompiled = uncompiled(_run)

    def _wrap(self) -> None:
        skip_compilation(WatchedSteps.__call__)
        self._handle = register_hook(self._register, self)

    def _unwrap(self) -> None:
        self._handle.remove()

    def forget_deleted(self) -> None:
        """Forget the methods whose owners were deleted."""
        for listening in self._listeners:
            if listening.owner() is None:
                listening.remove()

    def __call__(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run as a torch step hook; change nothing."""
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        has_closure, compiles = callable(closure), _compiler() is not None
        for listening in self._listeners:
            owner, function = listening.owner(), listening.function
            if owner is not None and compiles:
                self._run_uncompiled(function, owner, optimizer, has_closure)
            elif owner is not None:
                function(owner, optimizer, has_closure)


def _run(function: Callable[..., None], *arguments: object) -> None:
    function(*arguments)


STEP_BEGINS: Final = WatchedSteps(register_optimizer_step_pre_hook)
STEP_ENDED: Final = WatchedSteps(register_optimizer_step_post_hook)


# It runs while the graph is built, not in the graph, where `is_exporting` of torch 2.11 is True.
_at_compilation: Final[Callable[[str], bool]] = torch.compiler.assume_constant_result(  # type: ignore[no-untyped-call]
    _note_compilation
)


# It mutates a token, so the compiler neither drops a call nor reorders it.
@torch.library.custom_op(
    "stepwatch::module_called",
    mutates_args=("token",),
    schema="(Tensor(a!) token, str key, bool with_grad, Tensor[] inputs, Tensor[] outputs) -> ()",
)
def _module_called(
    _token: Tensor, key: str, with_grad: bool, inputs: list[Tensor], outputs: list[Tensor]
) -> None:
    call = _calls.get(key)
    if call is not None:
        with torch.set_grad_enabled(with_grad):
            call.run(CompiledInputs(inputs), outputs)


@_module_called.register_fake
def _module_is_traced(
    _token: Tensor, key: str, with_grad: bool, inputs: list[Tensor], outputs: list[Tensor]
) -> None:
    """Do nothing when the compiler only infers shapes."""


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors in a module's inputs or outputs: nested sequences and dicts of them."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    elif len(value) == 1:
        return tensors_in(value[0])
    return [tensor for item in value for tensor in tensors_in(item)]


def versions_of(tensors: Iterable[Tensor]) -> tuple[int, ...]:
    """Return the number of writes to each tensor; inference tensors do not count them."""
    known = (tensor for tensor in tensors if not tensor.is_inference())
    return tuple(tensor._version for tensor in known)  # noqa: SLF001 - no public way


class ModuleHooks:
    """Calls back after the forward pass of chosen modules.

    Compiled code neither notices new hooks nor is recompiled when they are removed. So a hook that
    torch.compile has seen stays. With `always_call`, passes that raise call back, too, with
    outputs None.
    """

    def __init__(self, callback: ModuleCallback, *, always_call: bool = False) -> None:
        self._callback = WeakMethod(callback)  # its owner owns this
        self._always_call = always_call
        self._numbers: dict[nn.Module, int] = {}
        self._calls: WeakKeyDictionary[nn.Module, ModuleCall] = WeakKeyDictionary()
        self._compiled: set[nn.Module] = set()

    def watch_only(self, modules: AbstractSet[nn.Module]) -> None:
        """Watch exactly these modules, and the compiled ones."""
        for module in self._numbers.keys() - modules - self._compiled:
            _take(module, self._numbers.pop(module))
        self._watch(modules)

    def keep(self, modules: AbstractSet[nn.Module]) -> None:
        """Watch these modules until `stop`, because torch.compile is about to see them."""
        self._compiled |= modules
        self._watch(modules)

    def stop(self) -> None:
        """Remove all hooks."""
        self._compiled.clear()
        self.watch_only(frozenset())

    def _watch(self, modules: AbstractSet[nn.Module]) -> None:
        for module in modules - self._numbers.keys():
            call = self._calls.get(module)
            if call is None:
                callback = self._callback()
                if callback is None:
                    return
                call = self._calls[module] = ModuleCall(module, callback, self._keep_one)
            always_call = self._always_call and module not in self._compiled
            self._numbers[module] = _put(module, call, always_call=always_call)

    def _keep_one(self, module: nn.Module) -> None:
        self.keep({module})


def drop_calls(module: nn.Module, state: HookState | None) -> None:
    """Remove the calls of a hook, or with None of deleted hooks, from a module and its parts."""
    for part in module.modules():
        hooks = {**part._forward_hooks, **part._forward_pre_hooks}  # noqa: SLF001
        for number, hook in hooks.items():
            if isinstance(hook, ModuleCall) and hook.is_of(state):
                _take(part, number)
