"""The jobs whose tensors arrive: read from `job.json` once, and registered in the state table."""

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
"""Jobs that one process remembers."""
_MAX_READS: Final = 4
_TRUST_IN_SILENCE_S: Final = 600.0
"""Age in seconds up to which an entry says whether a silent run has a successor."""
_TRUST_IN_GUESS_S: Final = 1.0
"""Age in seconds up to which a run is believed to have no `job.json`."""
_DISTRUST_AFTER_S: Final = 30.0
"""Age in seconds at which an entry is read again before a rule is skipped because of it."""


@dataclass
class _Entry:
    """What is known of the job below one root."""

    registration: Registration
    read_at: float
    is_guess: bool = False
    other_runs: set[str] = field(default_factory=set)


class JobRegistry:
    """Knows which job writes below a root, with one read of `job.json` a run.

    Args:
        registrations: Where jobs are registered for the functions that act on them.
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
        """Return the job that writes below a root, as far as this process knows."""
        entry = self._entries.get(store.uri)
        return self._read(store).registration if entry is None else entry.registration

    def asks(
        self, store: Store, wants: Callable[[Registration], object], *, has_ended: bool
    ) -> bool:
        """Return whether the job below a root wants a rule of this function evaluated.

        A run that began since `job.json` was read may ask for other rules. Where the rule is asked
        for, the index files tell that such a run began; where it is not, nobody reads them, so a
        "no" is only believed for half a minute, and never when training ended. What was skipped in
        between is found by the listing that a gap in the sequence, or the end, leads to.

        Args:
            store: The trial's root.
            wants: Decides it from the registration.
            has_ended: True when the run's end marker was written.
        """
        if wants(self.current(store)):
            return True
        age_s = self._clock() - self._entries[store.uri].read_at
        if has_ended or age_s > _DISTRUST_AFTER_S:
            return bool(wants(self._read(store).registration))
        return False

    def has_successor(self, store: Store, run: str) -> bool:
        """Return whether a newer run than this one writes below a root.

        Asked about silent runs. Nobody may have told this process that another one began, so
        `job.json` is read again if that was long ago.
        """
        self.current(store)
        if self._clock() - self._entries[store.uri].read_at > _TRUST_IN_SILENCE_S:
            self._read(store)
        return self.current(store).run_id != run

    def of_run(self, store: Store, run: str) -> Registration:
        """Return the registration for a run; `job.json` is read again when the run is a new one.

        An earlier run is no longer described anywhere: it is taken to be like the current one.
        """
        registration = self.current(store)
        entry = self._entries[store.uri]
        # The original client alone writes no `job.json`, and names no run: it is still to come.
        is_outdated = entry.is_guess and self._clock() - entry.read_at >= _TRUST_IN_GUESS_S
        is_unknown = run != registration.run_id and run not in entry.other_runs
        if run and (is_outdated or is_unknown):
            entry = self._read(store, hint=run)
            registration = entry.registration
            if run != registration.run_id:
                entry.other_runs.add(run)
        return replace(registration, run_id=run)

    def _read(self, store: Store, hint: str = "") -> _Entry:
        """Read `job.json` and register what it says.

        Without the file the newest run that index files named, `hint`, is the current one.
        """
        earlier = self._entries.get(store.uri)
        if earlier is not None:
            hint = max(hint, earlier.registration.run_id)
        job = self._job(store)
        registration = self._registration(store.uri, job, hint)
        is_known = earlier is not None and earlier.registration == registration
        for _ in range(0 if is_known else _MAX_READS):
            self._registrations.put(registration)
            # A slower evaluator may have put an older registration over a newer one: anyone who put
            # one looks again, so the last one to do so leaves what is true.
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
        """Return `job.json`, None while there is none that can be used."""
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
                "not taken for a job of SageMaker, because the root or the ARN has another name: "
                "a finding ends the training loop, but does not call StopTrainingJob; let the root "
                "end in <job name>/ or <job name>/debug-output/",
                debug_output_uri=root_uri,
                training_job_name=registration.training_job_name,
            )
        return registration
