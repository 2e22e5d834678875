"""The hook for Keras 3: `from hook_layer.keras import KerasHook`.

Where the hook looks in, on the backends tensorflow, torch and jax:

    hook = KerasHook("s3://bucket/mnist-7", include_collections=["weights", "gradients"])
    model.fit(data, labels, validation_data=..., callbacks=[hook])

    for batch in batches:                           # in fit, evaluate and predict
        hook.on_train_batch_begin(...)              # STEP BEGINS, of mode TRAIN, EVAL or PREDICT;
                                                    #   weights and the optimiser's variables are
                                                    #   captured, as they are before the step
        logs = model.train_function(iterator)       # STEP IS COMPUTED: where gradients, layers,
                                                    #   inputs, labels or predictions are due, by
                                                    #   another function of the same `train_step`
        hook.on_train_batch_end(..., logs)          # losses and metrics; STEP IS CAPTURED: it is
                                                    #   handed to the writer's thread; STOPPED HERE
                                                    #   if a rule asked for it
    hook.on_epoch_end(...)                          # `val_loss` and the like: for the next saved
                                                    #   step
    hook.close()                                    # also on exit: waits for the writer, end marker

A step in which nothing within is due is computed by Keras's own function, compiled as without a
hook. For the others a second one is traced (`hook_layer.keras.inside`), once for each shape of
batches: with XLA too everything is saved. Results are the same bit by bit, but for one case: with
`jit_compile=True` on TensorFlow what is given out of a step keeps XLA from fusing what lies around
it, so that such a step may round differently.

`loss` and the metrics are what Keras tells: means since the epoch began. With
`steps_per_execution` a step is one execution; what lies within it is of its last batch (of
`predict` it is not saved).

**Names** are those of the original with TensorFlow 2: weights `dense/weights/dense/kernel:0`,
gradients `gradients/dense/kernelGrad`, `dense/inputs`, `dense/outputs`, of the model `inputs`,
`labels`, `predictions` (all of these with `_0`, `_1` ... if there are several in a step), `loss`,
`accuracy`, `val_loss`, `batch`, the optimiser's variables by their paths, `adam/iteration:0`.
`hook_layer.keras.names` says how layers within layers are named, `hook_layer.keras.collections` how
`relu_output` and the like find theirs.

**Gradients** are those that the optimiser is given, before it clips or accumulates them; of a
scaled loss (`mixed_float16`) unscaled, and in a step that is left out none. A model may have
several optimisers, in a `train_step` of its own too.

**Loops of your own** around `tf.GradientTape`: `hook.wrap_tape`, see `hook_layer.keras.tape`.

**Several replicas** (`tf.distribute.MirroredStrategy`): gradients are summed over them, as the
optimiser does; what else lies within a step is the first one's.

**Not saved**, which the log says once: steps of `model.train_on_batch` (said where the model is
registered, and in scripts without a hook of their own); gradients of what is no variable; what lies
within a loop or branch of TensorFlow's graph (a cell of a recurrent layer; the layer itself is);
all within steps whose TensorFlow code draws random numbers by `tf.random` with a seed (not
`keras.random`), for a second function would draw others; layers, inputs, labels and predictions of
a model that `torch.compile` compiles (`jit_compile=True` with PyTorch), and all of a loop of your
own that XLA compiles. On accelerators values are copied to the host before they are reduced.

A stop request sets `model.stop_training`: `fit` ends behind the step, and nothing is raised; in a
loop of your own `TrainingStoppedError` is, where the next step begins (within a `tf.function`
TensorFlow makes an error of its own of it). `hook.stop_reason` says why.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

from hook_layer.install_hint import install_hint

try:
    from keras import ops as _of_keras_3  # noqa: F401 - Keras 2 has none
except ImportError as error:
    raise ImportError(
        f"hook_layer.keras needs Keras 3 and one of its backends: {install_hint('keras')}, and "
        "`pip install tensorflow`, torch or jax",
        name="keras",
    ) from error

from hook_layer.collections import CollectionKeys
from hook_layer.core.original_hook import OriginalHook, missing_name
from hook_layer.current_hook import CurrentHook
from hook_layer.errors import TrainingStoppedError
from hook_layer.format.modes import ModeKeys as modes  # noqa: N813 - the original's name
from hook_layer.keras.collections import DEFAULTS, Collection
from hook_layer.keras.loops import KerasLoops
from hook_layer.reductions import ReductionConfig
from hook_layer.report import HookReport
from hook_layer.save_config import SaveConfig, SaveConfigMode

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "HookReport",
    "KerasHook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "TrainingStoppedError",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]


class KerasHook(OriginalHook, KerasLoops):
    """Captures tensors of a Keras training; see this module for when and under which names.

    Args:
        out_dir: Folder, or `s3://bucket/prefix`.
        export_tensorboard: Write TensorBoard's files, to `out_dir/tensorboard`.
        tensorboard_dir: Write them, and write them there: a folder, or `s3://bucket/prefix`.
        dry_run: Decide everything and store nothing.
        reduction_config: What is stored of a tensor; default: its value.
        save_config: When; default: every 500 steps.
        include_regex: Save also tensors whose name matches one of these.
        include_collections: Save also these collections, by name or as `CollectionConfig`;
            `losses` and `metrics` always are.
        save_all: Save everything.
        include_workers: `one`; with `all` too only the process of rank 0 writes, and the log says
            so.
        configuration: What a configuration file says, as `create_from_json_file` passes it; then
            none of the other arguments may be given.
        **options: Further options, see `hook_layer.hook_options.HookOptions`: `statistics stop
            stop_poll_s on_full queue_bytes close_timeout_s max_wait_s spool_bytes spool_dir
            max_step_bytes max_run_bytes termination_timeout_s`.

    Raises:
        HookConfigurationError: An argument makes no sense.
    """

    _defaults = DEFAULTS
    current: ClassVar[CurrentHook[KerasHook]] = CurrentHook()


Hook = KerasHook


def get_hook(
    json_config_path: str | os.PathLike[str] | None = None, create_if_not_exists: bool = False
) -> KerasHook | None:
    """Return the hook that was made or set last, or one that is made of a configuration file.

    Args:
        json_config_path: The file; None: as `KerasHook.create_from_json_file` finds it.
        create_if_not_exists: Whether one is made if there is none.

    Returns:
        The hook; None without hook and file, and where `USE_SMDEBUG` switches hooks off.

    Raises:
        HookConfigurationError: The file has a mistake.
    """
    return KerasHook.current.get(
        KerasHook, json_config_path, create_if_not_exists=create_if_not_exists
    )


def set_hook(custom_hook: KerasHook) -> None:
    """Make a hook the one that `get_hook` returns."""
    KerasHook.current.set(KerasHook, custom_hook)


def del_hook() -> None:
    """Forget the hook that `get_hook` returns; the hook itself continues."""
    KerasHook.current.forget()


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name)
