"""A hook among those of the other workers of torch.distributed."""

from __future__ import annotations

import logging
import os
from weakref import finalize

from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.format.job_file import StopFile
from hook_layer.guard import guarded
from hook_layer.hook import BaseHook
from hook_layer.pytorch.distributed import (
    HookGroup,
    SharedText,
    let_reductions_end,
    rank_and_size,
)
from hook_layer.resuming.checkpoint import RunStart
from hook_layer.stop_agreement import StopAgreement
from hook_layer.weak_method import WeakMethod

__all__ = ["TorchWorker"]

logger = logging.getLogger("stepwatch")

_ONE_WRITER = "one"


class TorchWorker(BaseHook):
    """A hook that begins and stops together with those of the other workers.

    Args:
        setup: What the hook is made of.
    """

    _knows_all_ranks = True

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup)
        # What only the chief writes may have another URI in every rank, and so may a session.
        has_one_name = self._all_workers and not self._place.is_in_session
        self._group = HookGroup(self.trial_uri if has_one_name else _ONE_WRITER)
        self._announcement = SharedText(self._group)
        self._warned_of_fork = False

    def _announce_start(self) -> None:
        """Let other workers that begin earlier than this one not wait."""
        if self._all_workers:
            self._announcement.announce(lambda: self._chief_start().to_json())

    @guarded("stop agreement")
    def _join_the_others(self, name: str) -> None:
        """Take part in the agreement on when to stop, if there are other workers.

        Args:
            name: What is trained; the same in all workers.
        """
        group = self._group.stop_group(name)
        if group is None:
            return
        let_reductions_end()
        known = WeakMethod(self._stop_request)

        def asked() -> StopFile | None:
            stop_request = known()
            return None if stop_request is None else stop_request()

        self._agreement = StopAgreement(group, asked, poll_s=self._options.stop_poll_s)
        finalize(self, self._agreement.leave)

    def _warn_if_forked(self) -> None:
        """Log once that a model is called in a child process, where nothing is saved."""
        if self._enabled and not self._closed and not self._warned_of_fork:
            self._warned_of_fork = True
            logger.warning(
                "process %d, a fork, calls a registered model and saves nothing; create a "
                "hook in this process",
                os.getpid(),
            )

    def _rank_and_size(self) -> tuple[int, int]:
        return rank_and_size()

    def _shared_start(self, start: RunStart) -> RunStart:
        return RunStart.from_json(self._announcement.get(start.to_json))

    def _detach(self) -> None:
        super()._detach()
        if self._agreement is not None:
            self._agreement.close()
