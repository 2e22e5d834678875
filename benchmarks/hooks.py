"""What is attached to a training: ours, and what else one could use for the same."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn

from benchmarks.measuring import empty
from hook_layer.pytorch import Hook, ReductionConfig, SaveConfig

__all__ = ["Attachment", "Kind", "of_hook", "ours", "peers"]

Kind: TypeAlias = Literal["statistics", "raw", "losses"]
TENSORS = ["weights", "gradients", "biases"]
_EVERY: dict[Kind, int] = {"statistics": 3, "raw": 3, "losses": 4}
"""In which rounds the others take part: they need much time, or little precision."""


def _nothing(*_: object) -> None:
    """Do nothing."""


@dataclass
class Attachment:
    """Something that watches a training.

    Attributes:
        attach: Called with the model and the loss module.
        before_update: Called with the model and the loss, after the backward pass of every step.
        settle: Waits until all is stored.
        tidy: Gives back the memory of what was stored.
        close: Ends it.
        every: It is measured in each `every`-th round only.
    """

    attach: Callable[[nn.Module, nn.Module], object] = _nothing
    before_update: Callable[[nn.Module, Tensor], object] = _nothing
    settle: Callable[[], object] = _nothing
    tidy: Callable[[], object] = _nothing
    close: Callable[[], object] = _nothing
    every: int = 1


def ours(kind: Kind, folder: Path) -> Attachment:
    """Return our hook."""
    options: dict[str, Any] = {} if kind == "losses" else {"include_collections": TENSORS}
    if kind == "statistics":
        options["reduction_config"] = ReductionConfig(save_raw_tensor=False)
    hook = Hook(folder, save_config=SaveConfig(save_interval=1), **options)
    return of_hook(hook, hook.flush, folder, every=1)


def peers(kind: Kind, folder: Path, only: Collection[str] | None = None) -> dict[str, Attachment]:
    """Return the others that can do it, by name; of these `only` some."""
    makers: dict[str, Callable[[Kind, Path], Attachment]] = {"smdebug": _smdebug}
    if kind == "raw":
        makers |= {"file.write": _file_write, "safetensors": _safetensors}
    else:
        makers |= {"TensorBoard": _tensorboard, "wandb": _wandb}
    chosen = makers.keys() if only is None else makers.keys() & set(only)
    return {name: make(kind, folder / name) for name, make in makers.items() if name in chosen}


def of_hook(hook: Any, settle: Callable[[], object], folder: Path, *, every: int) -> Attachment:
    """Return what attaches a hook like ours, given what waits until it has written."""

    def attach(model: nn.Module, loss: nn.Module) -> None:
        hook.register_module(model)
        hook.register_loss(loss)

    def tidy() -> None:
        for part in ("events", "index"):
            empty(folder / part)

    return Attachment(attach, settle=settle, tidy=tidy, close=hook.close, every=every)


def _smdebug(kind: Kind, folder: Path) -> Attachment:
    os.environ["SMDEBUG_LOG_LEVEL"] = "error"
    import smdebug.pytorch as smd  # noqa: PLC0415

    logging.getLogger("smdebug").setLevel(logging.ERROR)
    options: dict[str, Any] = {"include_collections": ["losses"]}
    if kind != "losses":
        options = {"include_collections": [*TENSORS, "losses"]}
    if kind == "statistics":
        options["reduction_config"] = smd.ReductionConfig(
            reductions=["min", "max", "mean", "std"], norms=["l2"]
        )
    hook = smd.Hook(str(folder), save_config=smd.SaveConfig(save_interval=1), **options)
    return of_hook(hook, _nothing, folder, every=_EVERY[kind])


def _tensorboard(kind: Kind, folder: Path) -> Attachment:
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

    writer: Any = SummaryWriter(folder)
    step = 0

    def write(model: nn.Module, loss: Tensor) -> None:
        nonlocal step
        step += 1
        if kind == "losses":
            writer.add_scalar("loss", loss.item(), step)
            return
        for name, parameter in model.named_parameters():
            writer.add_histogram(name, parameter, step)
            writer.add_histogram(f"gradient/{name}", parameter.grad, step)

    return Attachment(
        before_update=write, settle=writer.flush, close=writer.close, every=_EVERY[kind]
    )


def _wandb(kind: Kind, folder: Path) -> Attachment:
    os.environ |= {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",
    }
    import wandb  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    run: Any = wandb.init(
        dir=str(folder), project="benchmark", settings=wandb.Settings(console="off")
    )

    def attach(model: nn.Module, _: nn.Module) -> None:
        if kind != "losses":
            run.watch(model, log="all", log_freq=1)

    def write(_: nn.Module, loss: Tensor) -> None:
        run.log({"loss": loss.item()})

    return Attachment(attach, write, close=run.finish, every=_EVERY[kind])


def _each_step(folder: Path, save: Callable[[nn.Module, Path], object]) -> Attachment:
    folder.mkdir(parents=True, exist_ok=True)
    step = 0

    def write(model: nn.Module, _: Tensor) -> None:
        nonlocal step
        step += 1
        save(model, folder / str(step))

    return Attachment(before_update=write, tidy=lambda: empty(folder), every=_EVERY["raw"])


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    named = dict(model.named_parameters())
    values = {name: parameter.detach() for name, parameter in named.items()}
    gradients = {f"gradient/{n}": p.grad for n, p in named.items() if p.grad is not None}
    return values | gradients


def _file_write(_: Kind, folder: Path) -> Attachment:
    def save(model: nn.Module, path: Path) -> None:
        with path.open("wb", buffering=0) as file:
            for value in _tensors(model).values():
                file.write(value.numpy().data.cast("B"))

    return _each_step(folder, save)


def _safetensors(_: Kind, folder: Path) -> Attachment:
    from safetensors.torch import save_file  # noqa: PLC0415

    return _each_step(folder, lambda model, path: save_file(_tensors(model), path))
