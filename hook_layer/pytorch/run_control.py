"""Begins the steps of a run, and ends it: what the parts of a hook need of the hook itself."""

from __future__ import annotations

from weakref import ref

from hook_layer.core.hook import BaseHook
from hook_layer.pytorch.ranks import TorchRanks

__all__ = ["RunControl"]


class RunControl:
    """Begins the steps of a run, and ends it.

    Args:
        hook: The hook, known weakly: it owns this.
        ranks: The ranks of the run.

    Attributes:
        clock: Numbers of the steps.
    """

    def __init__(self, hook: BaseHook, ranks: TorchRanks) -> None:
        self.clock = hook.clock
        self._hook = ref(hook)
        self._ranks = ranks
        self._session = hook.session
        self._stop_listener = hook.stop_listener

    def begin_step(self, *, is_training: bool) -> None:
        """Begin a step; the one before ends here if it is still open.

        Args:
            is_training: Whether it is a training step, of which all ranks have as many.

        Raises:
            TrainingStoppedError: This run was asked to stop, and the hook is to raise.
            HookConfigurationError: The collections are misconfigured (at the first step only).
        """
        self._stop_listener.is_training_step = is_training
        hook = self._hook()
        if hook is not None:
            hook.begin_step()

    def close(self) -> None:
        """Close the hook."""
        hook = self._hook()
        if hook is not None:
            hook.close()

    @property
    def trial_uri(self) -> str:
        """URI of the trial's root."""
        return self._session.store.uri

    @property
    def is_writer(self) -> bool:
        """Whether this rank writes, as far as that is known."""
        return bool(self._session.is_writer)

    def announce_start(self) -> None:
        """Let other ranks that begin earlier than this one not wait."""
        if self._session.all_write:
            self._ranks.announce_start(self._session.chief_start)

    def agree_on_stop(self, model: str) -> None:
        """Let all ranks stop before the same step.

        Args:
            model: What is trained; the same in all ranks.
        """
        poll_s = self._session.options.stop_poll_s
        self._ranks.agree_on_stop(self._stop_listener, model, poll_s)
