"""The verdict as a file beside the tensors, where the original's rule jobs leave their output."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from hook_layer.storage.base import StorageError
from lambdas.shared.status_event import status_detail

if TYPE_CHECKING:
    from hook_layer.storage.base import Store
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration
    from lambdas.shared.state_table import StoredState

__all__ = ["ResultFiles", "result_place"]

_TENSORS: Final = "debug-output/"
_OUTPUT: Final = "rule-output/"
_FILE: Final = "status.json"


class ResultFiles:
    """Writes `rule-output/<RuleConfigurationName>/status.json` of jobs.

    The event and the table are what counts; a file that cannot be written changes nothing.

    Args:
        open_store: Returns the store at a folder.
        telemetry: Logs and metrics.
    """

    def __init__(self, open_store: Callable[[str], Store], telemetry: Telemetry) -> None:
        self._open_store = open_store
        self._telemetry = telemetry

    def write(self, registration: Registration, stored: StoredState) -> None:
        """Write the status of `stored`, with the content of its event."""
        folder, key = result_place(stored.key.root_uri, stored.key.rule)
        content = json.dumps(status_detail(registration, stored), allow_nan=False, indent=2)
        try:
            self._open_store(folder).put(key, content.encode())
        except (StorageError, ValueError) as error:
            self._telemetry.count("ResultsNotWritten")
            self._telemetry.warning("the verdict is not written as a file", problem=str(error))


def result_place(root_uri: str, rule_configuration_name: str) -> tuple[str, str]:
    """Return the folder of a job, and the key of a rule's result below it.

    Args:
        root_uri: The trial's root; its last part `debug-output` is left off, as in the original's
            layout, and other roots are the job's folder themselves.
        rule_configuration_name: The rule; what cannot be part of a name is escaped.
    """
    folder = root_uri
    if root_uri.endswith(f"/{_TENSORS}"):
        folder = root_uri.removesuffix(_TENSORS)
    return folder, f"{_OUTPUT}{quote(rule_configuration_name, safe=' ')}/{_FILE}"
