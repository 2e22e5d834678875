"""Values that a script saves after `xgboost.train` returned."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Mapping

from hook_layer.capture import CapturedTensor, StepRecord
from hook_layer.collection_manager import CollectionManager
from hook_layer.resuming.resume import run_in
from hook_layer.session import TrialSession
from hook_layer.storage.base import Store

__all__ = ["LateValues"]

logger = logging.getLogger("stepwatch")


class LateValues:
    """Collects values after the end of a run, and writes them as one more step of it.

    `close` writes them, or the end of the process. Until then the run keeps its end marker.

    Args:
        record: The step, without tensors.
        store: The trial's root.
        run_id: The run.
        reopen: Opens the run for writing.
        collections: The collections of the hook.
        timeout_s: How long to wait for the storage; None: without limit.
    """

    def __init__(  # noqa: PLR0917 - all different
        self,
        record: StepRecord,
        store: Store,
        run_id: str,
        reopen: Callable[[], TrialSession],
        collections: CollectionManager,
        timeout_s: float | None,
    ) -> None:
        self._record = record
        self._store = store
        self._run_id = run_id
        self._reopen = reopen
        self._collections = collections
        self._timeout_s = timeout_s
        self._pid = os.getpid()

    def add(self, tensors: Mapping[str, CapturedTensor], wall_time: float | None) -> None:
        """Add values.

        Args:
            tensors: The captured values by name.
            wall_time: When they were measured, seconds since 1970; None: when the run ended.
        """
        if not self._record.tensors:
            atexit.register(self.close)  # keeps this object, if the hook goes before
        for tensor in tensors.values():
            tensor.wall_time = wall_time
        self._record.tensors.update(tensors)

    def close(self) -> None:
        """Write the values, unless the folder is that of another run by now."""
        atexit.unregister(self.close)
        if not self._record.tensors or os.getpid() != self._pid:
            return
        try:
            if run_in(self._store) != self._run_id:
                logger.warning(
                    "values of %s are not stored, because another run began in %s",
                    ", ".join(self._record.tensors),
                    self._store.uri,
                )
                return
            self._reopen().finish(
                [self._record],
                self._collections.to_file(),
                end_of_training=True,
                timeout_s=self._timeout_s,
            )
        except Exception:
            logger.exception("values of %s are not stored", ", ".join(self._record.tensors))
