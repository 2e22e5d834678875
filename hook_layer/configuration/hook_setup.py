"""Converts the arguments of a hook, or a configuration file, into its setup.

The hooks of all frameworks accept the same arguments and the same file. A framework adds its
defaults (`FrameworkDefaults`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.collection_manager import CollectionManager
from hook_layer.configuration.collections import Collection, CollectionKeys
from hook_layer.configuration.configuration_file import OWN_VARIABLE
from hook_layer.configuration.hook_json import (
    CollectionParameters,
    HookConfiguration,
    load_hook_configuration,
)
from hook_layer.configuration.hook_options import HookOptions, OptionArguments
from hook_layer.configuration.job import HookTargets, JobConfiguration, JobEnvironment, hook_enabled
from hook_layer.configuration.json_values import as_choice, refuse
from hook_layer.configuration.places import Outputs, resolve_targets
from hook_layer.configuration.save_config import DEFAULT_SAVE_INTERVAL, SaveConfig, SaveConfigMode
from hook_layer.errors import HookConfigurationError, misspelled, nearest
from hook_layer.format.known_collections import KNOWN_COLLECTIONS
from hook_layer.format.modes import ModeKeys
from hook_layer.process.log_settings import apply_log_settings
from hook_layer.run.ranks import WHO_WRITES
from hook_layer.storage.base import open_store

__all__ = [
    "FrameworkDefaults",
    "HookArguments",
    "HookSetup",
    "IncludedCollections",
    "set_up",
]

_SWITCHED_OFF: Final = "memory://switched-off"


@runtime_checkable
class ConfiguredCollection(Protocol):
    """A collection with its parameters, such as `stepwatch.CollectionConfig`."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def parameters(self) -> Mapping[str, str]:
        """Its parameters, in the format of a configuration file."""


IncludedCollections: TypeAlias = "str | Iterable[str | ConfiguredCollection]"
"""Collections that a hook saves, each by name or with its parameters."""


@dataclass(frozen=True)
class FrameworkDefaults:
    """Defaults of a framework's hook.

    Attributes:
        built_in: Its collections by name, with the regular expressions of their tensors.
        always_saved: Names of collections that are saved regardless of the configuration.
        collection_type: Class of its collections.
        save_interval: Default interval between saved steps.
        unconfigured: Returns the configuration of hooks whose arguments name no collections; None:
            they save only what is always saved.
    """

    built_in: Mapping[str, tuple[str, ...]]
    always_saved: tuple[str, ...]
    collection_type: type[Collection] = Collection
    save_interval: int = DEFAULT_SAVE_INTERVAL
    unconfigured: Callable[[], HookConfiguration] | None = None


@dataclass(frozen=True)
class HookArguments:
    """The constructor arguments of the original's hooks, in its order."""

    out_dir: str | os.PathLike[str] | None = None
    export_tensorboard: bool = False
    tensorboard_dir: str | os.PathLike[str] | None = None
    dry_run: bool = False
    reduction_config: ReductionConfig | None = None
    save_config: SaveConfig | SaveConfigMode | Mapping[ModeKeys, SaveConfigMode] | None = None
    include_regex: str | Iterable[str] | None = None
    include_collections: IncludedCollections | None = None
    save_all: bool = False
    include_workers: str = "one"

    @property
    def configures_collections(self) -> bool:
        """Whether they say which tensors are saved, even if it is none."""
        named = (self.include_collections, self.include_regex)
        return self.save_all or any(value is not None for value in named)

    def checked(self) -> HookArguments:
        """Return these arguments if all are valid.

        Raises:
            HookConfigurationError: One is invalid.
        """
        for name in ("export_tensorboard", "dry_run", "save_all"):
            if not isinstance(value := getattr(self, name), bool):
                refuse(name, value, "must be True or False")
        for name in ("out_dir", "tensorboard_dir"):
            if not isinstance(value := getattr(self, name), (str, os.PathLike, type(None))):
                refuse(name, value, "must be a path or a URI")
        for name in ("include_regex", "include_collections"):
            _check_texts(name, getattr(self, name))
        if not isinstance(self.reduction_config, (ReductionConfig, type(None))):
            refuse("reduction_config", self.reduction_config, "must be a ReductionConfig")
        as_choice("include_workers", self.include_workers, WHO_WRITES)
        return self


