"""Adding a hook to the first monitored session of a script of TensorFlow 1 that has none.

A graph does not show which of its tensors are the loss and the gradients. So the hook notes what
the optimisers compute while the script builds its graph. The hook is made when the first session
opens whose graph has gradients; other sessions, as for an evaluation, are not watched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from hook_layer.autopatch.hook_source import HookSource, has_hook
from hook_layer.capture.patched_functions import patch, replacing
from hook_layer.tensorflow import SessionHook, modes

__all__ = ["watch_unchanged"]


def watch_unchanged(source: HookSource) -> None:
    """Make a hook for the first session of this process that trains."""
    train = tf.compat.v1.train
    sessions = _Sessions(source)
    patch(train.Optimizer, "compute_gradients", after=sessions.note_gradients)
    patch(train.Optimizer, "apply_gradients", after=sessions.note_optimizer)
    for kind in (train.MonitoredSession, train.SingularMonitoredSession):
        patch(kind, "__init__", before=replacing(kind.__init__, "hooks", sessions.hooks))


class _Sessions:
    """The sessions of this process, and the optimisers of their graphs."""

    def __init__(self, source: HookSource) -> None:
        self._source = source
        self._gradients: WeakKeyDictionary[Any, list[tuple[Any, Any]]] = WeakKeyDictionary()
        self._optimizers: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()
        self._has_hook = False

    def note_gradients(self, result: Any, _: Any, loss: Any, *__: Any, **___: Any) -> None:
        """Note what an optimiser computed."""
        if self._has_hook:
            return
        graph = tf.compat.v1.get_default_graph()
        self._gradients.setdefault(graph, []).append((loss, result))

    def note_optimizer(self, _: Any, optimizer: Any, *__: Any, **___: Any) -> None:
        """Note that an optimiser has made its variables."""
        if self._has_hook:
            return
        self._optimizers.setdefault(tf.compat.v1.get_default_graph(), []).append(optimizer)

    def hooks(self, arguments: Mapping[str, Any]) -> Any:
        """Return the hooks of a session, with one of ours if it needs one."""
        given = arguments.get("hooks")
        hooks = list(given or ())
        if has_hook(hooks):
            self._has_hook = True
        graph = tf.compat.v1.get_default_graph()
        if self._has_hook or not self._gradients.get(graph):
            return given
        self._has_hook = True
        hook = self._source.make(SessionHook)
        if hook is None:
            return given
        hook.set_mode(modes.TRAIN)
        for loss, gradients in self._gradients[graph]:
            hook.note_gradients(loss, gradients)
        for optimizer in self._optimizers.get(graph, ()):
            hook.note_optimizer(optimizer)
        self._gradients.clear()
        self._optimizers.clear()
        return [*hooks, hook]
