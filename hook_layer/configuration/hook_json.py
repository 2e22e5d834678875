"""Parses and validates the JSON that configures a hook.

The page `docs/reference/hook-configuration.md` describes it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.collection_manager import CollectionManager
from hook_layer.configuration.configuration_file import ConfigurationFile, read_configuration_file
from hook_layer.configuration.hook_options import HookOptions, OptionArguments
from hook_layer.configuration.job import JobConfiguration
from hook_layer.configuration.job_json import parse_job
from hook_layer.configuration.json_values import (
    as_choice,
    as_flag,
    as_integer,
    as_number,
    as_object,
    as_optional_number,
    as_text,
    known_keys,
    refuse,
)
from hook_layer.configuration.original_file import write_original_file
from hook_layer.configuration.parameters_json import (
    REDUCTION_KEYS,
    SAVE_KEYS,
    SaveParameters,
    make_save_config,
    read_include_regex,
    read_reduction_config,
    read_save_parameters,
)
from hook_layer.configuration.save_config import SaveConfig
from hook_layer.errors import HookConfigurationError, close_match, nearest
from hook_layer.run.ranks import WHO_WRITES

__all__ = [
    "CollectionParameters",
    "HookConfiguration",
    "load_hook_configuration",
    "parse_hook_configuration",
]

logger = logging.getLogger("stepwatch")

_COLLECTION_KEYS: Final = (*SAVE_KEYS, *REDUCTION_KEYS, "include_regex", "save_histogram")
_OPTIONS: Final[dict[str, Callable[[str, object], object]]] = {
    "statistics": as_flag,
    "stop": partial(as_choice, valid=("raise", "flag")),
    "stop_poll_s": as_number,
    "on_full": partial(as_choice, valid=("wait", "drop")),
    "queue_bytes": partial(as_integer, minimum=1),
    "close_timeout_s": as_optional_number,
    "max_wait_s": as_number,
    "spool_bytes": partial(as_integer, minimum=0),
    "spool_dir": as_text,
    "max_step_bytes": partial(as_integer, minimum=1),
    "max_run_bytes": partial(as_integer, minimum=1),
    "termination_timeout_s": as_optional_number,
}
_NULLABLE: Final = ("close_timeout_s", "termination_timeout_s")
"""Options for which null is a value, not the default."""
_FLAG_KEYS: Final = ("save_all", "dry_run", "export_tensorboard")
_PARAMETER_KEYS: Final = (
    *SAVE_KEYS,
    *REDUCTION_KEYS,
    *_FLAG_KEYS,
    "include_regex",
    "include_workers",
    "tensorboard_dir",
    *_OPTIONS,
)
_NAME: Final = "CollectionName"
_PARAMETERS: Final = "CollectionParameters"


@dataclass(frozen=True)
class CollectionParameters:
    """The configuration of one collection.

    Attributes:
        name: Its name.
        save: When it is saved, merged with the hook's parameters; None if not configured.
        reduction_config: What is stored; None if not configured.
        include_regex: Its regular expressions.
        save_histogram: Whether TensorBoard gets histograms; None if not configured.
    """

    name: str
    save: SaveParameters | None = None
    reduction_config: ReductionConfig | None = None
    include_regex: list[str] = field(default_factory=list)
    save_histogram: bool | None = None

    @classmethod
    def read(
        cls,
        path: str,
        item: Mapping[str, Any],
        save: SaveParameters,
        reduction_config: ReductionConfig | None,
    ) -> CollectionParameters:
        """Validate and parse a member of `CollectionConfigurations`.

        Args:
            path: Its path, for messages.
            item: The member.
            save: Default for when it is saved.
            reduction_config: Default for what is stored, or None.

        Raises:
            HookConfigurationError: With key, value and allowed values.
        """
        members = known_keys(f"{path}.", item, (_NAME, _PARAMETERS))
        if _NAME not in members:
            raise HookConfigurationError(f"{path}: Must specify '{_NAME}' in JSON config.")
        name = as_text(f"{path}.{_NAME}", members[_NAME])
        path = f"{path}.{_PARAMETERS}"
        given = as_object(path, members.get(_PARAMETERS))
        given = {key: given[key] for key in given if key not in _without_effect(given)}
        given = known_keys(f"{path}.", given, _COLLECTION_KEYS)
        histogram = given.get("save_histogram")
        return cls(
            name=name,
            save=read_save_parameters(path, given, save),
            reduction_config=read_reduction_config(path, given, reduction_config),
            include_regex=read_include_regex(path, given),
            save_histogram=(
                None if histogram is None else as_flag(f"{path}.save_histogram", histogram)
            ),
        )

    def configure(self, manager: CollectionManager, default_interval: int) -> None:
        """Configure the collection; create it if it does not exist."""
        collection = manager.get(self.name)
        manager.include.add(self.name)
        if self.save is not None:
            collection.save_config = make_save_config(self.save, default_interval)
        if self.reduction_config is not None:
            collection.reduction_config = self.reduction_config
        if self.save_histogram is not None:
            collection.save_histogram = self.save_histogram
        collection.include(self.include_regex)


@dataclass(frozen=True)
class HookConfiguration:
    """Content of a configuration file.

    Attributes:
        job: Configuration of the job.
        save: Default for when collections are saved.
        reduction_config: Default for what is stored of collections; None if not configured.
        include_regex: Additional tensors to save; None if not configured.
        tensorboard_dir: Where TensorBoard files go; None if not configured.
        include_workers: Which ranks write, one of `WHO_WRITES`.
        save_all: Whether everything is saved.
        dry_run: Whether the hook decides everything but stores nothing.
        export_tensorboard: Whether TensorBoard files are written.
        options: Further options.
        collections: The collections that are saved.
        warnings: Parts of the file without effect.
    """

    job: JobConfiguration = field(default_factory=JobConfiguration)
    save: SaveParameters = field(default_factory=dict)
    reduction_config: ReductionConfig | None = None
    include_regex: list[str] | None = None
    tensorboard_dir: str | None = None
    include_workers: str = "one"
    save_all: bool = False
    dry_run: bool = False
    export_tensorboard: bool = False
    options: HookOptions = field(default_factory=HookOptions)
    collections: tuple[CollectionParameters, ...] = ()
    warnings: tuple[str, ...] = ()

    def save_config(self, default_interval: int) -> SaveConfig:
        """Return the default for when collections are saved."""
        return make_save_config(self.save, default_interval)

    def configure(self, manager: CollectionManager, default_interval: int) -> None:
        """Configure the collections; create those that do not exist."""
        for parameters in self.collections:
            parameters.configure(manager, default_interval)


def load_hook_configuration(
    json_file_path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ
) -> HookConfiguration:
    """Find, read and validate the file that configures a hook.

    Raises:
        ConfigurationFileNotFoundError: There is none.
        HookConfigurationError: It is unreadable, or has a mistake.
    """
    file = read_configuration_file(json_file_path, environ)
    try:
        found = parse_hook_configuration(file)
    except HookConfigurationError as error:
        raise HookConfigurationError(f"{file.name}: {error}") from error
    write_original_file(file, environ)
    return found


def parse_hook_configuration(file: ConfigurationFile) -> HookConfiguration:
    """Validate and parse a configuration file; log unknown `HookParameters`.

    Raises:
        HookConfigurationError: With key, value and allowed values.
    """
    hook, job = parse_job(file)
    path = "HookParameters"
    members = as_object(path, hook.get(path))
    given = {key: members[key] for key in _PARAMETER_KEYS if members.get(key) is not None}
    collections = hook.get("CollectionConfigurations")
    warnings = (*_unknown(path, members), *_unknown_of_collections(collections))
    for warning in warnings:
        logger.warning("%s: %s", file.name, warning)
    given |= {key: None for key in _NULLABLE if key in members and members[key] is None}
    save = read_save_parameters(path, given, {})
    reduction_config = read_reduction_config(path, given, None)
    flags = {key: as_flag(f"{path}.{key}", given.get(key, False)) for key in _FLAG_KEYS}
    workers = as_choice(f"{path}.include_workers", given.get("include_workers", "one"), WHO_WRITES)
    directory = given.get("tensorboard_dir")
    return HookConfiguration(
        job=job,
        save=save or {},
        reduction_config=reduction_config,
        include_regex=read_include_regex(path, given) or None,
        tensorboard_dir=(
            None if directory is None else as_text(f"{path}.tensorboard_dir", directory)
        ),
        include_workers=workers,
        save_all=flags["save_all"],
        dry_run=flags["dry_run"],
        export_tensorboard=flags["export_tensorboard"],
        options=_options(path, given),
        collections=_collections(collections, save or {}, reduction_config),
        warnings=warnings,
    )


def _unknown(path: str, members: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a warning for each unknown parameter, which the original ignores."""
    return tuple(
        f"{path}.{key:.80} is unknown and has no effect: {nearest(key, _PARAMETER_KEYS)}"
        for key in map(str, members)
        if key not in _PARAMETER_KEYS
    )


