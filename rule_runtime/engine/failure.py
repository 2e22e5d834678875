"""What is wrong with a rule: the mistake, what was expected, and the line of the rule's author."""

from __future__ import annotations

import builtins
import difflib
import importlib.util
import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import FrozenInstanceError
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Final

from hook_layer.format.errors import FormatError
from rule_runtime.trial.errors import (
    CollectionUnavailable,
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

__all__ = ["CHECK", "UNAVAILABLE", "failure_reason", "located", "located_in_check", "wrong_answer"]

UNAVAILABLE: Final = (
    *(CollectionUnavailable, TensorUnavailable, TensorUnavailableForStep, ShapeUnavailableForStep),
    *(StepUnavailable, StepNotYetAvailable, NoMoreData, InvalidWorker),
    *(MissingCollectionFiles, IndexReaderException, FormatError, PatternError, OtherTrialError),
)
"""What a step's data is to blame for and not the rule: it was not saved, or is damaged."""

CHECK: Final = "def check(self, step, memory):"
"""How the method of a rule begins."""

_ANSWERS: Final = 'Passed(), IssueFound("loss 12.3 above 5") or NotEvaluated("no loss was saved")'
_FACADE: Final = "stepwatch"
_IMPORTED_NAME: Final = re.compile(r"cannot import name '(\w+)'")
_LIKELY: Final = 0.75
"""Likeness (difflib's ratio) of a misspelt name: `Pased` is `Passed`, `bound` is not `round`."""
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
    message = str(error.msg) if isinstance(error, SyntaxError) else _message(error)
    text = f"{type(error).__name__}: {_shortened(message, _MAX_MESSAGE)}".removesuffix(": ")
    frames = traceback.extract_tb(error.__traceback__)
    own = _files_of(rule)
    frame = next((one for one in reversed(frames) if one.filename in own), None)
    if frame is not None:
        return located(text, frame.filename, frame.lineno or 0)
    if isinstance(error, SyntaxError) and error.filename:
        return located(text, error.filename, error.lineno or 0, code=error.text)
    if isinstance(error, TypeError):  # it was called in vain
        return located_in_check(f"{text}; it must begin with `{CHECK}`", rule)
    return located(text, frames[-1].filename, frames[-1].lineno or 0)


def wrong_answer(answer: object, rule: type, judge: Callable[[], object]) -> str:
    """Return what is wrong with the answer of a rule that is no outcome, and where it came from.

    Args:
        answer: What the rule's `check` returned.
        rule: The rule's class.
        judge: Judges the same step again, to find the line.
    """
    shown = f"the class {answer.__name__}" if isinstance(answer, type) else _shown(answer)
    text = f"{rule.__name__}.check returned {shown}, but must return {_ANSWERS}"
    return located_in_check(text, rule, judge)


def located(text: str, file: str, line: int, *, code: str | None = None) -> str:
    """Return a text with a line of a file behind it: `text (file.py, line N: code)`.

    Args:
        text: The text.
        file: Path of the file.
        line: Number of the line.
        code: The line; by default it is read from the file.
    """
    code = linecache.getline(file, line) if code is None else code
    return f"{text} ({PurePath(file).name}, line {line}: {_shortened(code, _MAX_CODE)})"


def located_in_check(text: str, rule: type, judge: Callable[[], object] | None = None) -> str:
    """Return a text with a line of a rule's `check` behind it.

    Args:
        text: The text.
        rule: The rule's class.
        judge: Judges a step, to find the line that returns; without it, the first line is shown.
    """
    method = getattr(rule, "check", None)
    if not inspect.isfunction(method):
        return text
    code = inspect.unwrap(method).__code__
    line = None if judge is None else _line_of_return(code, judge)
    return located(text, code.co_filename, line or code.co_firstlineno)


def _line_of_return(code: CodeType, judge: Callable[[], object]) -> int | None:
    """Return the line from which a function returned last when it is called again."""
    lines: list[int] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code is code:
            lines.append(frame.f_lineno)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        judge()
    except (Exception, SystemExit):  # noqa: BLE001 - anybody's code; the first answer counts
        return None
    finally:
        sys.setprofile(before)
    return lines[-1] if lines else None


def _shown(answer: object) -> str:
    is_plain = answer is None or isinstance(answer, (bool, int, float, str))
    return _shortened(repr(answer), _MAX_CODE) if is_plain else f"a {type(answer).__name__}"


def _message(error: BaseException) -> str:
    try:
        return f"{error}{_suggestion(error)}"
    except Exception:  # noqa: BLE001 - the author's class of exceptions may be broken, too
        return ""


def _suggestion(error: BaseException) -> str:
    """Return what the author may have meant by a name that does not exist."""
    if isinstance(error, FrozenInstanceError):
        return '; a rule is frozen: keep what changes in memory, as memory["name"] = value'
    wanted = getattr(error, "name", None)
    if isinstance(error, ModuleNotFoundError):
        names: Iterable[str] = {_FACADE, *(name.partition(".")[0] for name in sys.modules)}
    elif isinstance(error, ImportError):
        names = dir(sys.modules.get(wanted or "", None))
        found = _IMPORTED_NAME.match(str(error))
        wanted = found and found[1]
    elif isinstance(error, NameError):
        names = _names_around(error, str(wanted))
        if f"{_FACADE}.{wanted}" in names and not _has_facade(error):
            return f"; write `from {_FACADE} import {wanted}` at the top"
    elif isinstance(error, AttributeError) and error.obj is not None:
        names = dir(error.obj)
    else:
        return ""
    if not wanted or "did you mean" in str(error):
        return ""
    by_end = {name.rpartition(".")[2]: name for name in sorted(names)}
    close = difflib.get_close_matches(wanted, by_end, n=1, cutoff=_LIKELY)
    return f"; did you mean {by_end[close[0]]!r}?" if close else ""


def _has_facade(error: NameError) -> bool:
    """Return whether `stepwatch` is imported as such where a name does not exist."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return _FACADE in frame.f_globals


def _names_around(error: NameError, wanted: str) -> set[str]:
    """Return the names where one does not exist; those of the rule and of `stepwatch` with it."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    names = {*vars(builtins), *frame.f_globals, *frame.f_locals}
    facade = importlib.import_module(_FACADE) if importlib.util.find_spec(_FACADE) else None
    for owner, value in (("self", frame.f_locals.get("self")), (_FACADE, facade)):
        if value is not None and wanted in dir(value):
            names.add(f"{owner}.{wanted}")
    return names


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
