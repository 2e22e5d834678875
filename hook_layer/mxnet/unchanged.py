"""Finding the model and the losses of an MXNet script that has no hook.

The model is the outermost Gluon block with parameters to train that is called first in
`autograd.record()`: a pass outside of that may be that of a network that only makes features.
Losses are blocks of `gluon.loss`, and any outside of the model whose class is called `...Loss`.

Passes have the modes of autograd if the configuration saves other steps in one mode than in
another, as with `eval.save_interval`. Otherwise they have none, and all are counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final
from weakref import ref

from mxnet import autograd
from mxnet.gluon import Block

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.capture.patched_functions import patch
from hook_layer.errors import TrainingStoppedError
from hook_layer.mxnet import Hook, modes
from hook_layer.mxnet.blocks import is_loss, is_trained, parts_of
from hook_layer.mxnet.calls import BlockCall, arrays_in

__all__ = ["ModelSearch", "watch_unchanged"]

logger = logging.getLogger("stepwatch")

_MAX_PASSES: Final = 2
"""Forward passes of the model in training during which losses are looked for."""
_searches: Final[list[ModelSearch]] = []
"""Keeps them alive: the model knows its search weakly."""


def watch_unchanged(source: HookSource) -> None:
    """Make a hook for the first model that is trained in this process."""
    search = ModelSearch(source)
    _searches.append(search)
    search.begin()


class ModelSearch:
    """Looks for the model and for its losses."""

    def __init__(self, source: HookSource) -> None:
        self._source = source
        self._hook: Hook | None = None
        self._model: Callable[[], Block | None] = lambda: None
        self._num_passes = 0
        self._warned_of_another = False
        self._mode_call: BlockCall | None = None
        self._restore: Callable[[], None] | None = None  # as long as blocks are looked at

    def begin(self) -> None:
        """Look at every block that is called."""
        self._restore = patch(Block, "__call__", before=self._on_call)

    def _end(self) -> None:
        restore, self._restore = self._restore, None
        if restore is not None:
            restore()

    def leave(self) -> bool:
        """End the search and leave modes to the hook; return whether a model was found."""
        self._end()
        has_model, self._hook, self._mode_call = self._hook is not None, None, None
        return has_model

    # What happens in the script ------------------------------------------------------------------

    def _on_call(self, args: tuple[Any, ...], _: Any) -> None:
        if self._restore is not None and arrays_in(args):
            self._try(self._look_at, args[0])

    def _look_at(self, block: Block) -> None:
        if self._hook is None:
            if autograd.is_recording():
                self._find_model(block)
        elif block is self._model():
            self._num_passes += autograd.is_training()
            if self._num_passes > _MAX_PASSES:
                self._end()
        elif self._is_in_model(block):
            return
        elif is_loss(block):
            self._hook.register_loss(block)
        elif not self._warned_of_another and autograd.is_recording() and is_trained(block):
            self._warned_of_another = True
            logger.warning("only the first model of a process is watched; %s is not", block.name)

    def _on_pass(self, model: Block, inputs: Any, _: Any) -> None:
        if arrays_in(inputs):
            self._try(self._set_mode, model)

    # What is made of it --------------------------------------------------------------------------

    def _find_model(self, block: Block) -> None:
        if not self._source.is_needed():
            self._end()
        elif not is_loss(block) and is_trained(block):
            hook = self._source.make(Hook)
            if hook is None:
                self._end()
                return
            self._hook, self._model = hook, ref(block)
            if self._source.decides_steps and hook.collection_manager.differs_by_mode:
                self._mode_call = BlockCall.before(block, self._on_pass)  # before the hook's
            hook.watch_block(block)

    def _set_mode(self, _: Block) -> None:
        mode = modes.TRAIN if autograd.is_training() else modes.EVAL
        if self._hook is not None and self._hook.mode is not mode:
            self._hook.set_mode(mode)

    def _is_in_model(self, block: Block) -> bool:
        model = self._model()
        return model is not None and any(part is block for part in parts_of(model))

    def _try(self, function: Callable[[Block], object], block: Block) -> None:
        try:
            function(block)
        except TrainingStoppedError:
            raise
        except Exception:
            logger.exception("finding the model failed; the script runs without a hook")
            self._end()
