"""The blocks that were registered, and what they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mxnet.gluon import Block, HybridBlock, Parameter
from mxnet.gluon.loss import Loss

from hook_layer.errors import HookConfigurationError

__all__ = ["RegisteredBlocks", "is_loss", "is_trained", "name_of", "parts_of"]


class RegisteredBlocks:
    """Models and losses that were registered; `names` has the blocks of models, without losses."""

    def __init__(self) -> None:
        self.models: list[Block] = []
        self.names: dict[Block, str] = {}
        self.losses: set[Block] = set()
        self._parameters: dict[Block, list[Parameter]] = {}

    def add_model(self, block: Block) -> list[Block]:
        """Add a model, and return the losses that are part of it.

        Raises:
            HookConfigurationError: It is no block, or was registered before.
        """
        if not isinstance(block, Block):
            raise HookConfigurationError(f"block={block!r:.200} must be a mxnet.gluon.Block")
        if block in self.names:
            raise HookConfigurationError(
                f"the block {name_of(block)} is already registered; register it once"
            )
        for part in parts_of(block):
            if part in self.models:
                raise HookConfigurationError(
                    f"{name_of(part)}, a part of {name_of(block)}, is already registered, "
                    "and each forward pass would count as two steps; register only "
                    f"{name_of(block)}"
                )
        self.models.append(block)
        self.refresh(block)
        return [part for part in parts_of(block) if is_loss(part) and self.add_loss(part)]

    def add_loss(self, block: Block) -> bool:
        """Add a loss; False if it was added before.

        Raises:
            HookConfigurationError: It is no block.
        """
        if not isinstance(block, Block):
            raise HookConfigurationError(
                f"loss={block!r:.200} must be a mxnet.gluon.Block, e.g. gluon.loss.L2Loss()"
            )
        if block in self.losses:
            return False
        self.losses.add(block)
        self.names.pop(block, None)
        return True

    def refresh(self, model: Block) -> None:
        """Look again at what a model is made of: layers may be added until it is called."""
        for part in parts_of(model):
            if part not in self.losses:
                self.names[part] = name_of(part)
        self._parameters.pop(model, None)

    def parameters(self, model: Block) -> list[Parameter]:
        """Return a model's parameters."""
        known = self._parameters.get(model)
        if known is None:
            known = self._parameters[model] = list(model.collect_params().values())
        return known

    def all_parameters(self) -> Iterator[Parameter]:
        """Return the parameters of all models."""
        for model in self.models:
            yield from self.parameters(model)

    def named_like(self, is_wanted: Callable[[str], bool]) -> set[Block]:
        """Return the blocks whose name is wanted."""
        return {block for block, name in self.names.items() if is_wanted(name)}

    def graphs(self) -> Iterator[HybridBlock]:
        """Return the outermost blocks of all models that run as a whole: they are hybridized."""
        for model in self.models:
            yield from _graphs_in(model)


def _graphs_in(block: Block) -> Iterator[HybridBlock]:
    if isinstance(block, HybridBlock) and block._active:  # noqa: SLF001 - no public way
        yield block
        return
    for child in block._children.values():  # noqa: SLF001 - as above
        yield from _graphs_in(child)


def parts_of(block: Block) -> Iterator[Block]:
    """Return a block and all blocks in it, from the outside to the inside."""
    yield block
    for child in block._children.values():  # noqa: SLF001 - the public `apply` calls a function
        yield from parts_of(child)


def name_of(block: Block) -> str:
    """Return a block's name; its type's where its prefix is empty, for then it has none."""
    return block.name or type(block).__name__.lower()


def is_loss(block: Block) -> bool:
    """Return whether a block computes a loss: by its type, or the name of that.

    A block with parameters to train, as a network together with its loss, is a model.
    """
    if isinstance(block, Loss) or not isinstance(block, Block):
        return isinstance(block, Loss)
    return type(block).__name__.endswith("Loss") and not is_trained(block)


def is_trained(block: Block) -> bool:
    """Return whether a block has parameters to train."""
    return any(parameter.grad_req != "null" for parameter in block.collect_params().values())
