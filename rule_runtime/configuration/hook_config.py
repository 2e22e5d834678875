"""The hook's configuration, as in `DebugHookConfig` and `TensorBoardOutputConfig`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rule_runtime.configuration.api_values import as_strings, checked_members
from rule_runtime.configuration.collection_config import CollectionConfig, as_collection

__all__ = ["DebuggerHookConfig", "TensorBoardOutputConfig"]

_PATHS: Final = ("S3OutputPath", "LocalPath")
_HOOK: Final = (*_PATHS, "HookParameters", "CollectionConfigurations")


@dataclass(frozen=True, init=False)
class DebuggerHookConfig:
    """What the hook saves, and where.

    Args:
        s3_output_path: Prefix of the tensors' location `{s3_output_path}/{job}/debug-output/`; None
            for the job's output path.
        container_local_output_path: Folder in the training container.
        hook_parameters: Parameters of the hook, e.g. `{"save_interval": "100"}`.
        collection_configs: Collections of Stepwatch or the SageMaker SDK; None for the needs of
            rules and the hook's defaults.

    Attributes:
        s3_output_path: See above.
        container_local_output_path: See above.
        hook_parameters: See above; values are strings.
        collection_configs: See above.
    """

    s3_output_path: str | None
    container_local_output_path: str | None
    hook_parameters: Mapping[str, str] | None
    collection_configs: tuple[CollectionConfig, ...] | None

    def __init__(
        self,
        s3_output_path: str | None = None,
        container_local_output_path: str | None = None,
        hook_parameters: Mapping[str, object] | None = None,
        collection_configs: Iterable[object] | None = None,
    ) -> None:
        collections = None
        if collection_configs is not None:
            collections = tuple(map(as_collection, collection_configs))
        parameters = None if hook_parameters is None else as_strings(hook_parameters)
        object.__setattr__(self, "s3_output_path", s3_output_path)
        object.__setattr__(self, "container_local_output_path", container_local_output_path)
        object.__setattr__(self, "hook_parameters", parameters)
        object.__setattr__(self, "collection_configs", collections)

    def completed_by(self, parameters: Mapping[str, object]) -> DebuggerHookConfig:
        """Return the configuration with additional hook parameters.

        Args:
            parameters: Defaults for parameters that the configuration lacks.
        """
        return DebuggerHookConfig(
            self.s3_output_path,
            self.container_local_output_path,
            {**parameters, **(self.hook_parameters or {})},
            self.collection_configs,
        )

    def to_json(self) -> dict[str, Any]:
        """Return `DebugHookConfig` of CreateTrainingJob; None is omitted."""
        data = _paths(self.s3_output_path, self.container_local_output_path)
        if self.hook_parameters is not None:
            data["HookParameters"] = dict(self.hook_parameters)
        if self.collection_configs is not None:
            data["CollectionConfigurations"] = [each.to_json() for each in self.collection_configs]
        return data

    @classmethod
    def from_json(cls, member: Mapping[str, Any]) -> DebuggerHookConfig:
        """Return the configuration from a `DebugHookConfig`.

        Args:
            member: The member of CreateTrainingJob or DescribeTrainingJob.

        Raises:
            ValueError: A member is unknown.
        """
        checked_members("DebugHookConfig", member, (), _HOOK)
        collections = member.get("CollectionConfigurations")
        return cls(
            member.get("S3OutputPath"),
            member.get("LocalPath"),
            member.get("HookParameters"),
            collections,
        )


@dataclass(frozen=True)
class TensorBoardOutputConfig:
    """The location of TensorBoard files.

    Attributes:
        s3_output_path: Prefix of `{s3_output_path}/{job}/tensorboard-output/`; None for the job's
            output path.
        container_local_output_path: Folder in the training container.
    """

    s3_output_path: str | None = None
    container_local_output_path: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return `TensorBoardOutputConfig` of CreateTrainingJob; None is omitted."""
        return _paths(self.s3_output_path, self.container_local_output_path)

    @classmethod
    def from_json(cls, member: Mapping[str, Any]) -> TensorBoardOutputConfig:
        """Return the configuration from a `TensorBoardOutputConfig`.

        Args:
            member: The member of CreateTrainingJob or DescribeTrainingJob.

        Raises:
            ValueError: A member is unknown.
        """
        checked_members("TensorBoardOutputConfig", member, (), _PATHS)
        return cls(member.get("S3OutputPath"), member.get("LocalPath"))


def _paths(s3: str | None, local: str | None) -> dict[str, Any]:
    members = {"S3OutputPath": s3, "LocalPath": local}
    return {key: value for key, value in members.items() if value is not None}
