"""Reads the `job.json` of jobs whose tensors arrive, and registers them in the state table."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from hook_layer.format.job_file import JobFile
from hook_layer.storage.base import Store
from lambdas.shared.registration import SAGEMAKER, Registration, RegistrationTable
from rule_runtime.trial.job_file import usable_job_file

if TYPE_CHECKING:
    from lambdas.shared.observability import Telemetry

__all__ = ["JobRegistry"]

_MAX_JOBS: Final = 1000
"""Maximum cached jobs per process."""
_MAX_READS: Final = 4
_TRUST_IN_SILENCE_S: Final = 600.0
"""Maximum age of a cache entry that decides whether a silent run has a successor, seconds."""
_TRUST_IN_GUESS_S: Final = 1.0
"""Maximum age of a cache entry for a run without `job.json`, seconds."""
_DISTRUST_AFTER_S: Final = 30.0
"""Maximum age of a cache entry that excludes a rule, seconds."""


@dataclass
class _Entry:
    """Cached data of the job below one root."""

    registration: Registration
    read_at: float
    is_guess: bool = False
    other_runs: set[str] = field(default_factory=set)


class JobRegistry:
    """Finds the job below a root, with one read of `job.json` per run.

    Args:
        registrations: Registrations for the functions that act on jobs.
        telemetry: Logs and metrics.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        registrations: RegistrationTable,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registrations = registrations
        self._telemetry = telemetry
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def current(self, store: Store) -> Registration:
        """Return the job below a root, according to this process's cache."""
        entry = self._entries.get(store.uri)
        return self._read(store).registration if entry is None else entry.registration

    def asks(
        self, store: Store, wants: Callable[[Registration], object], *, has_ended: bool
    ) -> bool:
        """Return whether the job below a root requests a rule of this function.

        A newer run may request other rules. If the rule is requested, the index files show that a
        newer run began. If not, nobody reads them, so a negative answer is valid only for half a
        minute, and never at the end of training. Files that were skipped in between are found
        later, when a gap in the sequence or the end causes a listing.

        Args:
            store: The trial's root.
            wants: Decides from the registration.
            has_ended: True if the run's end marker was written.
        """
        if wants(self.current(store)):
            return True
        age_s = self._clock() - self._entries[store.uri].read_at
        if has_ended or age_s > _DISTRUST_AFTER_S:
            return bool(wants(self._read(store).registration))
        return False

    def has_successor(self, store: Store, run: str) -> bool:
        """Return whether a newer run writes below a root; for silent runs.

        This process may not know of a newer run, so `job.json` is read again if the cache entry is
        old.
        """
        self.current(store)
        if self._clock() - self._entries[store.uri].read_at > _TRUST_IN_SILENCE_S:
            self._read(store)
        return self.current(store).run_id != run

    def of_run(self, store: Store, run: str) -> Registration:
        """Return the registration for a run; read `job.json` again if the run is new.

        An earlier run is no longer described anywhere; it is treated like the current one.
        """
        registration = self.current(store)
        entry = self._entries[store.uri]
        # Only the original client never writes `job.json`, and names no run: it may still come.
        is_outdated = entry.is_guess and self._clock() - entry.read_at >= _TRUST_IN_GUESS_S
        is_unknown = run != registration.run_id and run not in entry.other_runs
        if run and (is_outdated or is_unknown):
            entry = self._read(store, hint=run)
            registration = entry.registration
            if run != registration.run_id:
                entry.other_runs.add(run)
        return replace(registration, run_id=run)

    def _read(self, store: Store, hint: str = "") -> _Entry:
        """Read `job.json` and register the job.

        Without the file, the newest run in index files, `hint`, is the current one.
        """
        earlier = self._entries.get(store.uri)
        if earlier is not None:
            hint = max(hint, earlier.registration.run_id)
        job = self._job(store)
        registration = self._registration(store.uri, job, hint)
        is_known = earlier is not None and earlier.registration == registration
        for _ in range(0 if is_known else _MAX_READS):
            self._registrations.put(registration)
            # A slower evaluator may have replaced a newer registration by an older one. Each
            # evaluator reads again after writing, so the last one leaves the correct registration.
            job = self._job(store)
            latest = self._registration(store.uri, job, hint)
            if latest == registration:
                break
            registration = latest
        entry = _Entry(registration, self._clock(), is_guess=job is None)
        if earlier is not None:
            entry.other_runs = earlier.other_runs - {registration.run_id}
        self._entries[store.uri] = entry
        self._entries.move_to_end(store.uri)
        while len(self._entries) > _MAX_JOBS:
            self._entries.popitem(last=False)
        return entry

    def _job(self, store: Store) -> JobFile | None:
        """Return `job.json`; None if it is missing or invalid."""
        return usable_job_file(store, self._tell_unusable)

    def _tell_unusable(self, problem: str) -> None:
        self._telemetry.count("JobFilesUnreadable")
        self._telemetry.warning("job.json cannot be used", problem=problem)

    def _registration(self, root_uri: str, job: JobFile | None, hint: str) -> Registration:
        if job is None:
            return replace(Registration.of_root(root_uri), run_id=hint)
        registration = Registration.of_job_file(root_uri, job)
        if job.platform == SAGEMAKER and not registration.is_sagemaker_job:
            self._telemetry.warning(
                "not treated as a SageMaker job, because the root or the ARN has another name: "
                "a finding ends the training loop, but does not call StopTrainingJob; let the root "
                "end in <job name>/ or <job name>/debug-output/",
                debug_output_uri=root_uri,
                training_job_name=registration.training_job_name,
            )
        return registration
