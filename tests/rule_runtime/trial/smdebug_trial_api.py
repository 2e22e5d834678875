"""The original client's names for reading trials, with their arguments, and where ours are."""

from __future__ import annotations

import importlib
import inspect
import json
from typing import Any, Final

__all__ = ["ATTRIBUTES", "CALLABLES", "ERRORS", "arguments_of", "error_facts", "found"]

_TRIAL: Final = {
    "collection": "(coll_name)",
    "collections": "()",
    "global_step": "(mode, mode_step)",
    "has_passed_step": "(step, mode=<ModeKeys.GLOBAL: 4>)",
    "has_tensor": "(tname)",
    "inputs": "(step, mode=<ModeKeys.GLOBAL: 4>)",
    "labels": "(step, mode=<ModeKeys.GLOBAL: 4>)",
    "maybe_refresh": "(name=None)",
    "mode": "(global_step)",
    "mode_modestep": "(global_step)",
    "mode_step": "(global_step)",
    "modes": "()",
    "predictions": "(step, mode=<ModeKeys.GLOBAL: 4>)",
    "refresh_data": "()",
    "refresh_tensor": "(tname, steps=None)",
    "steps": "(mode=<ModeKeys.GLOBAL: 4>, show_incomplete_steps=False)",
    "tensor": "(tname)",
    "tensor_names": (
        "(show_prefixed_tensors=False, *, step=None, mode=<ModeKeys.GLOBAL: 4>, regex=None, "
        "collection=None)"
    ),
    "wait_for_steps": "(required_steps, mode=<ModeKeys.GLOBAL: 4>)",
    "workers": "()",
}
_TENSOR: Final = {
    "prev_steps": "(step, n=None, mode=<ModeKeys.GLOBAL: 4>)",
    "reduction_value": (
        "(step_num, reduction_name, mode=<ModeKeys.GLOBAL: 4>, worker=None, abs=False)"
    ),
    "reduction_values": "(step_num, mode=<ModeKeys.GLOBAL: 4>, worker=None)",
    "shape": "(step_num, mode=<ModeKeys.GLOBAL: 4>, worker=None)",
    "step": "(step_num, mode=<ModeKeys.GLOBAL: 4>, worker=None)",
    "steps": "(mode=<ModeKeys.GLOBAL: 4>, show_incomplete_steps=False)",
    "value": "(step_num, mode=<ModeKeys.GLOBAL: 4>, worker=None)",
    "values": "(mode=<ModeKeys.GLOBAL: 4>, worker=None)",
    "workers": "(step_num, mode=<ModeKeys.GLOBAL: 4>)",
}
_OPENING: Final = {
    "LocalTrial": (
        "(name, dirname, range_steps=None, parallel=True, check=False, index_mode=True, "
        "cache=False)"
    ),
    "S3Trial": (
        "(name, bucket_name, prefix_name, range_steps=None, check=False, index_mode=True, "
        "cache=False)"
    ),
}
CALLABLES: Final = {
    **{
        f"Trial.{name}": (
            f"rule_runtime.trial.trial:Trial.{name}",
            f"smdebug.trials.trial:Trial.{name}",
            arguments,
        )
        for name, arguments in _TRIAL.items()
    },
    **{
        f"Tensor.{name}": (
            f"rule_runtime.trial.tensor:Tensor.{name}",
            f"smdebug.core.tensor:Tensor.{name}",
            arguments,
        )
        for name, arguments in _TENSOR.items()
    },
    **{
        name: (f"rule_runtime.trial.opening:{name}", f"smdebug.trials:{name}", arguments)
        for name, arguments in _OPENING.items()
    },
    **{
        name: (
            f"rule_runtime.trial.refreshing:{name}", f"smdebug.analysis.utils:{name}", "(trials)"
        )
        for name in ("no_refresh", "refresh")
    },
}  # fmt: skip
"""Name -> where ours is, where theirs is, and their arguments."""

ATTRIBUTES: Final = {
    "Trial": [
        "cache",
        "dynamic_refresh",
        "global_step_to_tensors_map",
        "last_complete_step",
        "last_index_token",
        "loaded_all_steps",
        "name",
        "num_workers",
        "path",
        "range_steps",
        "worker_set",
        "workers_for_global_step",
    ],
    "Tensor": ["cache", "name", "original_name", "trial"],
}
"""Attributes that objects have."""

ERRORS: Final[dict[str, list[object]]] = {
    "IndexReaderException": ["message"],
    "InvalidCollectionConfiguration": ["mine"],
    "InvalidWorker": ["worker_9"],
    "MissingCollectionFiles": [],
    "NoMoreData": [7, "TRAIN", 5],
    "ShapeUnavailableForStep": ["loss", 3],
    "StepNotYetAvailable": [3, "EVAL"],
    "StepUnavailable": [3, "PREDICT"],
    "TensorUnavailable": ["loss"],
    "TensorUnavailableForStep": ["loss", 3, "TRAIN", True],
    "TensorUnavailableForStep ": ["loss", 3],
}
"""Name of an exception -> arguments; modes by their names."""


def found(place: str) -> Any:
    """Return what `module:name.name` names."""
    module, _, names = place.partition(":")
    target: Any = importlib.import_module(module)
    for name in names.split("."):
        target = getattr(target, name)
    return target


def arguments_of(target: Any) -> str:
    """Return the arguments of a callable as text."""
    empty = inspect.Parameter.empty
    signature = inspect.signature(target)
    kept = [p for p in signature.parameters.values() if p.name not in {"self", "cls"}]
    return str(inspect.Signature([p.replace(annotation=empty) for p in kept]))


def error_facts(module: str, modes: Any) -> dict[str, list[str]]:
    """Return text and attributes of every exception, as a module has them."""
    facts = {}
    for name, arguments in ERRORS.items():
        given = [getattr(modes, str(value), value) for value in arguments]
        error = getattr(importlib.import_module(module), name.strip())(*given)
        attributes = sorted(f"{key}={value}" for key, value in vars(error).items() if key != "msg")
        facts[name] = [str(error), *attributes]
    return facts


if __name__ == "__main__":  # run by the original's environment
    signatures = {name: arguments_of(found(theirs)) for name, (_, theirs, _) in CALLABLES.items()}
    trial = found("smdebug.trials:Trial")
    methods = sorted(
        name for name, member in vars(trial).items() if name[0] != "_" and callable(member)
    )
    tensor = found("smdebug.core.tensor:Tensor")
    methods_of_tensor = sorted(name for name in vars(tensor) if name[0] != "_")
    errors = error_facts("smdebug.exceptions", found("smdebug:modes"))
    opening = str(inspect.signature(found("smdebug.trials:create_trial")))
    print(json.dumps([signatures, methods, methods_of_tensor, errors, opening]))
