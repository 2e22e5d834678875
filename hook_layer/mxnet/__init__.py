"""The hook for MXNet Gluon: `from hook_layer.mxnet import Hook`.

The page `docs/reference/frameworks.md` has the names of tensors and the order of events in a step.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from hook_layer.frameworks import MXNET

try:
    from mxnet.gluon import Block
except ImportError as error:
    raise MXNET.missing() from error

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
from hook_layer.core.original_hook import OriginalHook, missing_name
from hook_layer.current_hook import CurrentHook
from hook_layer.errors import TrainingStoppedError
from hook_layer.format.modes import ModeKeys as modes  # noqa: N813 - the original's name
from hook_layer.mxnet.blocks import is_loss
from hook_layer.mxnet.collections import DEFAULTS, Collection
from hook_layer.mxnet.events import MxnetEvents
from hook_layer.report import HookReport

if TYPE_CHECKING:
    from hook_layer.mxnet.unchanged import ModelSearch

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


class Hook(OriginalHook, MxnetEvents):
    """Captures tensors of an MXNet training job.

    The arguments are those of `hook_layer.core.original_hook.OriginalHook`. `losses` is always
    saved. Of the workers of Horovod the first one writes, also with `include_workers="all"`.
    """

    _defaults = DEFAULTS
    current: ClassVar[CurrentHook[Hook]]
    if TYPE_CHECKING:

        def get_collection(self, name: str, create: bool = True) -> Collection: ...  # noqa: D102

    _search: ModelSearch | None = None  # for a model that the script does not register

    def attach_to_first_model(self) -> None:
        """Watch the model that trains first, unless the script registers one by then."""
        if self.is_active:
            from hook_layer.autopatch.hook_of_script import HookOfScript  # noqa: PLC0415 - a cycle
            from hook_layer.mxnet.unchanged import ModelSearch  # noqa: PLC0415 - a cycle

            self._search = ModelSearch(HookOfScript(hook=ref(self)))
            self._search.begin()

    def register_block(self, block: Block) -> None:
        """Watch a model, each of whose forward passes is a step; or a loss.

        A loss is a `gluon.loss.Loss`, or a block without parameters to train whose class is called
        `...Loss`.

        Raises:
            HookConfigurationError: It is no block, or was registered before.
        """
        if is_loss(block):
            self.register_loss(block)
            return
        search, self._search = self._search, None
        if search is not None and search.leave():
            if block in self._blocks.registered.models:
                return
            self._replace_models()
        self.watch_block(block)

    def watch_block(self, block: Block) -> None:
        """Same as `register_block`, for a model that the script does not register.

        Raises:
            HookConfigurationError: It is no block, or was registered before.
        """
        losses = self._blocks.registered.add_model(block)
        if self.is_active:
            self._watch_model(block)
            for loss in losses:
                self._watch_loss(loss)

    def register_hook(self, block: Block) -> None:
        """Same as `register_block`."""
        self.register_block(block)

    def register_loss(self, block: Block) -> None:
        """Watch a loss, any block: its output becomes part of the collection `losses`.

        Raises:
            HookConfigurationError: It is no block.
        """
        if self._blocks.registered.add_loss(block) and self.is_active:
            self._watch_loss(block)

    # What the original registers with blocks, for scripts that do so themselves -------------------

    def forward_pre_hook(self, block: Block, inputs: Any) -> None:
        """Begin a step and capture the parameters of a registered model."""
        if block in self._blocks.registered.models:
            self._on_forward(block, inputs, None)

    def forward_hook(self, block: Block, inputs: Any, outputs: Any) -> None:
        """Capture inputs and outputs of a part of a registered model."""
        if block in self._blocks.registered.names:
            self._blocks.capture_block(block, inputs, outputs)


Hook.current = CurrentHook(Hook)
set_hook = Hook.current.set_hook
del_hook = Hook.current.del_hook


def get_hook(
    json_config_path: str | os.PathLike[str] | None = None, create_if_not_exists: bool = True
) -> Hook | None:
    """Return the current hook, see `CurrentHook.get_hook`; by default one is made."""
    return Hook.current.get_hook(json_config_path, create_if_not_exists)


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name)
