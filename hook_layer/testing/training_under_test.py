"""What the author of an adapter says about it: a small training, and the names of its tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pytest

from hook_layer.collections import CollectionKeys
from hook_layer.core.hook import BaseHook
from hook_layer.format.modes import ModeKeys

__all__ = [
    "MAY_BE_MISSING",
    "PROPERTIES",
    "OnStep",
    "Trained",
    "TrainingUnderTest",
    "digest_of",
    "nothing",
]

OnStep = Callable[[int], None]
"""What a training script does in a step; called with the number of the step, from 0."""

PROPERTIES: Final = (
    "names",
    "values",
    "collections",
    "reductions",
    "statistics",
    "evaluation",
    "save intervals",
    "nothing in other steps",
    "save_scalar",
    "results unchanged",
    "kill switch",
    "end marker",
    "exception in the loop",
    "two runs in one process",
    "stop request",
    "spot resume",
    "configuration file",
)
"""What holds for the hook of every framework, in the order of the table."""
MAY_BE_MISSING: Final = frozenset(("evaluation", "reductions", "spot resume", "values"))
"""Properties that a framework may lack, with a reason."""


def nothing(step: int) -> None:
    """Do nothing in a step."""


def digest_of(arrays: Iterable[Any]) -> str:
    """Return a text that two lists of arrays share if they are equal bit by bit."""
    digest = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Trained:
    """What a training came to.

    Attributes:
        digest: `digest_of` all weights at the end.
        losses: What `loss_name` has to be in each step of training.
    """

    digest: str
    losses: tuple[float, ...]


class TrainingUnderTest:
    """The adapter, and a training to try it on; `train` and the attributes without a value.

    Attributes:
        adapter: Name of the adapter in the table of properties.
        hook_type: Its hook.
        loss_name: Name of a tensor of one element that is saved unasked in each step.
        names: A tensor of each collection: the collection's name, and the tensor's.
        more_names: Tensors of no collection but `all`, as inputs and outputs of layers.
        array_collection: A collection of `names` whose tensor is no scalar.
        spread_ddof: By how much less than the number of elements the reductions std and variance
            are divided; frameworks differ.
        train_mode: Mode of the steps of training.
        stop_raises: Whether a stop request leaves the training as `TrainingStoppedError`; False: it
            ends in the framework's own way, and returns.
        missing: Properties that the framework cannot have, of `MAY_BE_MISSING`: why not.
    """

    adapter: ClassVar[str]
    hook_type: ClassVar[type[BaseHook]]
    loss_name: ClassVar[str]
    names: ClassVar[Mapping[str, str]]
    more_names: ClassVar[tuple[str, ...]] = ()
    array_collection: ClassVar[str] = CollectionKeys.WEIGHTS
    spread_ddof: ClassVar[int] = 0
    train_mode: ClassVar[ModeKeys] = ModeKeys.TRAIN
    stop_raises: ClassVar[bool] = True
    missing: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        unknown = set(cls.missing) - MAY_BE_MISSING
        if unknown:
            raise TypeError(f"{cls.__name__}.missing has {unknown}: no framework may lack that")

    def make_hook(self, out_dir: str, **arguments: Any) -> BaseHook:
        """Return a new hook.

        Args:
            out_dir: Where it writes.
            arguments: Further arguments of hooks of every framework.
        """
        return self.hook_type(out_dir, **arguments)  # type: ignore[arg-type]  # a framework's

    def make_hook_of_file(self, path: Path) -> BaseHook:
        """Return a new hook that is configured by a file.

        Args:
            path: The file.
        """
        return self.hook_type.create_from_json_file(path)

    def train(
        self,
        hook: BaseHook | None,
        *,
        steps: int,
        evaluations: int = 0,
        on_step: OnStep = nothing,
    ) -> Trained:
        """Train a small model, from the same seed and with the same names each time.

        What the framework itself does not tell the hook, as the mode in some, the training does as
        a user would. It may close the hook at its end, where the framework says that this is one.
        It lets every exception through.

        Args:
            hook: The hook; None: no hook at all.
            steps: Number of steps of training.
            evaluations: Number of steps of an evaluation behind them; 0: none.
            on_step: To be called in each step of training, behind what is computed in it, as a
                training script would do something there.
        """
        raise NotImplementedError

    def spy(self, hook: BaseHook, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Return a list that gets the global step whenever the adapter copies or computes anything.

        An adapter that computes something before it captures it adds that: it patches what it calls
        to append `hook.step`.

        Args:
            hook: The hook.
            monkeypatch: What to patch with.
        """
        steps: list[int] = []
        captured = hook.tensor_capture.capture

        def spied(tensors: Any) -> Any:
            steps.append(hook.step)
            return captured(tensors)

        monkeypatch.setattr(hook.tensor_capture, "capture", spied)
        return steps
