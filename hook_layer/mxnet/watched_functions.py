"""The functions of MXNet that have no hooks, and report their calls while a hook listens."""

from __future__ import annotations

from typing import Final

from mxnet import autograd
from mxnet.gluon import Trainer
from mxnet.ndarray import NDArray

from hook_layer.capture.watched_functions import WatchedFunction

__all__ = ["ARRAY_BACKWARD", "BACKWARD", "TRAINER_STEP", "TRAINER_UPDATE", "TRAINER_UPDATES"]

BACKWARD: Final = WatchedFunction(autograd, "backward")
ARRAY_BACKWARD: Final = WatchedFunction(NDArray, "backward")
TRAINER_STEP: Final = WatchedFunction(Trainer, "step")
"""Reduces gradients over contexts and workers, and updates the parameters."""
TRAINER_UPDATE: Final = WatchedFunction(Trainer, "update")
"""Updates the parameters, where a script reduced the gradients itself."""
TRAINER_UPDATES: Final = WatchedFunction(Trainer, "_update")
"""What both of them end with: the gradients are reduced by then, and the parameters to be updated.
Not public, but this version of MXNet is the last one."""
