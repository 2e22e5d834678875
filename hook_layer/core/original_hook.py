"""A hook with the original library's constructor: ten arguments, or a configuration file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from typing_extensions import Unpack

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.hook_json import HookConfiguration
from hook_layer.configuration.hook_options import OptionArguments
from hook_layer.configuration.hook_setup import HookArguments, IncludedCollections, set_up
from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
from hook_layer.core.hook import BaseHook
from hook_layer.current_hook import CurrentHook
from hook_layer.format.modes import ModeKeys

__all__ = ["OriginalHook", "missing_name"]


def missing_name(module: str, name: str) -> AttributeError:
    """Return the error for a name that a framework's module does not have.

    Args:
        module: Name of the module.
        name: The name. If the original has it, the error says where Stepwatch has it.
    """
    if name == "create_trial":
        return AttributeError(
            "hooks write trials and do not read them: from stepwatch import create_trial"
        )
    return AttributeError(f"module {module!r} has no attribute {name!r}")


class OriginalHook(BaseHook):
    """A hook with the arguments that the hooks of all frameworks share.

    Args:
        out_dir: Folder, or `s3://bucket/prefix`.
        export_tensorboard: Write TensorBoard files, to `out_dir/tensorboard`.
        tensorboard_dir: Write TensorBoard files to this folder or `s3://bucket/prefix`.
        dry_run: Decide everything but store nothing.
        reduction_config: What is stored of a tensor; default: its value.
        save_config: When to save; default: every 500 steps, in XGBoost every 10 rounds.
        include_regex: Also save tensors whose name matches one of these.
        include_collections: Also save these collections, by name or as `CollectionConfig`.
        save_all: Save everything.
        include_workers: Which ranks of a distributed run write: `one`, `all` or `auto`.
        configuration: Content of a configuration file, from `create_from_json_file`; excludes all
            arguments before it.
        **options: Further options, see `HookOptions`: `statistics stop stop_poll_s on_full
            queue_bytes close_timeout_s max_wait_s spool_bytes spool_dir max_step_bytes
            max_run_bytes termination_timeout_s`.

    Raises:
        HookConfigurationError: An argument is invalid.

    Attributes:
        current: The newest hook of its framework, which `get_hook` returns.
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
        self.current.set_hook(self)
