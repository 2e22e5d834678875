"""Work on a run that a later call continues, as a part of its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rule_runtime.engine.json_codec import JsonRecord

__all__ = ["Finishing", "Replaying", "Scan", "Waiting"]


class Waiting(NamedTuple):
    """The first waiting step.

    Attributes:
        since: When it became the first waiting step, seconds since the epoch.
        looked: True once a listing has searched for the files that it waits for.
    """

    step: int
    since: float
    looked: bool = False


class Scan(NamedTuple):
    """An unfinished listing that looks for lost files.

    Attributes:
        after: Files of this step and earlier ones were read.
        last: The last step to read; None for all.
        brief: True if it ends when it finds nothing new.
    """

    after: int
    last: int | None
    brief: bool = False


@dataclass(frozen=True)
class Finishing(JsonRecord):
    """The end of a run without a verdict yet.

    Attributes:
        last_sequences: Number of the last index file of each worker, from the end marker.
        after: Files of this step and earlier ones were listed; None before the listing began.
        shown: Number of files of each worker that the listing has shown so far.
    """

    last_sequences: Mapping[str, int] = field(default_factory=dict)
    after: int | None = None
    shown: Mapping[str, int] = field(default_factory=dict)


class Replaying(NamedTuple):
    """An unfinished replay: the run is evaluated from its first step again.

    Attributes:
        after: The last step that was evaluated again.
        found: True if the state's evidence is the replay's, not that of the first evaluation.
    """

    after: int = -1
    found: bool = False
