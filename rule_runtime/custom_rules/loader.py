"""Loads a custom rule: a class in a user's file, also in the original client's style.

A rule is code, so it is loaded only from places that the operator allowed. It can be pinned by the
SHA-256 of its file. The file can import installed packages, but no neighbouring files.
"""

from __future__ import annotations
import __future__

import ast
import hashlib
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import unquote

from hook_layer.storage.base import ObjectNotFoundError, Store, open_store
from rule_runtime.custom_rules.constructor import constructor_arguments
from rule_runtime.custom_rules.rule_mistakes import CustomRuleError, in_class, made_rule
from rule_runtime.engine.failure import CHECK, failure_reason
from rule_runtime.engine.parameters import ParameterError, nearest_name
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.step_bounds import bounded, split_bounds

__all__ = ["MAX_SOURCE_BYTES", "CustomRuleError", "load_custom_rule", "load_rule_class"]

MAX_SOURCE_BYTES: Final = 1 << 20
"""Maximum size of a rule's file."""

_AS_TEXT: Final = __future__.annotations.compiler_flag
"""Annotations stay text in every Python version: some names exist only for type checkers."""
_ALIASED: Final = frozenset({"smdebug", "smdebug_rulesconfig"})
_OTHER_TRIAL: Final = "other_trial_"
_SERVICE: Final = frozenset({"rule_to_invoke", "source_s3_uri", "base_trial", "action_json"})


def load_custom_rule(
    source: str | os.PathLike[str],
    rule_to_invoke: str,
    parameters: Mapping[str, object] | None = None,
    *,
    allowed: Collection[str | os.PathLike[str]],
    sha256: str | None = None,
    hide_smdebug: bool = False,
    open_folder: Callable[[str], Store] = open_store,
) -> Rule:
    """Return a rule whose class is in a file.

    Args:
        source: Path or URI of the file.
        rule_to_invoke: Name of the class: a subclass of `rule_runtime.Rule`, or of `smdebug`'s.
        parameters: Its parameters. Strings are converted to the annotated types; without an
            annotation they stay strings. `other_trial_0`, `other_trial_1` and so on name the trials
            of a class with `other_trials`. `start_step` and `end_step` bound the evaluated steps,
            unless the class defines them itself.
        allowed: Absolute folders, and URIs, from which files may be loaded.
        sha256: SHA-256 that the file must have, in hexadecimal digits.
        hide_smdebug: True to replace an installed `smdebug` by Stepwatch's from now on.
        open_folder: Returns the store at a folder.

    Raises:
        TypeError: If `allowed` is not a list.
        CustomRuleError: If the file must not be loaded, does not exist, is too long or has the
            wrong SHA-256, or if its code fails or has no such rule.
        ParameterError: If a parameter is unknown or missing, or a value is invalid.
        AliasError: If the file imports `smdebug`, and the real one is installed.
        StorageError: If the storage cannot be read.
    """
    rule_class = load_rule_class(
        source,
        rule_to_invoke,
        allowed=allowed,
        sha256=sha256,
        hide_smdebug=hide_smdebug,
        open_folder=open_folder,
    )
    given = {key: value for key, value in (parameters or {}).items() if key not in _SERVICE}
    if issubclass(rule_class, Rule):
        return made_rule(rule_class, given)
    return _adapted(rule_class, given, (parameters or {}).get("action_json"))


def load_rule_class(
    source: str | os.PathLike[str],
    name: str,
    *,
    allowed: Collection[str | os.PathLike[str]],
    sha256: str | None = None,
    hide_smdebug: bool = False,
    open_folder: Callable[[str], Store] = open_store,
) -> type[Any]:
    """Return the class of a rule in a file; for arguments and errors see `load_custom_rule`."""
    text = os.fspath(source)
    data = _pinned(text, _read(text, allowed, open_folder), sha256)
    return _rule_class(_module(text, data, hide_smdebug=hide_smdebug), name)


