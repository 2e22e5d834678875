"""Writes the verdict as a file beside the tensors, like the original's rule jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from hook_layer.storage.base import StorageError
from lambdas.shared.status_event import status_detail
from rule_runtime.engine.result_file import result_place

if TYPE_CHECKING:
    from hook_layer.storage.base import Store
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration
    from lambdas.shared.state_table import StoredState

__all__ = ["ResultFiles"]


class ResultFiles:
    """Writes `rule-output/<RuleConfigurationName>/status.json` of jobs.

    The event and the table are authoritative; a failed write has no further effect.

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
