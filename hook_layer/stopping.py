"""How a hook that was asked to stop ends the training loop."""

from __future__ import annotations

import logging

from hook_layer.errors import TrainingStoppedError
from hook_layer.format.job_file import StopFile
from hook_layer.hook_options import HookOptions
from hook_layer.own_tensors import OwnTensors
from hook_layer.stop_agreement import StopAgreement
from hook_layer.uncaught import about_to_stop

__all__ = ["StoppableHook"]

logger = logging.getLogger("stepwatch")


class StoppableHook(OwnTensors):
    """A hook that stops training where the next step would begin."""

    _options: HookOptions
    _agreement: StopAgreement | None = None  # where several workers agree on when to stop
    _is_training_step = True  # whether the step that begins is one of training
    _warned_of_stop = False

    @property
    def should_stop(self) -> bool:
        """Whether this run was asked to stop, and may do so now.

        Where several workers agree on it (`hook_layer.stop_agreement`) this turns True in all of
        them in the same training step; who gets False is to begin another one.
        """
        return self._stop_now() is not None

    @property
    def was_stopped(self) -> bool:
        """Whether this run was asked to stop, and the hook was to see to it."""
        return self.should_stop and self._options.stop == "raise"

    @property
    def stop_reason(self) -> str | None:
        """Why this run is to stop, None while `should_stop` is False."""
        request = self._stop_now()
        return None if request is None else request.reason

    def close(self) -> None:
        """Write what is left."""
        raise NotImplementedError

    def _rank_and_size(self) -> tuple[int, int]:
        """Return this worker's rank, and how many workers train."""
        return 0, 1

    def _stop_request(self) -> StopFile | None:
        """Return what asks this worker to stop; also called in other threads."""
        raise NotImplementedError

    def _stop_now(self) -> StopFile | None:
        if self._agreement is not None:
            return self._agreement.stop_now()
        return self._stop_request()

    def _stop_if_asked(self) -> None:
        """Close and raise where a step is about to begin, if it shall not.

        Raises:
            TrainingStoppedError: This run was asked to stop, and the hook is to raise.
        """
        if self._agreement is not None:
            request = self._agreement.begin_step() if self._is_training_step else None
        else:
            request = self._stop_request()
        if request is None or self._options.stop != "raise":
            return
        if self._agreement is None and self._rank_and_size()[1] > 1:
            # One rank that leaves alone would let the others wait for it for ever.
            if not self._warned_of_stop:
                self._warned_of_stop = True
                logger.warning("with several ranks, a stop request only sets hook.should_stop")
            return
        self.close()
        about_to_stop()
        raise TrainingStoppedError(request.reason, request.rule_configuration_name)
