"""How far a run has been fed to a rule, as the checkpoint keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Finishing", "Progress", "Replaying", "Scan", "Waiting", "WorkerProgress"]


@dataclass(frozen=True, kw_only=True)
class WorkerProgress:
    """What is known of one worker's index files.

    Attributes:
        seen: Ranges of sequences seen, `((first, last), ...)`; a gap between two ranges is a hole.
        passed_step: Every index file that this worker wrote up to this step has been seen, or is
            not waited for any more.
        pending: Files seen and not yet fed, `((step, sequence), ...)` in step order; sequence 0 for
            a file without one.
        listed: Holes below this sequence have been looked for by a listing already.
        forgotten: True if files were seen that did not fit into `pending`; a listing finds them
            again.
        unsequenced: Number of files without a sequence seen so far.
        lost: Sequences that never come, as later files say: steps that could not be stored.
        excused: Holes up to this sequence hold nothing up any more: they were waited for in vain.
        given_up: True while steps are fed without this worker; its next file ends that.
    """

    seen: tuple[tuple[int, int], ...] = ()
    passed_step: int = -1
    pending: tuple[tuple[int, int], ...] = ()
    listed: int = 0
    forgotten: bool = False
    unsequenced: int = 0
    lost: int = 0
    excused: int = 0
    given_up: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the progress as JSON, without the fields that hold their defaults."""
        data: dict[str, Any] = {
            "seen": [list(pair) for pair in self.seen],
            "step": self.passed_step,
        }
        if self.pending:
            data["pending"] = [list(pair) for pair in self.pending]
        for name in ("listed", "forgotten", "unsequenced", "lost", "excused", "given_up"):
            if value := getattr(self, name):
                data[name] = value
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorkerProgress:
        """Return the progress that `to_json` wrote.

        Args:
            data: The decoded JSON object.
        """
        return cls(
            seen=tuple((int(first), int(last)) for first, last in data["seen"]),
            passed_step=int(data["step"]),
            pending=tuple((int(step), int(seq)) for step, seq in data.get("pending", ())),
            listed=int(data.get("listed", 0)),
            forgotten=bool(data.get("forgotten", False)),
            unsequenced=int(data.get("unsequenced", 0)),
            lost=int(data.get("lost", 0)),
            excused=int(data.get("excused", 0)),
            given_up=bool(data.get("given_up", False)),
        )


@dataclass(frozen=True)
class Waiting:
    """The first step that waits to be fed.

    Attributes:
        step: The step.
        since: Since when it is the first to wait, seconds since the epoch.
        looked: True once a listing has looked for what it waits for, its time being over.
    """

    step: int
    since: float
    looked: bool = False


@dataclass(frozen=True)
class Scan:
    """A listing that looks for lost files and is not through yet.

    Attributes:
        after: Files of this step and earlier ones have been read.
        last: The last step that is of interest; None if all are.
        brief: True if it ends as soon as it finds nothing new.
    """

    after: int
    last: int | None
    brief: bool = False


@dataclass(frozen=True)
class Finishing:
    """The end of a run whose verdict is not drawn yet.

    Attributes:
        last_sequences: Number of the last index file of each worker that the end marker names.
        after: What lies behind this step is still to be listed; None before the listing began.
        shown: Number of files of each worker that the listing has shown up to there.
    """

    last_sequences: Mapping[str, int] = field(default_factory=dict)
    after: int | None = None
    shown: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Replaying:
    """A replay that is not through yet; what the rule keeps in mind is the replay's.

    Attributes:
        after: The last step that was judged again.
        found: True if the state's evidence is the replay's own, not that of the first pass.
    """

    after: int = -1
    found: bool = False


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run has been fed to a rule.

    Attributes:
        workers: Progress of each worker seen, by name.
        num_workers: How many workers write, once known.
        fed_step: The last global step that was fed; -1 before the first.
        late: Files that came after their step had been fed.
        replayed: The value of `late` when the run was last replayed.
        unreadable: Files that could not be parsed, `((step, worker), ...)`; the first 1,000 of
            them.
        unseen_given_up: True once workers of which nothing was ever seen are not waited for.
        waiting: The first step that waits; None if none does.
        scan: A listing that is under way.
        finishing: The run has ended, and its verdict is not drawn yet.
        replaying: A replay that is under way.
    """

    workers: Mapping[str, WorkerProgress] = field(default_factory=dict)
    num_workers: int | None = None
    fed_step: int = -1
    late: int = 0
    replayed: int = 0
    unreadable: tuple[tuple[int, str], ...] = ()
    unseen_given_up: bool = False
    waiting: Waiting | None = None
    scan: Scan | None = None
    finishing: Finishing | None = None
    replaying: Replaying | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the progress as JSON; what is not under way is left out."""
        data: dict[str, Any] = {
            "workers": {name: self.workers[name].to_json() for name in sorted(self.workers)},
            "num_workers": self.num_workers,
            "fed_step": self.fed_step,
            "late": self.late,
            "replayed": self.replayed,
            "unreadable": [list(name) for name in self.unreadable],
        }
        if self.unseen_given_up:
            data["unseen_given_up"] = True
        if self.waiting is not None:
            data["waiting"] = [self.waiting.step, self.waiting.since, self.waiting.looked]
        if self.scan is not None:
            data["scan"] = [self.scan.after, self.scan.last, self.scan.brief]
        if self.finishing is not None:
            data["finishing"] = {
                "last_sequences": dict(self.finishing.last_sequences),
                "after": self.finishing.after,
                "shown": dict(self.finishing.shown),
            }
        if self.replaying is not None:
            data["replaying"] = [self.replaying.after, self.replaying.found]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Progress:
        """Return the progress that `to_json` wrote.

        Args:
            data: The decoded JSON object.
        """
        num_workers = data["num_workers"]
        return cls(
            workers={
                name: WorkerProgress.from_json(worker) for name, worker in data["workers"].items()
            },
            num_workers=None if num_workers is None else int(num_workers),
            fed_step=int(data["fed_step"]),
            late=int(data["late"]),
            replayed=int(data["replayed"]),
            unreadable=tuple((int(step), str(worker)) for step, worker in data["unreadable"]),
            unseen_given_up=bool(data.get("unseen_given_up", False)),
            waiting=_read_waiting(data.get("waiting")),
            scan=_read_scan(data.get("scan")),
            finishing=_read_finishing(data.get("finishing")),
            replaying=_read_replaying(data.get("replaying")),
        )


def _read_waiting(data: Any) -> Waiting | None:
    return None if data is None else Waiting(int(data[0]), float(data[1]), bool(data[2]))


def _read_scan(data: Any) -> Scan | None:
    if data is None:
        return None
    after, last, brief = data
    return Scan(int(after), None if last is None else int(last), bool(brief))


def _read_finishing(data: Any) -> Finishing | None:
    if data is None:
        return None
    after = data["after"]
    return Finishing(
        last_sequences={str(name): int(last) for name, last in data["last_sequences"].items()},
        after=None if after is None else int(after),
        shown={str(name): int(count) for name, count in data["shown"].items()},
    )


def _read_replaying(data: Any) -> Replaying | None:
    return None if data is None else Replaying(int(data[0]), bool(data[1]))
