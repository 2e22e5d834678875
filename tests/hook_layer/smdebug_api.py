"""The original client's names for hooks of PyTorch, with their arguments, and where ours are."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

__all__ = [
    "CALLABLES",
    "CONSTANTS",
    "OTHER_DEFAULTS",
    "XGBOOST",
    "Checks",
    "arguments_of",
    "found",
]

_Check = TypeVar("_Check", bound=Callable[..., None])

_PYTORCH: Final = "hook_layer.pytorch"
_MANAGER: Final = "hook_layer.configuration.collection_manager"
_THEIR_MANAGER: Final = "smdebug.core.collection_manager"

_SIGNATURES: Final = {
    "Hook": (
        "(out_dir=None, export_tensorboard=False, tensorboard_dir=None, dry_run=False, "
        "reduction_config=None, save_config=None, include_regex=None, include_collections=None, "
        "save_all=False, include_workers='one')"
    ),
    "Hook.add_collection": "(collection)",
    "Hook.backward_hook": "(tname)",
    "Hook.close": "()",
    "Hook.count_parameters": "(model)",
    "Hook.create_from_json_file": "(json_file_path=None)",
    "Hook.export_collections": "()",
    "Hook.forward_hook": "(module, inputs, outputs)",
    "Hook.forward_pre_hook": "(module, inputs)",
    "Hook.get_collection": "(name, create=True)",
    "Hook.get_collections": "()",
    "Hook.has_default_configuration": "()",
    "Hook.has_default_hook_configuration": "(default_saved_collections)",
    "Hook.record_tensor_value": "(tensor_name, tensor_value)",
    "Hook.record_trace_events": (
        "(timestamp, training_phase='', op_name='', phase='X', duration=1, **kwargs)"
    ),
    "Hook.register_hook": "(module)",
    "Hook.register_loss": "(loss_module)",
    "Hook.register_module": "(module)",
    "Hook.save_scalar": "(name, value, sm_metric=False, timestamp=None)",
    "Hook.save_tensor": "(tensor_name, tensor_value, collections_to_write='default')",
    "Hook.set_mode": "(mode)",
    "Hook.should_save_tensor_or_collection": "(tensor_name, collection_name)",
    "get_hook": "(json_config_path=None, create_if_not_exists=False)",
    "set_hook": "(custom_hook)",
    "del_hook": "()",
    "SaveConfig": (
        "(mode_save_configs=None, save_interval=None, start_step=None, end_step=None, "
        "save_steps=None)"
    ),
    "SaveConfig.from_dict": "(params, default_values=None)",
    "SaveConfig.from_json": "(json_str)",
    "SaveConfig.from_save_config_mode": "(save_config_mode)",
    "SaveConfig.get_save_config": "(mode)",
    "SaveConfig.merge_default_save_config": "(default_save_config)",
    "SaveConfig.parse": "(obj)",
    "SaveConfig.set_save_config": "(mode, save_config_mode)",
    "SaveConfig.should_save_step": "(mode, step_num)",
    "SaveConfig.to_json": "()",
    "SaveConfig.to_json_dict": "()",
    "SaveConfigMode": "(save_interval=None, start_step=None, end_step=None, save_steps=None)",
    "SaveConfigMode.from_dict": "(params, default_values=None)",
    "SaveConfigMode.should_save_step": "(step_num)",
    "SaveConfigMode.to_json_dict": "()",
    "ReductionConfig": (
        "(reductions=None, abs_reductions=None, norms=None, abs_norms=None, "
        "save_raw_tensor=False, save_shape=False)"
    ),
    "ReductionConfig.from_dict": "(params)",
    "ReductionConfig.from_json": "(json_str)",
    "ReductionConfig.to_json": "()",
    "ReductionConfig.to_json_dict": "()",
    "Collection": (
        "(name, include_regex=None, tensor_names=None, reduction_config=None, save_config=None, "
        "save_histogram=True)"
    ),
    "Collection.add_module_tensors": "(module, inputs=False, outputs=True)",
    "Collection.add_tensor_name": "(tname)",
    "Collection.from_dict": "(params)",
    "Collection.from_json": "(json_str)",
    "Collection.has_tensor_name": "(tname)",
    "Collection.include": "(t)",
    "Collection.remove_tensor_name": "(tname)",
    "Collection.to_json": "()",
    "Collection.to_json_dict": "()",
}
_OF_THE_MANAGER: Final = {
    "CollectionManager.add": "(arg)",
    "CollectionManager.create_collection": "(name)",
    "CollectionManager.export": "(out_dir, filename)",
    "CollectionManager.get": "(name, create=True)",
    "CollectionManager.get_collections": "()",
    "CollectionManager.get_num_workers": "()",
    "CollectionManager.load": "(filename, collection_class)",
    "CollectionManager.load_from_string": "(s, collection_class)",
    "CollectionManager.set_num_workers": "(num_workers)",
    "CollectionManager.update_meta": "(meta)",
    "CollectionManager.to_json_dict": "()",
}

CALLABLES: Final = {
    **{n: (f"{_PYTORCH}:{n}", f"smdebug.pytorch:{n}", s) for n, s in _SIGNATURES.items()},
    **{n: (f"{_MANAGER}:{n}", f"{_THEIR_MANAGER}:{n}", s) for n, s in _OF_THE_MANAGER.items()},
}
"""Name -> where ours is, where theirs is, and their arguments."""

XGBOOST: Final = {
    "Hook": (
        f"{_SIGNATURES['Hook'][:-1]}, hyperparameters=None, train_data=None, validation_data=None)"
    ),
    "Hook.after_iteration": "(model, epoch, evals_log)",
    "Hook.hook_from_config": "(json_config_path=None)",
    "get_hook": "(json_config_path=None)",
    **{
        name: arguments
        for name, arguments in _SIGNATURES.items()
        if name
        in {
            "Hook.add_collection",
            "Hook.close",
            "Hook.create_from_json_file",
            "Hook.export_collections",
            "Hook.get_collection",
            "Hook.get_collections",
            "Hook.has_default_configuration",
            "Hook.record_trace_events",
            "Hook.save_scalar",
            "Hook.save_tensor",
            "Hook.set_mode",
            "Hook.should_save_tensor_or_collection",
            "set_hook",
            "del_hook",
        }
    },
}
"""Name -> arguments of the hook for XGBoost; the original's environment has no XGBoost."""

