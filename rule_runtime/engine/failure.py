"""Texts about errors in a rule: the problem, what was expected, and the rule's line."""

from __future__ import annotations

import builtins
import difflib
import importlib.util
import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import FrozenInstanceError
from pathlib import PurePath
from typing import Final

from hook_layer.format.errors import FormatError
from rule_runtime.engine.counts import MAX_TEXT
from rule_runtime.engine.outcome import shortened
from rule_runtime.trial import errors
from rule_runtime.trial.name_pattern import PatternError
from rule_runtime.trial.other_trials import OtherTrialError

__all__ = ["CHECK", "UNAVAILABLE", "failure_reason", "located", "located_in_check", "wrong_outcome"]

UNAVAILABLE: Final = (
    *(errors.CollectionUnavailable, errors.TensorUnavailable, errors.TensorUnavailableForStep),
    *(errors.ShapeUnavailableForStep, errors.StepUnavailable, errors.StepNotYetAvailable),
    *(errors.NoMoreData, errors.InvalidWorker, errors.MissingCollectionFiles),
    *(errors.IndexReaderException, FormatError, PatternError, OtherTrialError),
)
"""Errors about missing or damaged data of a step; they are no failure of the rule."""

CHECK: Final = "def check(self, step, memory):"
"""Signature of a rule's method."""

_OUTCOMES: Final = 'Passed(), IssueFound("loss 12.3 above 5") or NotEvaluated("no loss was saved")'
_FACADE: Final = "stepwatch"
_SIMILAR: Final = 0.75
"""Similarity (difflib's ratio) of a misspelling: `Pased` is `Passed`, `bound` is not `round`."""
_MAX_CODE: Final = 120
"""Characters; it fits into the details of a status with a message of `MAX_TEXT`."""


def failure_reason(error: BaseException, rule: type) -> str:
    """Return an exception as `Type: message (file.py, line N: code)`.

    The line is the last one in the rule's own file, not in a library.
    """
    # The text of a SyntaxError ends with file and line, which are added below.
    message = str(error.msg) if isinstance(error, SyntaxError) else _message(error)
    text = f"{type(error).__name__}: {_shortened(message, MAX_TEXT)}".removesuffix(": ")
    frames = traceback.extract_tb(error.__traceback__)
    own = _files_of(rule)
    frame = next((one for one in reversed(frames) if one.filename in own), None)
    if frame is not None:
        return located(text, frame.filename, frame.lineno or 0)
    if isinstance(error, SyntaxError) and error.filename:
        return located(text, error.filename, error.lineno or 0, code=error.text)
    if isinstance(error, TypeError):  # the call itself failed
        return located_in_check(f"{text}; it must begin with `{CHECK}`", rule)
    return located(text, frames[-1].filename, frames[-1].lineno or 0)


def wrong_outcome(outcome: object, rule: type) -> str:
    """Return the problem of a rule's return value that is not an outcome."""
    if isinstance(outcome, type):
        shown = f"the class {outcome.__name__}"
    elif outcome is None or isinstance(outcome, (bool, int, float, str)):
        shown = _shortened(repr(outcome), _MAX_CODE)
    else:
        shown = f"a {type(outcome).__name__}"
    text = f"{rule.__name__}.check returned {shown}, but must return {_OUTCOMES}"
    return located_in_check(text, rule)


def located(text: str, file: str, line: int, *, code: str | None = None) -> str:
    """Return a text followed by a line of a file: `text (file.py, line N: code)`.

    By default, the code is read from the file.
    """
    code = linecache.getline(file, line) if code is None else code
    return f"{text} ({PurePath(file).name}, line {line}: {_shortened(code, _MAX_CODE)})"


def located_in_check(text: str, rule: type) -> str:
    """Return a text followed by the first line of a rule's `check`."""
    method = getattr(rule, "check", None)
    if not inspect.isfunction(method):
        return text
    code = inspect.unwrap(method).__code__
    return located(text, code.co_filename, code.co_firstlineno)


def _message(error: BaseException) -> str:
    try:
        return f"{error}{_hint(error)}"
    except Exception:  # noqa: BLE001 - the class of the exception may be the author's
        return ""


def _hint(error: BaseException) -> str:
    """Return which name the author probably meant by an unknown one."""
    if isinstance(error, FrozenInstanceError):
        return '; a rule is frozen: keep what changes in memory, as memory["name"] = value'
    if isinstance(error, NameError):
        return _hint_for_name(error)
    if isinstance(error, ModuleNotFoundError):
        return _nearest(error.name, [_FACADE])
    if isinstance(error, ImportError):
        name = re.match(r"cannot import name '(\w+)'", str(error))
        return _nearest(name[1], dir(sys.modules.get(error.name or ""))) if name else ""
    if isinstance(error, AttributeError) and error.obj is not None:
        return _nearest(error.name, dir(error.obj))
    return ""


def _hint_for_name(error: NameError) -> str:
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if error.name in dir(frame.f_locals.get("self")):
        return f"; did you mean 'self.{error.name}'?"
    if importlib.util.find_spec(_FACADE) and error.name in dir(importlib.import_module(_FACADE)):
        return f"; write `from {_FACADE} import {error.name}` at the top"
    return _nearest(error.name, {*vars(builtins), *frame.f_globals, *frame.f_locals})


def _nearest(name: str | None, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name or "", sorted(names), n=1, cutoff=_SIMILAR)
    return f"; did you mean {close[0]!r}?" if close else ""


def _files_of(rule: type) -> set[str]:
    """Return the files of a class and its bases, except for this package's bases."""
    modules = {cls.__module__ for cls in rule.__mro__}
    files = {
        getattr(sys.modules.get(name), "__file__", None)
        for name in modules
        if name == rule.__module__ or not name.startswith("rule_runtime.")
    }
    return {file for file in files if file}


def _shortened(text: str, length: int) -> str:
    return shortened(" ".join(text.split()), length)
