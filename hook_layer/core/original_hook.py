"""The hook that is made as the original's are: of ten arguments, or of a configuration file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from typing_extensions import Unpack

from hook_layer.configuration.hook_json import HookConfiguration
from hook_layer.configuration.hook_setup import HookArguments, IncludedCollections, set_up
from hook_layer.core.hook import BaseHook
from hook_layer.current_hook import CurrentHook
from hook_layer.format.modes import ModeKeys
from hook_layer.hook_options import OptionArguments
from hook_layer.reductions import ReductionConfig
from hook_layer.save_config import SaveConfig, SaveConfigMode

__all__ = ["OriginalHook", "missing_name"]


def missing_name(module: str, name: str) -> AttributeError:
    """Return the error for a name that a framework's module does not have.

    Args:
        module: Name of the module.
        name: The name; of what the original has in this place the error says where it is.
    """
    if name == "create_trial":
        return AttributeError(
            "hook_layer writes trials and does not read them: from rule_runtime import create_trial"
        )
    return AttributeError(f"module {module!r} has no attribute {name!r}")


class OriginalHook(BaseHook):
    """A hook with the original's arguments, which each framework's class explains.

    Attributes:
        current: The one of its framework that `get_hook` returns; the last that was made.
    """

    current: ClassVar[CurrentHook[Any]]

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
        *,
        configuration: HookConfiguration | None = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        arguments = HookArguments(
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
        )
        super().__init__(set_up(arguments, options, self._defaults, configuration))
        self.current.set(type(self), self)
