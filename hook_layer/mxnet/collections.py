"""The collections that exist for MXNet, and how they find blocks.

A collection of one of the names `relu_input`, `relu_output`, `sigmoid_input`, `sigmoid_output`,
`tanh_input` and `tanh_output` takes the inputs or outputs of all blocks `nn.Activation` of that
type, also those within `nn.Dense(..., activation="relu")`, besides what its user put into it. There
is none unless its user makes it or asks for it; where it is asked for, it may stay empty.
"""

from __future__ import annotations

from typing import Final

from mxnet.gluon import Block, nn

from hook_layer.configuration.collections import CollectionKeys
from hook_layer.configuration.hook_setup import FrameworkDefaults
from hook_layer.configuration.layer_collections import LayerCollection
from hook_layer.errors import HookConfigurationError
from hook_layer.mxnet.blocks import name_of

__all__ = ["DEFAULTS", "Collection"]


class Collection(LayerCollection):
    """A collection that can take the inputs and outputs of blocks; else as the base class."""

    layer_kind = "block"

    def is_of(self, layer_type: str, layer: Block) -> bool:
        """Return whether a block is an activation of a type."""
        return isinstance(layer, nn.Activation) and layer._act_type == layer_type  # noqa: SLF001

    def shown(self, layer: Block) -> str:
        """Return a block as messages show it."""
        return name_of(layer)

    def add_block_tensors(self, block: Block, inputs: bool = False, outputs: bool = True) -> None:
        """Add the inputs, outputs or both of a block that is (part of) a registered one."""
        if not isinstance(block, Block):
            raise HookConfigurationError(f"block={block!r:.200} must be a mxnet.gluon.Block")
        self.add_layer(block, inputs=inputs, outputs=outputs)


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
