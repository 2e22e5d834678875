"""The hook for MXNet Gluon: `from hook_layer.mxnet import Hook`.

Where the hook looks in, in a training loop:

    hook = Hook("s3://bucket/mnist-7")              # nothing is written before the first step
    hook.register_block(net)
    hook.register_block(loss_function)              # where a block computes the loss
    for inputs, labels in batches:
        with autograd.record():
            outputs = net(inputs)                   # STEP BEGINS, before the forward pass of the
                                                    #   registered block: the step before is handed
                                                    #   over if it is still open; a stop request is
                                                    #   raised; weights and biases are captured
                                                    # BLOCK FORWARD: inputs and outputs of blocks
            loss = loss_function(outputs, labels)   # LOSS FORWARD: loss and its inputs
        loss.backward()                             # BACKWARD: a loss without a block
        trainer.step(batch_size)                    # TRAINER STEPS: the optimiser's state, as it
                                                    #   was before
                                                    # TRAINER UPDATES: gradients, as the optimiser
                                                    #   gets them
                                                    # STEP IS CAPTURED: it is handed to the writer's
                                                    #   thread
        hook.save_scalar("lr", trainer.learning_rate)   # belongs to this step, too
    hook.close()                                    # also on exit: waits for the writer, end marker

MXNet computes in the background, and the hook never waits for it: it orders copies, which the
writer's thread reads. In steps in which nothing is due nothing is copied.

A **step** is one forward pass of the registered block. Where gradients are accumulated
(`grad_req="add"`) each forward pass is a step then, and its gradients are the sums so far. A block
whose parameters are on several contexts (`initialize(ctx=[mx.cpu(0), mx.cpu(1)])`) is called once
on each: these forward passes are one step, until the Trainer has stepped or a context comes again.
Then weights are those of the first context, gradients the sums over all, as the Trainer uses them,
and inputs, outputs and losses of the contexts are numbered one after the other
(`conv0_output_0`, `conv0_output_1`).

Weights and the optimiser's state have the values before the step; the original saves weights as
they are when the next step begins. Gradients are those that `Trainer.step` gives to the optimiser:
clipped if the script clips them, summed over the batch as in `parameter.grad()` (the optimiser
divides them by the batch size), and unscaled where `mxnet.contrib.amp` scales the loss. Without a
Trainer they are those of the backward pass. In the modes EVAL and PREDICT neither gradients nor the
state of optimisers are saved. The mode is GLOBAL until `hook.set_mode` says another one.

**Losses** that no block computes are known from the backward pass: in a step in which no registered
loss was called, whatever `backward` starts from is saved as `Loss_output_{i}`, unless it is given
gradients of its own (`out_grad`). A loss that is saved by `save_tensor(name, value, "losses")` has
a name of its own, and from then on those without a name are not saved.

**Hybridized blocks** run as one graph, whose blocks MXNet does not call any more. Parameters,
gradients, losses, and the inputs and outputs of the hybridized block itself are captured as
always. Inputs and outputs of blocks inside of it have the same names and values as before; for them
the graph is traced once more, and in steps in which they are due runs as a copy that tells of its
values (`hook_layer.mxnet.graphs`). Not seen are values that a backend (`hybridize(backend=...)`,
`optimize_for`) joins with others, and those that are no value of the graph; that is logged. MXNet's
warning that hooks of a hybridized block have no effect is not true of ours.

**Not seen**: references to `autograd.backward` that were taken before a block was registered;
parameters that are sparse (their gradients neither; sparse gradients of dense ones are). With
several workers of Horovod the first one writes; those of a parameter server do not know each other,
so make a hook in one of them only. The Module API of MXNet has no blocks.

Names: parameters `{parameter}`, e.g. `conv0_weight`, gradients `gradient/{parameter}`, inputs and
outputs of blocks `{block}_input_{i}` and `{block}_output_{i}`, losses too, e.g.
`softmaxcrossentropyloss0_output_0`, `scalar/{name}`, and, if the collection `optimizer_variables`
is included, `optimizer_variables/{parameter}/{i}`. MXNet counts the blocks of a process in their
names; give them a `prefix` for names that stay.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from hook_layer.install_hint import install_hint

try:
    from mxnet.gluon import Block
except ImportError as error:
    raise ImportError(
        f"hook_layer.mxnet needs MXNet 1.9: {install_hint('mxnet')}, with Python 3.11 or "
        f"older, because it needs numpy before 1.24 ({error})",
        name="mxnet",
    ) from error

from hook_layer.collections import CollectionKeys
from hook_layer.core.original_hook import OriginalHook, missing_name
from hook_layer.current_hook import CurrentHook
from hook_layer.errors import TrainingStoppedError
from hook_layer.format.modes import ModeKeys as modes  # noqa: N813 - the original's name
from hook_layer.mxnet.blocks import is_loss
from hook_layer.mxnet.collections import DEFAULTS, Collection
from hook_layer.mxnet.events import MxnetEvents
from hook_layer.reductions import ReductionConfig
from hook_layer.report import HookReport
from hook_layer.save_config import SaveConfig, SaveConfigMode

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
    """Captures tensors of an MXNet training job; see this module for when and under which names.

    The arguments are those of `hook_layer.core.original_hook.OriginalHook`. `losses` is always
    saved. Of the workers of Horovod the first one writes, also with `include_workers="all"`.
    """

    _defaults = DEFAULTS
    current: ClassVar[CurrentHook[Hook]]
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