OTHER_DEFAULTS: Final = {
    "CollectionManager.load": "a class of another package",
    "CollectionManager.load_from_string": "a class of another package",
    "Hook.has_default_hook_configuration": "None stands for the framework's own list",
}
"""Names whose defaults are others than the original's, and why; the table has none for them."""

CONSTANTS: Final = {
    "smdebug": (
        "CollectionKeys",
        "ReductionConfig",
        "SaveConfig",
        "SaveConfigMode",
        "__version__",
        "modes",
    ),
    "smdebug.xgboost": (
        "Collection",
        "CollectionKeys",
        "Hook",
        "SaveConfig",
        "SaveConfigMode",
        "del_hook",
        "get_hook",
        "modes",
        "set_hook",
    ),
    "smdebug.pytorch": (
        "Collection",
        "CollectionKeys",
        "Hook",
        "ReductionConfig",
        "SaveConfig",
        "SaveConfigMode",
        "del_hook",
        "get_hook",
        "modes",
        "set_hook",
    ),
}
"""Names that a module of the original's has, by the module."""


def found(place: str) -> Any:
    """Return what `module:name.name` names."""
    module, _, names = place.partition(":")
    target: Any = importlib.import_module(module)
    for name in names.split("."):
        target = getattr(target, name)
    return target


def arguments_of(target: Any, *, with_defaults: bool = True) -> str:
    """Return the arguments of a callable as text, without those that must be given by name."""
    empty = inspect.Parameter.empty
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_KEYWORD)
    kept = []
    for parameter in inspect.signature(target).parameters.values():
        if parameter.kind in kinds and parameter.name not in {"self", "cls", "options"}:
            default = parameter.default if with_defaults else empty
            kept.append(parameter.replace(annotation=empty, default=default))
    return str(inspect.Signature(kept))


class Checks:
    """Which names of the table are checked by tests that use them.

    Args:
        classes: Beginnings of the names that are checked here.
    """

    def __init__(self, *classes: str) -> None:
        self._wanted = {name for name in CALLABLES if name.partition(".")[0] in classes}

    def __call__(self, *names: str) -> Callable[[_Check], _Check]:
        """Mark a test that uses these names."""

        def note(check: _Check) -> _Check:
            self._wanted -= set(names)
            return check

        return note

    @property
    def missing(self) -> set[str]:
        """The names that no test was marked with."""
        return self._wanted


if __name__ == "__main__":  # run by the original's environment
    print(
        json.dumps(
            {
                name: arguments_of(found(theirs), with_defaults=name not in OTHER_DEFAULTS)
                for name, (_, theirs, _) in CALLABLES.items()
            }
        )
    )
