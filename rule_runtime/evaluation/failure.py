"""Telling what a rule's author has to know of an exception: what, and in which line."""

from __future__ import annotations

import sys
import traceback
from pathlib import PurePath
from typing import Final

from hook_layer.format.errors import FormatError
from rule_runtime.trial.errors import (
    IndexReaderException,
    InvalidWorker,
    MissingCollectionFiles,
    NoMoreData,
    ShapeUnavailableForStep,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from rule_runtime.trial.name_pattern import PatternError
from rule_runtime.trial.other_trials import OtherTrialError

__all__ = ["UNAVAILABLE", "failure_reason"]

UNAVAILABLE: Final = (
    *(TensorUnavailable, TensorUnavailableForStep, ShapeUnavailableForStep),
    *(StepUnavailable, StepNotYetAvailable, NoMoreData, InvalidWorker),
    *(MissingCollectionFiles, IndexReaderException, FormatError, PatternError, OtherTrialError),
)
"""What a step's data is to blame for and not the rule: it was not saved, or is damaged."""

_MAX_MESSAGE: Final = 400
_MAX_CODE: Final = 120
"""Characters; both fit into the details of a status together."""


def failure_reason(error: BaseException, rule: type) -> str:
    """Return an exception as `Type: message (file.py, line N: code)`.

    The line is the last one in a file of the rule itself, not one of a library that it called.

    Args:
        error: The exception, as it was caught.
        rule: The rule's class.
    """
    # What a SyntaxError calls itself ends with file and line, which are told below.
    message = str(error.msg) if isinstance(error, SyntaxError) else str(error)
    text = f"{type(error).__name__}: {_shortened(message, _MAX_MESSAGE)}".removesuffix(": ")
    frames = traceback.extract_tb(error.__traceback__)
    own = _files_of(rule)
    frame = next((one for one in reversed(frames) if one.filename in own), None)
    if frame is None and isinstance(error, SyntaxError) and error.filename:
        code = _shortened((error.text or "").strip(), _MAX_CODE)
        return f"{text} ({PurePath(error.filename).name}, line {error.lineno}: {code})"
    frame = frame or frames[-1]
    code = _shortened(frame.line or "", _MAX_CODE)
    return f"{text} ({PurePath(frame.filename).name}, line {frame.lineno}: {code})"


def _files_of(rule: type) -> set[str]:
    """Return the files of a class and its bases, without the bases that this package gives."""
    modules = {cls.__module__ for cls in rule.__mro__}
    files = {
        getattr(sys.modules.get(name), "__file__", None)
        for name in modules
        if name == rule.__module__ or not name.startswith("rule_runtime.")
    }
    return {file for file in files if file}


def _shortened(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 3]}..."
