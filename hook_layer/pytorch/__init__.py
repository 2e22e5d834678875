"""The hook for PyTorch: `from hook_layer.pytorch import Hook`.

Where the hook looks in, in a training loop:

    hook = Hook("s3://bucket/mnist-7")              # nothing is written before the first step
    hook.register_module(model)
    hook.register_loss(criterion)
    for inputs, labels in batches:
        outputs = model(inputs)                     # STEP BEGINS, before the forward pass of the
                                                    #   registered module: the step before is handed
                                                    #   over if it is still open; a stop request is
                                                    #   raised; weights and biases are captured
                                                    # MODULE FORWARD: inputs and outputs of modules
        loss = criterion(outputs, labels)           # LOSS FORWARD: loss and its inputs
        optimizer.zero_grad()
        loss.backward()                             # BACKWARD ENDED: gradients, as they are in
                                                    #   `parameter.grad`
        optimizer.step()                            # STEP IS CAPTURED, before parameters change: it
                                                    #   is handed to the writer's thread
        hook.save_scalar("lr", lr)                  # belongs to this step, too; see below
    hook.close()                                    # also on exit: waits for the writer, end marker

A step is one forward pass of the registered module. Weights have the values before the step.
Under gradient accumulation each forward pass is a step, and its gradients are the sums so far.
In a loop without a `torch.optim` optimiser a step is captured when all gradients have arrived, and
where neither happens (evaluation) it ends where the next one begins, at `set_mode` or at `close`.
What is saved behind the optimiser's step keeps steps open until the next one begins, from the first
time that it is seen; `hook_layer.recorder` says how. In the modes EVAL and PREDICT gradients are
not saved.

Gradients are read when the backward pass has ended, before a script clips them. Where a
`torch.amp.GradScaler` scales the loss they are read when it lets the optimiser step: unscaled, as
the optimiser uses them, hence clipped if the script clips them. Then a step that the scaler leaves
out has none, and under accumulation only the last forward pass before the optimiser's step.

A compiled model has the same tensors under the same names as before. It may be registered before or
after `torch.compile`, but ahead of its first call: what is compiled by then does not see the hook
(the first step of its optimiser logs that). `torch.jit.script` refuses models with hooks, this one
too; a copy (`copy.deepcopy`, `torch.save`, another process) is a model that is not watched.

Names: parameters `{RootClass}_{parameter}`, gradients `gradient/{RootClass}_{parameter}`, inputs
and outputs of modules `{module}_input_{i}` and `{module}_output_{i}` (the root and losses under
their class name), `scalar/{name}`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from hook_layer.collections import CollectionKeys
from hook_layer.config import hook_enabled, resolve_out_dir
from hook_layer.errors import HookConfigurationError, TrainingStoppedError
from hook_layer.format.modes import ModeKeys
from hook_layer.format.modes import ModeKeys as modes  # noqa: N813 - the original's name
from hook_layer.hook_options import HookOptions, HookReport, OnStop, check_arguments
from hook_layer.pytorch.collections import Collection, make_manager
from hook_layer.pytorch.events import TorchEvents
from hook_layer.reductions import ReductionConfig
from hook_layer.save_config import SaveConfig, SaveConfigMode
from hook_layer.stop_signal import DEFAULT_STOP_POLL_S
from hook_layer.storage.base import open_store
from hook_layer.writer import DEFAULT_MAX_WAIT_S, DEFAULT_QUEUE_BYTES, OnFull

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "HookReport",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "TrainingStoppedError",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]


class Hook(TorchEvents):
    """Captures tensors of a PyTorch training job; see this module for when and under which names.

    Args:
        out_dir: Folder, or `s3://bucket/prefix`.
        export_tensorboard: Not available yet.
        tensorboard_dir: Not available yet.
        dry_run: Decide everything and store nothing.
        reduction_config: What is stored of a tensor; default: its value.
        save_config: When; default: every 500 steps.
        include_regex: Save also tensors whose name matches one of these.
        include_collections: Save also these collections; `losses` always is.
        save_all: Save everything.
        include_workers: `one` or `all` of the workers of torch.distributed.
        statistics: Whether the index gets statistics of every captured tensor.
        stop: `raise` lets a stop request raise `TrainingStoppedError` where the next step would
            begin; `flag` only sets `hook.should_stop`.
        stop_poll_s: Time between two looks for a stop request, seconds.
        on_full: `wait` holds training up while the writer's memory is full, `drop` drops steps.
        queue_bytes: The writer's memory bound, bytes.
        close_timeout_s: How long `close` waits for the writer, seconds; None: for ever.
        max_wait_s: How long `wait` waits while nothing is stored, seconds; then steps are dropped.

    Raises:
        HookConfigurationError: An argument makes no sense.
    """

    def __init__(  # noqa: PLR0917 - the original's arguments
        self,
        out_dir: str | os.PathLike[str] | None = None,
        export_tensorboard: bool = False,
        tensorboard_dir: str | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | SaveConfigMode | Mapping[ModeKeys, SaveConfigMode] | None = None,
        include_regex: str | Iterable[str] | None = None,
        include_collections: str | Iterable[str] | None = None,
        save_all: bool = False,
        include_workers: str = "one",
        *,
        statistics: bool = True,
        stop: OnStop = "raise",
        stop_poll_s: float = DEFAULT_STOP_POLL_S,
        on_full: OnFull = "wait",
        queue_bytes: int = DEFAULT_QUEUE_BYTES,
        close_timeout_s: float | None = 600.0,
        max_wait_s: float = DEFAULT_MAX_WAIT_S,
    ) -> None:
        check_arguments(export_tensorboard, tensorboard_dir, include_workers)
        options = HookOptions(
            statistics, stop, stop_poll_s, on_full, queue_bytes, close_timeout_s, max_wait_s
        )
        manager = make_manager(
            reduction_config=reduction_config,
            save_config=save_config,
            include_regex=include_regex,
            include_collections=include_collections,
            save_all=save_all,
        )
        where = resolve_out_dir(out_dir) if hook_enabled() else "memory://switched-off"
        all_workers = include_workers == "all"
        super().__init__(
            open_store(where), manager, options, dry_run=dry_run, all_workers=all_workers
        )
        set_hook(self)

    def register_module(self, module: nn.Module) -> None:
        """Watch a model: each of its forward passes is a step.

        Raises:
            HookConfigurationError: It is no module, or was registered before.
        """
        model = self._registered.add_model(module)
        if self.is_active:
            self._watch_model(model)

    def register_hook(self, module: nn.Module) -> None:
        """Same as `register_module`."""
        self.register_module(module)

    def register_loss(self, loss_module: nn.Module) -> None:
        """Watch a loss, any module: its output becomes part of the collection `losses`.

        Raises:
            HookConfigurationError: It is no module.
        """
        loss = self._registered.add_loss(loss_module)
        if self.is_active and loss is not None:
            self._watch_loss(loss)

    def record_tensor_value(self, tensor_name: str, tensor_value: Tensor) -> None:
        """Capture the value of a functional loss, e.g. `F.mse_loss(...)`, as `<name>_output_0`."""
        self._capture_loss(tensor_name, (), tensor_value)


_hook: Hook | None = None


def get_hook() -> Hook | None:
    """Return the hook that was made or set last, None without one or where hooks are off."""
    return _hook if hook_enabled() else None


def set_hook(custom_hook: Hook) -> None:
    """Make a hook the one that `get_hook` returns."""
    if not isinstance(custom_hook, Hook):
        raise HookConfigurationError(f"custom_hook={custom_hook!r} must be a Hook")
    global _hook  # noqa: PLW0603 - the original's interface
    _hook = custom_hook


def del_hook() -> None:
    """Forget the hook that `get_hook` returns; the hook itself goes on."""
    global _hook  # noqa: PLW0603 - the original's interface
    _hook = None