# ---------------------------------------------------------------------- the file


def _read(
    source: str,
    allowed: Collection[str | os.PathLike[str]],
    open_folder: Callable[[str], Store],
) -> bytes:
    if isinstance(allowed, (str, bytes, os.PathLike)):  # a single string would allow its characters
        raise TypeError(f"allowed is {allowed!r}, but must be a list of folders and URIs")
    places = [_allowed_folder(os.fspath(place)) for place in allowed]
    folder, name, found = _place(source)
    if not name.endswith(".py"):
        raise CustomRuleError(f"custom rule {source!r}: a Python file is expected, NAME.py")
    if not any(folder.startswith(place) for place in places):
        shown = ", ".join([os.fspath(place) for place in allowed]) or "none is"
        raise CustomRuleError(
            f"custom rule {source!r} is not in a folder that rules may be loaded from (allowed: "
            f"{shown}); move it there, or allow its folder"
        )
    try:
        data = open_folder(found).get(name, 0, MAX_SOURCE_BYTES + 1)
    except (ObjectNotFoundError, IsADirectoryError):
        raise CustomRuleError(f"custom rule {source!r}: there is no such file") from None
    if len(data) > MAX_SOURCE_BYTES:
        raise CustomRuleError(
            f"custom rule {source!r} is longer than {MAX_SOURCE_BYTES} bytes: is it a rule?"
        )
    return data


def _allowed_folder(place: str) -> str:
    """Return the prefix of the files in an allowed place."""
    scheme, is_uri, path = place.partition("://")
    is_local = not is_uri or scheme == "file"
    is_absolute = path.startswith("/") if is_uri else Path(place).expanduser().is_absolute()
    if not (is_absolute if is_local else path.strip("/ ")):
        raise CustomRuleError(
            f"rules cannot be allowed to be loaded from {place!r}: an absolute folder or a URI is "
            "expected"
        )
    start = f"{scheme}://{path.rstrip('/')}" if is_uri else place.rstrip("/")
    return _place(f"{start}/x.py")[0]


def _place(source: str) -> tuple[str, str, str]:
    """Return the folder for the comparison, the file's name, and the folder to open."""
    scheme, is_uri, path = source.partition("://")
    if not is_uri or scheme == "file":
        real = Path(unquote(path) if is_uri else source).expanduser().resolve()
        return f"{str(real.parent).rstrip('/')}/", real.name, str(real.parent)
    folder, _, name = path.rpartition("/")
    if "%" in path or any(part in ("", ".", "..") for part in folder.split("/")):
        raise CustomRuleError(
            f"custom rule {source!r}: write the URI plainly, without '..', '//' and '%'"
        )
    return f"{scheme}://{folder}/", name, f"{scheme}://{folder}"


def _pinned(source: str, data: bytes, sha256: str | None) -> bytes:
    digest = hashlib.sha256(data).hexdigest()
    if sha256 is not None and digest != sha256.strip().lower():
        raise CustomRuleError(
            f"custom rule {source!r} has the SHA-256 {digest}, but {sha256} is pinned: it "
            "has changed; review the change and pin the new SHA-256"
        )
    return data


def _module(source: str, data: bytes, *, hide_smdebug: bool) -> ModuleType:
    # The same file at another place is another module: its errors show the place.
    digest = hashlib.sha256(source.encode() + b"\0" + data).hexdigest()
    name = f"stepwatch_custom_rule_{digest[:24]}"
    if name in sys.modules:
        return sys.modules[name]
    try:
        tree = ast.parse(data, filename=source)
    except (SyntaxError, ValueError) as error:
        raise CustomRuleError(f"custom rule {source!r}: {failure_reason(error, object)}") from None
    if _imported(tree) & _ALIASED:
        from rule_runtime import smdebug_alias  # noqa: PLC0415 - only for files that need it

        smdebug_alias.install(replace=hide_smdebug)
    module = ModuleType(name)
    module.__file__ = source
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    linecache.cache[source] = (len(data), None, lines, source)
    sys.modules[name] = module  # dataclasses and annotations look up their module
    try:
        exec(compile(tree, source, "exec", _AS_TEXT, dont_inherit=True), vars(module))  # noqa: S102
    except (Exception, SystemExit) as error:
        reason = failure_reason(error, type("_", (), {"__module__": name}))
        del sys.modules[name]
        raise CustomRuleError(f"custom rule {source!r} cannot be loaded: {reason}") from error
    return module