@dataclass(frozen=True)
class HookSetup:
    """The setup of a hook.

    Attributes:
        targets: Where it writes.
        manager: Its collections.
        options: Further options.
        job: Its job; None: as described by the environment.
        dry_run: Whether it decides everything but stores nothing.
        include_workers: Which ranks write, one of `WHO_WRITES`.
        is_unconfigured: Whether the arguments leave the collections to the framework's default
            or to the file in `STEPWATCH_CONFIG`.
    """

    targets: HookTargets
    manager: CollectionManager
    options: HookOptions
    job: JobEnvironment | None = None
    dry_run: bool = False
    include_workers: str = "one"
    is_unconfigured: bool = False


def set_up(
    arguments: HookArguments,
    options: OptionArguments,
    defaults: FrameworkDefaults,
    configuration: HookConfiguration | None = None,
    environ: Mapping[str, str] = os.environ,
) -> HookSetup:
    """Convert the arguments of a hook, or a configuration file, into its setup.

    Without a configuration, the file in `STEPWATCH_CONFIG` still configures the job: the output
    location unless `out_dir` is given, the rules, and whether the job may be stopped. Its
    collections replace those of `defaults.unconfigured`.

    Raises:
        HookConfigurationError: An argument is invalid, or the file has a mistake.
    """
    apply_log_settings(environ)
    if configuration is not None:
        if arguments != HookArguments() or options:
            raise HookConfigurationError(
                "give a hook either a configuration or single arguments, not both"
            )
        arguments = _arguments(configuration, defaults)
        return _configured_by(configuration, arguments, defaults, environ, by_file=True)
    file = _file_of_the_environment(environ)
    arguments = arguments.checked()
    known = _known_options(options)
    default = None if arguments.configures_collections else defaults.unconfigured
    if default is None or not hook_enabled(environ):
        return _made_of(arguments, HookOptions(**known), defaults, file.job, environ)
    base = file if file.collections else replace(default(), job=file.job)
    base = replace(base, options=replace(base.options, **known))
    setup = _configured_by(
        _without_overridden(base, arguments),
        _completed(arguments, _arguments(base, defaults)),
        defaults,
        environ,
    )
    return replace(setup, is_unconfigured=True)


def _configured_by(
    configuration: HookConfiguration,
    arguments: HookArguments,
    defaults: FrameworkDefaults,
    environ: Mapping[str, str],
    *,
    by_file: bool = False,
) -> HookSetup:
    job = configuration.job
    setup = _made_of(arguments, configuration.options, defaults, job, environ, by_file=by_file)
    configuration.configure(setup.manager, defaults.save_interval)
    _check_names(f"{job.source}: CollectionConfigurations", setup.manager)
    return setup


def _completed(given: HookArguments, base: HookArguments) -> HookArguments:
    """Return the base with the arguments that are given."""
    unset = HookArguments()
    values = {field.name: getattr(given, field.name) for field in fields(given)}
    return replace(base, **{k: v for k, v in values.items() if v != getattr(unset, k)})


def _without_overridden(base: HookConfiguration, given: HookArguments) -> HookConfiguration:
    """Return the base without the parameters of collections that arguments replace.

    `save_config` is exact: it replaces all save steps. `reduction_config` leaves the values of the
    collections that are stored with values.
    """

    def left(of: CollectionParameters) -> CollectionParameters:
        config = of.reduction_config
        has_values = config is not None and config.save_raw_tensor
        is_replaced = given.reduction_config is not None and not has_values
        return replace(
            of,
            save=of.save if given.save_config is None else None,
            reduction_config=None if is_replaced else config,
        )

    return replace(base, collections=tuple(map(left, base.collections)))


def _made_of(
    arguments: HookArguments,
    options: HookOptions,
    defaults: FrameworkDefaults,
    job: JobConfiguration,
    environ: Mapping[str, str],
    *,
    by_file: bool = False,
) -> HookSetup:
    manager = _manager(arguments, defaults)
    for each in _as_list(arguments.include_collections):
        if isinstance(each, ConfiguredCollection):
            _configured(each).configure(manager, defaults.save_interval)
    _check_names("include_collections", manager)
    targets = _targets(arguments, job, environ, by_file=by_file)
    manager.has_summaries = targets.tensorboard is not None
    return HookSetup(
        targets,
        manager,
        options,
        JobEnvironment.detect(targets.out.uri, environ, job),
        arguments.dry_run,
        arguments.include_workers,
    )


