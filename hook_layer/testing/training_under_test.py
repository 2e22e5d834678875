"""Description of an adapter under test: a small training, and the names of its tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pytest

from hook_layer.configuration.collections import CollectionKeys
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
"""An action of a training script in a step; called with the step number, from 0."""

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
"""Properties of the hook of every framework, in the order of the table."""
MAY_BE_MISSING: Final = frozenset(("evaluation", "reductions", "spot resume", "values"))
"""Properties that a framework may lack, with a reason."""


def nothing(step: int) -> None:
    """Do nothing in a step."""


def digest_of(arrays: Iterable[Any]) -> str:
    """Return a digest that is equal for two lists of arrays if they are bitwise equal."""
    digest = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Trained:
    """Result of a training.

    Attributes:
        digest: `digest_of` all weights at the end.
        losses: Expected `loss_name` in each step of training.
    """

    digest: str
    losses: tuple[float, ...]


class TrainingUnderTest:
    """The adapter and a training; subclasses define `train` and the attributes without a value.

    Attributes:
        adapter: Name of the adapter in the table of properties.
        hook_type: Its hook.
        loss_name: Name of a tensor of one element that is saved in each step by default.
        names: One tensor per collection: the collection's name, and the tensor's.
        more_names: Tensors that are only in the collection `all`, such as inputs and outputs of
            layers.
        array_collection: A collection of `names` whose tensor is not a scalar.
        spread_ddof: Delta degrees of freedom of the reductions std and variance; frameworks differ.
        train_mode: Mode of the steps of training.
        stop_raises: Whether a stop request raises `TrainingStoppedError`; False: the framework ends
            the training normally.
        missing: Unsupported properties, of `MAY_BE_MISSING`, with reasons.
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
        """Return a new hook from a configuration file.

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
        """Train a small model, with the same seed and names each time.

        The training does what users must do because the framework does not notify the hook, such as
        setting the mode. It may close the hook at its end, if the framework signals the end. It
        must not catch exceptions.

        Args:
            hook: The hook; None: no hook at all.
            steps: Number of steps of training.
            evaluations: Number of steps of a later evaluation; 0: none.
            on_step: Call it in each training step, after the computation.
        """
        raise NotImplementedError

    def spy(self, hook: BaseHook, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Return a list that gets the global step whenever the adapter copies or computes values.

        An adapter that computes values before it captures them must extend this: patch its
        functions to append `hook.step`.

        Args:
            hook: The hook.
            monkeypatch: Used for patching.
        """
        steps: list[int] = []
        captured = hook.tensor_capture.capture

        def spied(tensors: Any) -> Any:
            steps.append(hook.step)
            return captured(tensors)

        monkeypatch.setattr(hook.tensor_capture, "capture", spied)
        return steps