def _imported(tree: ast.Module) -> set[str]:
    """Return the names of the packages that a file imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


# ---------------------------------------------------------------------- the rule


def _rule_class(module: ModuleType, name: str) -> type[Any]:
    from rule_runtime.custom_rules.smdebug_rule import Rule as OriginalRule  # noqa: PLC0415

    classes: dict[str, type[Any]] = {
        key: value
        for key, value in vars(module).items()
        if issubclass(type(value), type)  # Python 3.10 calls an alias, dict[str, int], a class
        and issubclass(value, (Rule, OriginalRule))
        and not inspect.isabstract(value)
    }
    if name in classes:
        return classes[name]
    raise _no_rule(module, name, classes)


def _no_rule(module: ModuleType, name: str, classes: Mapping[str, type[Any]]) -> CustomRuleError:
    """Return the error for a name in a file that is not a rule."""
    found: object = vars(module).get(name)
    form = f"write `class {name}(stepwatch.Rule):`"
    if isinstance(found, type) and inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        hint = f"; write `{CHECK}`" if missing == "check" else ""
        return in_class(found, f"the rule {name} lacks the method {missing}{hint}")
    if isinstance(found, type):
        return in_class(found, f"{name} is not a rule; {form}")
    if found is not None:
        return CustomRuleError(f"{module.__file__}: {name} is not a rule; {form}")
    close = nearest_name(name, classes)
    if close is not None:
        return in_class(classes[close], f"there is no rule {name!r}; did you mean {close!r}?")
    hint = f"it has {', '.join(classes)}" if classes else form
    return CustomRuleError(f"{module.__file__}: there is no rule {name!r}; {hint}")


def _adapted(rule_class: type[Any], given: Mapping[str, object], actions: object) -> Rule:
    from rule_runtime.custom_rules.smdebug_adapter import SmdebugRule  # noqa: PLC0415

    numbers = sorted(
        (int(key.removeprefix(_OTHER_TRIAL)), key)
        for key in given
        if key.startswith(_OTHER_TRIAL) and key.removeprefix(_OTHER_TRIAL).isdecimal()
    )
    others = [str(given[key]) for _, key in numbers]
    accepted = inspect.signature(rule_class.__init__).parameters
    _check_other_trials(rule_class, others)
    named = {key for _, key in numbers}
    values = {key: value for key, value in given.items() if key not in named}
    values, steps = split_bounds(rule_class.__name__, values, accepted)
    if actions is not None and "action_str" in accepted:
        values["action_str"] = actions
    arguments = constructor_arguments(rule_class, values)
    takes_others = others or "other_trials" in accepted
    rule = SmdebugRule(rule_class, arguments, other_trials=others if takes_others else None)
    return bounded(rule, steps)


def _check_other_trials(rule_class: type[Any], others: Sequence[str]) -> None:
    accepted = inspect.signature(rule_class.__init__).parameters
    name = rule_class.__name__
    taken = accepted.get("other_trials")
    takes_any = any(one.kind is one.VAR_KEYWORD for one in accepted.values())
    if others and taken is None and not takes_any:
        raise ParameterError(f"{name} takes no other trials, but {others} are given")
    if not others and taken is not None and taken.default is taken.empty:
        raise ParameterError(f"{name} needs another trial: give its root or job as other_trial_0")
