"""Adding a hook to the first monitored session of a script of TensorFlow 1 that has none.

A graph does not show which of its tensors are the loss and the gradients. So the hook notes what
the optimisers compute while the script builds its graph. The hook is made when the first session
opens whose graph has gradients; other sessions, as for an evaluation, are not watched.
"""

from __future__ import annotations

import logging
from functools import wraps
from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.core.hook import BaseHook
from hook_layer.inactive_copy import InactiveCopy
from hook_layer.tensorflow import SessionHook, modes
from hook_layer.tracebacks import hide_frame

__all__ = ["watch_unchanged"]

logger = logging.getLogger("stepwatch")


def watch_unchanged(source: HookSource) -> None:
    """Make a hook for the first session of this process that trains."""
    train = tf.compat.v1.train
    sessions = _Sessions(source)
    _call_after(train.Optimizer, "compute_gradients", sessions.note_gradients)
    _call_after(train.Optimizer, "apply_gradients", sessions.note_optimizer)
    for kind in (train.MonitoredSession, train.SingularMonitoredSession):
        _add_hook_to(kind, sessions)


class _Sessions:
    """The sessions of this process, and the optimisers of their graphs."""

    def __init__(self, source: HookSource) -> None:
        self._source = source
        self._gradients: WeakKeyDictionary[Any, list[tuple[Any, Any]]] = WeakKeyDictionary()
        self._optimizers: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()
        self._has_hook = False

    def note_gradients(self, _: Any, result: Any, loss: Any, *__: Any, **___: Any) -> None:
        """Note what an optimiser computed."""
        if self._has_hook:
            return
        graph = tf.compat.v1.get_default_graph()
        self._gradients.setdefault(graph, []).append((loss, result))

    def note_optimizer(self, optimizer: Any, _: Any, *__: Any, **___: Any) -> None:
        """Note that an optimiser has made its variables."""
        if self._has_hook:
            return
        self._optimizers.setdefault(tf.compat.v1.get_default_graph(), []).append(optimizer)

    def hooks(self, given: Any) -> Any:
        """Return the hooks that a session is to have."""
        hooks = list(given or ())
        if any(isinstance(hook, (BaseHook, InactiveCopy)) for hook in hooks):
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


def _call_after(kind: Any, name: str, callback: Any) -> None:
    original = getattr(kind, name)

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        try:
            callback(self, result, *args, **kwargs)
        except Exception:
            logger.exception("finding what an optimizer computes failed")
        return result

    setattr(kind, name, method)


def _add_hook_to(kind: Any, sessions: _Sessions) -> None:
    original = kind.__init__
    parameters = signature(original)

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            arguments = dict(parameters.bind(self, *args, **kwargs).arguments)
            arguments.pop("self")
            arguments["hooks"] = sessions.hooks(arguments.get("hooks"))
        except Exception:
            logger.exception("adding a hook failed; the session runs without one")
            original(self, *args, **kwargs)
        else:
            original(self, **arguments)

    kind.__init__ = init
