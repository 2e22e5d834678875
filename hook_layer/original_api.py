"""What users of the original client find in the hook of every framework, beside `BaseHook`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any, ClassVar

from typing_extensions import Self

from hook_layer.collections import CollectionKeys
from hook_layer.config import hook_enabled
from hook_layer.configuration.hook_json import HookConfiguration, load_hook_configuration
from hook_layer.configuration.hook_setup import FrameworkDefaults
from hook_layer.guard import guarded
from hook_layer.hook import BaseHook

__all__ = ["OriginalApi", "missing_name"]

logger = logging.getLogger("stepwatch")


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


class OriginalApi(BaseHook):
    """Adds the original client's further methods to a hook.

    A framework's hook takes a keyword argument `configuration` and gives it to
    `hook_layer.configuration.hook_setup.set_up`.
    """

    _defaults: ClassVar[FrameworkDefaults]
    _is_asked_for_traces: ClassVar[bool] = False

    @classmethod
    def create_from_json_file(cls, json_file_path: str | os.PathLike[str] | None = None) -> Self:
        """Make a hook as a configuration file says, which attaches to the first training.

        `hook_layer.configuration.hook_json` describes the file. A hook for PyTorch watches the
        model that trains first, unless the script registers one.

        Args:
            json_file_path: The file; None: the one that `STEPWATCH_CONFIG` names, else
                `SMDEBUG_CONFIG_FILE_PATH`, else the one that SageMaker puts into the container.

        Raises:
            ConfigurationFileNotFoundError: There is no such file.
            HookConfigurationError: The file has a mistake.
        """
        is_on = hook_enabled()
        configuration = load_hook_configuration(json_file_path) if is_on else HookConfiguration()
        hook = cls(configuration=configuration)  # type: ignore[call-arg]  # of the frameworks' hooks
        hook.attach_to_first_model()
        return hook

    def attach_to_first_model(self) -> None:
        """Watch the model that trains first, where the framework's hook can."""

    def has_default_hook_configuration(
        self, default_saved_collections: Iterable[str] | None = None
    ) -> bool:
        """Return whether only the collections are saved that are saved without being asked for.

        Args:
            default_saved_collections: Names of those; None: the framework's.
        """
        if default_saved_collections is None:
            default_saved_collections = self._defaults.always_saved
        saved = self.collection_manager.include
        if CollectionKeys.ALL in saved:
            saved = set(self.collection_manager.collections)
        return saved == set(default_saved_collections)

    def has_default_configuration(self) -> bool:
        """Same as `has_default_hook_configuration`; there is no profiler to be configured."""
        return self.has_default_hook_configuration()

    def should_save_tensor_or_collection(self, tensor_name: str, collection_name: str) -> bool:
        """Return whether a tensor is saved in the step in progress; False before the first step.

        Args:
            tensor_name: Name of the tensor; of a gradient it may be the parameter's.
            collection_name: The collection that it belongs to whatever its name, if that one is
                saved and has no regular expressions.
        """
        for collection in self._due:
            if collection.name == collection_name and not collection.include_regex:
                return True
            if collection.matches(tensor_name):
                return True
        is_gradient = collection_name == CollectionKeys.GRADIENTS
        gradient = f"gradient/{tensor_name}"
        return is_gradient and any(c.matches(gradient) for c in self._due)

    @guarded("collections")
    def export_collections(self) -> None:
        """Write the collections file as the collections are now, without waiting for a step."""
        with self._lock:
            if self._is_writer is None and self._all_workers and self._rank_and_size()[1] > 1:
                return  # opening is up to all workers together, and the first step writes the file
            self._open()
            if self._session is not None:
                self._write_collections(self._session)

    def record_trace_events(
        self,
        timestamp: float,
        training_phase: str = "",
        op_name: str = "",
        phase: str = "X",  # noqa: ARG002
        duration: float = 1,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Take an event for the original's profiler, which is no part of this: nothing is stored.

        Args:
            timestamp: When it began, seconds since 1970.
            training_phase: What it is part of.
            op_name: What it is.
            phase: Kind of the event.
            duration: How long it took, seconds.
            kwargs: Whatever else belongs to it.
        """
        if not OriginalApi._is_asked_for_traces:
            OriginalApi._is_asked_for_traces = True
            logger.warning(
                "record_trace_events stores nothing (first call: %r, %r at %s), because "
                "Stepwatch has no profiler; use the profiler of your framework",
                training_phase,
                op_name,
                timestamp,
            )
