"""The hooks for TensorFlow: `import hook_layer.tensorflow as smd`.

`KerasHook` is that of `hook_layer.keras`. `SessionHook` is for graphs and sessions of TensorFlow 1;
the page `docs/reference/frameworks.md` has the names of tensors and the order of events in a step.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hook_layer.frameworks import TENSORFLOW

try:
    import tensorflow as _tensorflow  # noqa: F401, ICN001 - no name of this module
except ImportError as error:
    raise TENSORFLOW.missing() from error

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
from hook_layer.core.original_hook import OriginalHook, missing_name
from hook_layer.current_hook import CurrentHook
from hook_layer.errors import HookConfigurationError, nearest
from hook_layer.format.modes import ModeKeys as modes  # noqa: N813 - the original's name
from hook_layer.report import HookReport
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
    """Captures tensors of a monitored session.

    The arguments are those of `hook_layer.core.original_hook.OriginalHook`. `losses` and `metrics`
    are always saved. `include_workers` is accepted for compatibility: each process with a session
    is a worker alone.
    """

    _defaults = DEFAULTS
    current: ClassVar[CurrentHook[SessionHook]]
    if TYPE_CHECKING:

        def get_collection(self, name: str, create: bool = True) -> Collection: ...  # noqa: D102


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
