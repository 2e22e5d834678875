"""The collections that exist for MXNet, and how they find blocks.

A collection of one of the names `relu_input`, `relu_output`, `sigmoid_input`, `sigmoid_output`,
`tanh_input` and `tanh_output` takes the inputs or outputs of all blocks `nn.Activation` of that
type, also those within `nn.Dense(..., activation="relu")`, besides what its user put into it. There
is none unless its user makes it or asks for it; where it is asked for, it may stay empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from mxnet.gluon import Block, nn

from hook_layer.collection_manager import CollectionManager, OnMistake
from hook_layer.collections import Collection as BaseCollection
from hook_layer.collections import CollectionKeys
from hook_layer.configuration.hook_setup import FrameworkDefaults
from hook_layer.errors import HookConfigurationError
from hook_layer.mxnet.blocks import name_of

__all__ = ["DEFAULTS", "Collection", "may_match", "resolve_blocks"]

_TRIED_INDEXES: Final = 16

_OF_LAYERS: Final = {
    f"{layer}_{kind}": (layer, kind)
    for layer in ("relu", "sigmoid", "tanh")
    for kind in ("input", "output")
}
"""Names of the collections that take the layers of a type: which type, and what of them."""


class Collection(BaseCollection):
    """A collection that can take the inputs and outputs of blocks; else as the base class."""

    _blocks: tuple[Block, ...] = ()
    _searched: tuple[int, int] = (0, 0)

    def add_block_tensors(self, block: Block, inputs: bool = False, outputs: bool = True) -> None:
        """Add the inputs, outputs or both of a block that is (part of) a registered one."""
        if not isinstance(block, Block):
            raise HookConfigurationError(f"block={block!r:.200} must be a mxnet.gluon.Block")
        self._blocks = (*self._blocks, block)
        for wanted, kind in ((inputs, "input"), (outputs, "output")):
            if wanted:
                self._include_tensors_of(name_of(block), kind)

    def check_blocks(self, names: Mapping[Block, str]) -> None:
        """Check that the blocks that were added can be met.

        Raises:
            HookConfigurationError: A block was not registered with the hook.
        """
        unknown = [block for block in self._blocks if block not in names]
        self._blocks = tuple(unknown)
        if unknown:
            raise HookConfigurationError(
                f"collection {self.name} has the block {name_of(unknown[0])}, which was not "
                "registered; call hook.register_block() with it or with a block around it"
            )

    def include_layers(self, names: Mapping[Block, str]) -> None:
        """Take the layers of the type that the collection is named after, if it is.

        Args:
            names: Names of the blocks that were registered; only ever more of them.
        """
        searched = id(names), len(names)
        if self.name not in _OF_LAYERS or searched == self._searched:
            return
        self._searched = searched
        layer, kind = _OF_LAYERS[self.name]
        for name in sorted({name for block, name in names.items() if _is_of(layer, block)}):
            self._include_tensors_of(name, kind)

    def _include_tensors_of(self, block_name: str, kind: str) -> None:
        pattern = f"^{re.escape(block_name)}_{kind}_"
        if pattern not in self.include_regex:
            self.include(pattern)


# As the original has them. Its expression for losses leaves those out whose name ends in a number
# of two digits, as the eleventh loss of a process: the hook adds losses by name.
DEFAULTS: Final = FrameworkDefaults(
    built_in={
        CollectionKeys.DEFAULT: (),
        CollectionKeys.ALL: (),
        CollectionKeys.WEIGHTS: ("^(?!gradient).*weight",),
        CollectionKeys.BIASES: ("^(?!gradient).*bias",),
        CollectionKeys.GRADIENTS: ("^gradient",),
        CollectionKeys.LOSSES: (".*loss._(?!input).*output",),
    },
    always_saved=(CollectionKeys.LOSSES,),
    collection_type=Collection,
)
"""The collections of MXNet's hook."""


def resolve_blocks(
    manager: CollectionManager,
    names: Mapping[Block, str],
    on_mistake: OnMistake | None = None,
) -> None:
    """Let collections take the layers of a type, and check the blocks that were added to them.

    Args:
        manager: The collections.
        names: Names of the blocks that were registered, losses too.
        on_mistake: Is told of collections with other blocks, which may be registered later; None:
            the first one is raised.

    Raises:
        HookConfigurationError: A block was not registered with the hook.
    """
    for name in _OF_LAYERS.keys() & manager.include - manager.built_in:
        manager.create_collection(name)
        manager.built_in |= {name}  # a model need not have such layers
    for collection in manager.collections.values():
        if isinstance(collection, Collection):
            collection.include_layers(names)
            try:
                collection.check_blocks(names)
            except HookConfigurationError as error:
                if on_mistake is None:
                    raise
                on_mistake(error)


def may_match(collections: Iterable[BaseCollection], block_name: str) -> bool:
    """Tell whether any input or output of a block may be in one of these collections."""
    indexes = range(_TRIED_INDEXES)
    names = [f"{block_name}_{kind}_{i}" for kind in ("input", "output") for i in indexes]
    return any(collection.matches(name) for name in names for collection in collections)


def _is_of(layer: str, block: Block) -> bool:
    return isinstance(block, nn.Activation) and block._act_type == layer  # noqa: SLF001
