"""The hooks for TensorFlow: `import hook_layer.tensorflow as smd`.

For models of Keras, and loops with `tf.GradientTape`, there is `KerasHook`, which is that of
`hook_layer.keras`. `SessionHook` is for scripts of TensorFlow 1, with a graph and a session, as
they still run in TensorFlow 2 (`tf.compat.v1`):

    hook = SessionHook("s3://bucket/mnist-7")
    optimizer = hook.wrap_optimizer(tf.compat.v1.train.AdamOptimizer())
    train = optimizer.minimize(loss, global_step)   # the loss, its gradients and the optimiser's
                                                    #   variables become known
    with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                                                    # GRAPH COMPLETE: trainable variables, and the
                                                    #   losses in GraphKeys.LOSSES
        while not session.should_stop():
                                                    # STEP BEGINS with each run of the session;
                                                    #   variables that are due are read, by a run of
                                                    #   their own: before the step
            session.run(train)                      # tensors that are due are fetched with it
                                                    # STEP ENDS; where a stop is asked for:
                                                    #   session.should_stop() turns True

A **step** is one `session.run`, counted from 0 in the current mode (`hook.set_mode`; GLOBAL without
it). In steps in which nothing is due nothing is fetched. Of the due tensors a run gets those that
it computes anyway, and losses that follow from these: so a run of something else, as of an
evaluation in the same graph, does not fail for inputs that it is not given. Tensors of branches and
loops (`tf.cond`, `tf.while_loop` of TensorFlow 1), of functions, and those without numbers are not
saved.

**Names** are those of the graph: variables `w1:0`, losses `loss:0`, gradients
`gradients/.../MatMul_grad/...:0` (of slices, as an embedding's: their values). Collections:
`weights` and `biases` (trainable variables; the latter have `bias` in their name), `losses`,
`gradients`, `optimizer_variables`; what else is wanted by `include_regex`, by
`hook.add_to_collection(name, tensor)`, or by `save_all`. Variables have the values before the step.
What is fetched TensorFlow cannot fuse with what lies around it, so that it may round differently
in steps in which inputs and outputs of layers are saved.

**The end**: a stop request calls `run_context.request_stop()` behind a step, and nothing is raised.
With `stop="flag"` only `hook.should_stop` is set. The trial ends with the process, or at
`hook.close()`: a script may open another session.

`EstimatorHook` cannot be made any more: TensorFlow has had no `tf.estimator` since 2.16.
"""

from __future__ import annotations

import os
import sys
from typing import Any, ClassVar, Final

from hook_layer.install_hint import install_hint

try:
    import tensorflow as _tensorflow  # noqa: F401, ICN001 - no name of this module
except ImportError as error:
    raise ImportError(
        f"hook_layer.tensorflow needs TensorFlow: {install_hint('tensorflow')}",
        name="tensorflow",
    ) from error

from hook_layer.collections import CollectionKeys
from hook_layer.core.original_hook import OriginalHook, missing_name
from hook_layer.current_hook import CurrentHook
from hook_layer.errors import HookConfigurationError, nearest
from hook_layer.format.modes import ModeKeys as modes  # noqa: N813 - the original's name
from hook_layer.reductions import ReductionConfig
from hook_layer.report import HookReport
from hook_layer.save_config import SaveConfig, SaveConfigMode
from hook_layer.tensorflow.collections import DEFAULTS, Collection
from hook_layer.tensorflow.session import SessionEvents

__all__ = [
    "Collection",
    "CollectionKeys",
    "EstimatorHook",
    "HookReport",
    "KerasHook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "SessionHook",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]

_TYPES: Final = ("session", "estimator", "keras")


class SessionHook(OriginalHook, SessionEvents):
    """Captures tensors of a monitored session; see this module for when and under which names.

    The arguments are those of `hook_layer.core.original_hook.OriginalHook`. `losses` and `metrics`
    are always saved. `include_workers` is accepted for compatibility: each process with a session
    is a worker alone.
    """

    _defaults = DEFAULTS
    current: ClassVar[CurrentHook[SessionHook]]


SessionHook.current = CurrentHook(SessionHook)


class EstimatorHook:
    """The original's hook for `tf.estimator`, which TensorFlow does not have any more.

    Raises:
        HookConfigurationError: Always.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        raise HookConfigurationError(
            "TensorFlow has no tf.estimator since 2.16, so EstimatorHook does not work. "
            "Use Keras and KerasHook, or tf.compat.v1.train.MonitoredTrainingSession and "
            "SessionHook."
        )

    @classmethod
    def create_from_json_file(cls, json_file_path: Any = None) -> EstimatorHook:
        """Raise what making one raises."""
        return cls(json_file_path)


def get_hook(
    hook_type: str | None = None,
    json_config_path: str | os.PathLike[str] | None = None,
    create_if_not_exists: bool = False,
) -> Any:
    """Return the hook that was made or set last, or one that is made of a configuration file.

    Args:
        hook_type: `session` or `keras`; None: the former if there is one, else the latter.
        json_config_path: The file; None: as `create_from_json_file` finds it.
        create_if_not_exists: Whether one is made if there is none.

    Returns:
        The hook; None without hook and file, and where `USE_SMDEBUG` switches hooks off.

    Raises:
        HookConfigurationError: There is no such type, or no more; or the file has a mistake.
    """
    if hook_type not in (*_TYPES, None):
        raise HookConfigurationError(f"hook_type={hook_type!r}: {nearest(str(hook_type), _TYPES)}")
    if hook_type == "estimator":
        return EstimatorHook()
    if hook_type == "session" or (hook_type is None and SessionHook.current.get_hook() is not None):
        return SessionHook.current.get_hook(json_config_path, create_if_not_exists)
    from hook_layer import keras  # noqa: PLC0415 - only where it is used

    return keras.get_hook(json_config_path, create_if_not_exists)


def set_hook(custom_hook: Any) -> None:
    """Make a hook the one that `get_hook` returns for its type.

    Raises:
        HookConfigurationError: It is neither a SessionHook nor a KerasHook.
    """
    if isinstance(custom_hook, SessionHook):
        SessionHook.current.set_hook(custom_hook)
        return
    from hook_layer import keras  # noqa: PLC0415 - only where it is used

    keras.set_hook(custom_hook)


def del_hook() -> None:
    """Forget the hooks that `get_hook` returns; the hooks themselves go on."""
    SessionHook.current.del_hook()
    keras = sys.modules.get("hook_layer.keras")
    if keras is not None:
        keras.del_hook()


def __getattr__(name: str) -> Any:
    if name == "KerasHook":  # imports Keras, which scripts with a session need not have
        from hook_layer.keras import KerasHook  # noqa: PLC0415

        return KerasHook
    raise missing_name(__name__, name)