def _targets(
    arguments: HookArguments, job: JobConfiguration, environ: Mapping[str, str], *, by_file: bool
) -> HookTargets:
    if not hook_enabled(environ):
        return HookTargets(open_store(_SWITCHED_OFF), given_out=_path(arguments.out_dir))
    outputs = Outputs(
        _path(arguments.out_dir),
        arguments.export_tensorboard,
        _path(arguments.tensorboard_dir),
        by_file=by_file,
    )
    return resolve_targets(outputs, job, environ)


def _file_of_the_environment(environ: Mapping[str, str]) -> HookConfiguration:
    if not hook_enabled(environ) or not environ.get(OWN_VARIABLE, "").strip():
        return HookConfiguration()
    return load_hook_configuration(environ=environ)


def _arguments(configuration: HookConfiguration, defaults: FrameworkDefaults) -> HookArguments:
    return HookArguments(
        export_tensorboard=configuration.export_tensorboard,
        tensorboard_dir=configuration.tensorboard_dir,
        dry_run=configuration.dry_run,
        reduction_config=configuration.reduction_config,
        save_config=configuration.save_config(defaults.save_interval),
        include_regex=configuration.include_regex,
        save_all=configuration.save_all,
        include_workers=configuration.include_workers,
    )


def _known_options(options: OptionArguments) -> OptionArguments:
    valid = [field.name for field in fields(HookOptions)]
    for name in options:
        if name not in valid:
            raise TypeError(f"a hook has no argument {name!r}: {nearest(name, valid)}")
    return options


def _path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path).strip() or None


def _manager(arguments: HookArguments, defaults: FrameworkDefaults) -> CollectionManager:
    collections = {
        name: defaults.collection_type(name, list(patterns))
        for name, patterns in defaults.built_in.items()
    }
    named = [name for name in _as_list(arguments.include_collections) if isinstance(name, str)]
    include = {*named, *defaults.always_saved}
    if arguments.include_regex is not None:
        collections[CollectionKeys.DEFAULT].include(_as_list(arguments.include_regex))
        include.add(CollectionKeys.DEFAULT)
    if arguments.save_all:
        collections[CollectionKeys.ALL].include(".*")
        include.add(CollectionKeys.ALL)
    save_config = arguments.save_config
    if save_config is None:
        save_config = SaveConfig(save_interval=defaults.save_interval)
    return CollectionManager(
        collections=collections,
        include=include,
        save_config=SaveConfig.parse(save_config),
        reduction_config=arguments.reduction_config or ReductionConfig(save_raw_tensor=True),
        built_in=frozenset(defaults.built_in),
        collection_type=defaults.collection_type,
    )


def _configured(collection: ConfiguredCollection) -> CollectionParameters:
    member = {"CollectionName": collection.name, "CollectionParameters": collection.parameters}
    return CollectionParameters.read("include_collections", member, {}, None)


def _check_names(where: str, manager: CollectionManager) -> None:
    """Reject configured collections without tensors whose name looks misspelled.

    The script may still fill others, which is checked at the first step.
    """
    for name in sorted(manager.include):
        collection = manager.collections.get(name)
        if collection is None or collection.include_regex:
            continue
        meant = misspelled(name, manager.built_in | KNOWN_COLLECTIONS.keys())
        if meant is not None:
            raise HookConfigurationError(
                f"{where} has {name!r}: did you mean {meant!r}? A new collection needs "
                "include_regex."
            )


def _check_texts(name: str, value: object) -> None:
    """Reject values other than strings, collections, and (nested) lists of them."""
    is_collection = name == "include_collections" and isinstance(value, ConfiguredCollection)
    if value is None or isinstance(value, str) or is_collection:
        return
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable):
        refuse(name, value, "must be a list of texts")
    for item in value:
        _check_texts(name, item)


def _as_list(value: str | Iterable[Any] | None) -> list[Any]:
    """Return a string, a list of strings, or nested lists of them, as one flat list."""
    if value is None:
        return []
    if isinstance(value, (str, ConfiguredCollection)):
        return [value]
    return [name for item in value for name in _as_list(item)]
