"""The ranks of a distributed run, as reported by the framework."""

from __future__ import annotations

from collections.abc import Iterable

from hook_layer.resuming.checkpoint import RunStart

__all__ = ["Workers"]


class Workers:
    """The ranks of a run; this class handles runs of a single rank.

    A framework with distributed training overrides the differences.

    Attributes:
        supports_all: Whether every rank can write.
        supports_auto: Whether the ranks can agree on the start of a run, as
            `include_workers="auto"` requires.
        framework: Name of the framework, for messages.
        stop_hint: How to stop several ranks, for the end of a message.
    """

    supports_all: bool = True
    supports_auto: bool = False
    framework: str = ""
    stop_hint: str = ""

    def rank_and_size(self) -> tuple[int, int]:
        """Return this process's rank, and the number of ranks."""
        return 0, 1

    def shared_start(self, start: RunStart) -> RunStart:
        """Return where all ranks begin.

        Args:
            start: Decision of rank 0; ignored in other ranks.
        """
        return start

    def rank_groups(self) -> Iterable[int]:
        """Return one rank of each pipeline stage and shard group, if they are known."""
        return ()

    def pipeline_stage(self) -> int | None:
        """Return the index of this rank's pipeline stage; None without pipelines."""
        return None