def _unknown_of_collections(value: object) -> Iterator[str]:
    """Yield a warning for each parameter of a collection that is unlike any known one."""
    for position, item in enumerate(value if isinstance(value, list) else ()):
        members = item.get(_PARAMETERS) if isinstance(item, dict) else None
        for key in _without_effect(members) if isinstance(members, dict) else ():
            path = f"CollectionConfigurations[{position}].{_PARAMETERS}.{key:.80}"
            yield f"{path} is unknown and has no effect: {nearest(key, _COLLECTION_KEYS)}"


def _without_effect(members: Mapping[str, Any]) -> list[str]:
    """Return the keys that the original ignores and that misspell no known one."""
    unknown = [key for key in map(str, members) if key not in _COLLECTION_KEYS]
    return [key for key in unknown if close_match(key, _COLLECTION_KEYS) is None]


def _options(path: str, given: Mapping[str, Any]) -> HookOptions:
    read = {key: of(f"{path}.{key}", given[key]) for key, of in _OPTIONS.items() if key in given}
    try:
        return HookOptions(**cast("OptionArguments", read))
    except HookConfigurationError as error:
        raise HookConfigurationError(f"{path}.{error}") from error


def _collections(
    value: object, save: SaveParameters, reduction_config: ReductionConfig | None
) -> tuple[CollectionParameters, ...]:
    path = "CollectionConfigurations"
    if value is not None and not isinstance(value, list):
        refuse(path, value, "must be a list of JSON objects")
    return tuple(
        CollectionParameters.read(
            f"{path}[{i}]", as_object(f"{path}[{i}]", item), save, reduction_config
        )
        for i, item in enumerate(value or ())
    )
