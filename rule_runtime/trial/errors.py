"""Errors of a trial, with the names and texts of the original client."""

from __future__ import annotations

from typing import Final

from hook_layer.errors import PicklableError
from hook_layer.format.modes import ModeKeys

__all__ = [
    "CollectionUnavailable",
    "IndexReaderException",
    "InvalidCollectionConfiguration",
    "InvalidWorker",
    "MissingCollectionFiles",
    "NoMoreData",
    "SMDebugNotImplementedError",
    "SMDebugValueError",
    "ShapeUnavailableForStep",
    "StepNotYetAvailable",
    "StepUnavailable",
    "TensorUnavailable",
    "TensorUnavailableForStep",
    "TrialError",
]

_HAS_REDUCTIONS: Final = (
    "This tensor has reductions saved for this step. You might want to query for the reductions."
)


class TrialError(PicklableError):
    """Base class of all errors of a trial."""


class SMDebugNotImplementedError(TrialError, NotImplementedError):
    """A method that the original client removed."""


class SMDebugValueError(TrialError, ValueError):
    """A value that a method does not accept."""


class InvalidCollectionConfiguration(TrialError, ValueError):  # noqa: N818
    """A collection with neither tensors nor a regular expression."""

    def __init__(self, c_name: str) -> None:
        super().__init__(
            f"Collection {c_name} has not been configured.         "
            "Please fill in tensor_name or include_regex"
        )
        self.c_name = c_name


class StepNotYetAvailable(TrialError, LookupError):  # noqa: N818
    """The step may still come."""

    def __init__(self, step: int, mode: ModeKeys) -> None:
        super().__init__(f"Step {step} of mode {mode.name} not yet available")
        self.step = step
        self.mode = mode


class StepUnavailable(TrialError, LookupError):  # noqa: N818
    """The run is past the step and saved nothing at it."""

    def __init__(self, step: int, mode: ModeKeys) -> None:
        super().__init__(f"Step {step} of mode {mode.name} is not available as it was not saved")
        self.step = step
        self.mode = mode


class TensorUnavailableForStep(TrialError, LookupError):  # noqa: N818
    """The tensor has no value at the step, and so no `reduction`.

    The original's text calls the reduction a tensor; its other texts are the same.
    """

    def __init__(
        self,
        tname: str,
        step: int,
        mode: ModeKeys = ModeKeys.GLOBAL,
        has_reductions: bool = False,
        *,
        reduction: str | None = None,
    ) -> None:
        super().__init__(
            f"Value for tensor {tname} is not available for step {step} with mode {mode.name} "
            f"as it was not saved.{_HAS_REDUCTIONS if has_reductions else ''}"
            f"{'' if reduction is None else f' Neither was its {reduction}.'}"
        )
        self.tname = tname
        self.step = step
        self.mode = mode
        self.has_reductions = has_reductions


class ShapeUnavailableForStep(TrialError, LookupError):  # noqa: N818
    """The tensor's shape at the step is unknown."""

    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        super().__init__(
            f"Shape for tensor {tname} is not available for step {step} with mode {mode.name} "
            "as it was not saved."
        )
        self.tname = tname
        self.step = step
        self.mode = mode


class TensorUnavailable(TrialError, LookupError):  # noqa: N818
    """No tensor has the name."""

    def __init__(self, tname: str) -> None:
        super().__init__(f"Tensor {tname} was not saved.")
        self.tname = tname


class CollectionUnavailable(TrialError, LookupError):  # noqa: N818
    """No worker has the collection, and its name is probably misspelled."""

    def __init__(self, c_name: str, meant: str) -> None:
        super().__init__(f"there is no collection {c_name!r}; did you mean {meant!r}?")
        self.c_name = c_name


class InvalidWorker(TrialError, ValueError):  # noqa: N818
    """No worker has the name."""

    def __init__(self, worker: str) -> None:
        super().__init__(f"Invalid Worker: {worker}")
        self.worker = worker


class NoMoreData(TrialError, EOFError):  # noqa: N818
    """Training ended before the step."""

    def __init__(self, step: int, mode: ModeKeys, last_step: int) -> None:
        super().__init__(
            f"Looking for step {step} of mode {mode.name} and reached end of training. "
            f"Max step available is {last_step}"
        )
        self.step = step
        self.mode = mode
        self.last_step = last_step


class MissingCollectionFiles(TrialError, FileNotFoundError):  # noqa: N818
    """Training ended, and some workers wrote no collections file."""

    def __init__(self) -> None:
        super().__init__("Training job has ended. All the collection files could not be loaded")


class IndexReaderException(TrialError, ValueError):  # noqa: N818
    """An index file that cannot be read."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
