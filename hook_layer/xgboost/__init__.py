"""The hook for XGBoost: `from hook_layer.xgboost import Hook`.

The page `docs/reference/frameworks.md` has the names of tensors and the order of events in a step.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from hook_layer.frameworks import XGBOOST

try:
    import xgboost as _xgboost
except ImportError as error:
    raise XGBOOST.missing() from error

from typing_extensions import Unpack

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.collections import Collection, CollectionKeys
from hook_layer.configuration.hook_json import HookConfiguration
from hook_layer.configuration.hook_options import OptionArguments
from hook_layer.configuration.hook_setup import IncludedCollections
from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
from hook_layer.core.original_hook import OriginalHook, missing_name
from hook_layer.current_hook import CurrentHook
from hook_layer.errors import HookConfigurationError
from hook_layer.format.modes import ModeKeys
from hook_layer.format.modes import ModeKeys as modes  # noqa: N813 - the original's name
from hook_layer.process.inactive_copy import InactiveCopy
from hook_layer.report import HookReport
from hook_layer.xgboost.collections import DEFAULTS
from hook_layer.xgboost.data import as_dmatrix
from hook_layer.xgboost.events import BoosterEvents

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "HookReport",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]


class InactiveCopyCallback(InactiveCopy, _xgboost.callback.TrainingCallback):
    """A copy of a hook that may be a callback."""

    def before_training(self, model: Any) -> Any:
        """Log that nothing is saved; called by XGBoost."""
        self._do_nothing()
        return model


class Hook(OriginalHook, BoosterEvents):
    """Captures tensors of an XGBoost training.

    The arguments before `hyperparameters` are those of
    `hook_layer.core.original_hook.OriginalHook`. `metrics` is always saved. `include_workers` is
    `one` or `all` of the workers of xgboost.collective.

    Args:
        hyperparameters: The parameters of the training, for the collection of that name.
        train_data: What SHAP values are computed of: a DMatrix, or a file and its content type,
            e.g. `("train.csv", "csv")`: without header, the label in the first column; or `libsvm`.
        validation_data: What is predicted, with its labels; as `train_data`.

    Raises:
        HookConfigurationError: An argument makes no sense.
    """

    _defaults = DEFAULTS
    current: ClassVar[CurrentHook[Hook]]

    def __init__(  # noqa: PLR0917 - the original's arguments
        self,
        out_dir: str | os.PathLike[str] | None = None,
        export_tensorboard: bool = False,
        tensorboard_dir: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | SaveConfigMode | Mapping[ModeKeys, SaveConfigMode] | None = None,
        include_regex: str | Iterable[str] | None = None,
        include_collections: IncludedCollections | None = None,
        save_all: bool = False,
        include_workers: str = "one",
        hyperparameters: Mapping[str, Any] | None = None,
        train_data: tuple[str, str | None] | _xgboost.DMatrix | None = None,
        validation_data: tuple[str, str | None] | _xgboost.DMatrix | None = None,
        *,
        configuration: HookConfiguration | None = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        super().__init__(
            out_dir,
            export_tensorboard,
            tensorboard_dir,
            dry_run,
            reduction_config,
            save_config,
            include_regex,
            include_collections,
            save_all,
            include_workers,
            configuration=configuration,
            **options,
        )
        self.hyperparameters = hyperparameters
        self.train_data = train_data
        self.validation_data = validation_data

    @property
    def hyperparameters(self) -> Mapping[str, Any] | None:
        """The parameters of the training; may be set before it starts."""
        return self._inputs.hyperparameters

    @hyperparameters.setter
    def hyperparameters(self, value: Mapping[str, Any] | None) -> None:
        if not isinstance(value, (Mapping, type(None))):
            raise HookConfigurationError(f"hyperparameters={value!r:.200} must be a dict")
        self._inputs.hyperparameters = None if value is None else dict(value)
        self._wanted.clear()

    @property
    def train_data(self) -> _xgboost.DMatrix | None:
        """The data that SHAP values are computed of; may be set as the argument is given."""
        return self._inputs.train_data

    @train_data.setter
    def train_data(self, value: tuple[str, str | None] | _xgboost.DMatrix | None) -> None:
        self._inputs.train_data = as_dmatrix("train_data", value) if self.state.is_enabled else None

    @property
    def validation_data(self) -> _xgboost.DMatrix | None:
        """The data that is predicted; may be set as the argument is given."""
        return self._inputs.validation_data

    @validation_data.setter
    def validation_data(self, value: tuple[str, str | None] | _xgboost.DMatrix | None) -> None:
        self._inputs.validation_data = (
            as_dmatrix("validation_data", value) if self.state.is_enabled else None
        )

    @classmethod
    def hook_from_config(cls, json_config_path: str | os.PathLike[str] | None = None) -> Hook:
        """Same as `create_from_json_file`."""
        return cls.create_from_json_file(json_config_path)

    def __call__(self, *_: Any, **__: Any) -> None:
        """Refuse to be called as a callback of XGBoost before 1.3.

        Raises:
            HookConfigurationError: Always.
        """
        raise HookConfigurationError(
            "the hook is a callback object of XGBoost 2.1 or later, not a function; pass "
            "it to xgboost.train(..., callbacks=[hook])"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return InactiveCopyCallback, (type(self),)


Hook.current = CurrentHook(Hook)
set_hook = Hook.current.set_hook
del_hook = Hook.current.del_hook


def get_hook(json_config_path: str | os.PathLike[str] | None = None) -> Hook | None:
    """Return the current hook, see `CurrentHook.get_hook`; makes one if there is none."""
    return Hook.current.get_hook(json_config_path, create_if_not_exists=True)


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name)
