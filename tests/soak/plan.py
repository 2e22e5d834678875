"""The jobs of a soak, drawn from a seed: who writes what and when, what goes wrong, how they end.

What each rule must say is known by construction (`RunPlan.findings`): a job is healthy, or one rule
finds something from a certain step on.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from hook_layer.format.modes import ModeKeys

INTERVAL = 10
"""Every tenth step is saved."""
MIN_STEPS = 8
FIRST_FAULTY = 4
"""Number, among the saved training steps of a run, of the first one that can be found faulty."""

RULES: Mapping[str, Mapping[str, str]] = {
    "ExplodingTensor": {},
    "VanishingGradient": {},
    "LossNotDecreasing": {"mode": "TRAIN"},
    "UnchangedTensor": {"tensor_regex": r"^dense\.weight$", "num_steps": "3"},
}
"""Parameters of the rules for which jobs can be made sick; the second two remember earlier steps,
and the last one reads values."""


class Ending(Enum):
    """How it becomes known that a job has ended."""

    MARKER = "end marker"
    PLATFORM = "SageMaker"
    BOTH = "end marker and SageMaker"
    SILENCE = "silence"


@dataclass(frozen=True)
class StepPlan:
    """One saved step.

    Attributes:
        number: Number among the saved training steps of its run; -1 of a validation step.
        step: Global step.
        mode: Its mode.
        mode_step: Step within the mode.
        writers: Numbers of the workers that save something.
        lossy: Those whose file right before this one was lost.
        at_s: When it is written, seconds since the beginning.
    """

    number: int
    step: int
    mode: ModeKeys
    mode_step: int
    writers: frozenset[int]
    lossy: frozenset[int]
    at_s: float


@dataclass(frozen=True)
class Sickness:
    """What goes wrong in a run.

    Attributes:
        rule: The rule that finds it.
        number: The saved training step at which it is found first.
        worker: Number of the worker whose tensors are sick.
    """

    rule: str
    number: int
    worker: int


@dataclass(frozen=True)
class RunPlan:
    """One life of a job.

    Attributes:
        run_id: Its id.
        steps: The steps.
        sickness: What goes wrong, if anything.
        interrupted_after: Index of the step after which the process is taken away; None: it is not.
        goes_on_behind: Index of the step, of the last checkpoint, behind which it then goes on.
    """

    run_id: str
    steps: tuple[StepPlan, ...]
    sickness: Sickness | None = None
    interrupted_after: int | None = None
    goes_on_behind: int = 0

    @property
    def findings(self) -> Mapping[str, int]:
        """The step at which a rule finds something, by rule."""
        if self.sickness is None:
            return {}
        (step,) = [found.step for found in self.steps if found.number == self.sickness.number]
        return {self.sickness.rule: step}

    @property
    def num_files(self) -> int:
        """Number of index files."""
        return sum(len(step.writers) for step in self.steps)


@dataclass(frozen=True)
class JobPlan:
    """One job.

    Attributes:
        name: Its name.
        on_sagemaker: Whether SageMaker runs it.
        num_workers: How many workers write.
        ending: How its end becomes known.
        opts_out: Whether it must not be stopped.
        runs: Its lives, one after the other in one folder.
    """

    name: str
    on_sagemaker: bool
    num_workers: int
    ending: Ending
    opts_out: bool
    runs: tuple[RunPlan, ...]


def drawn_jobs(
    seed: int, *, num_jobs: int, span_s: float, files_per_s: float, rules: tuple[str, ...]
) -> list[JobPlan]:
    """Return the jobs of a soak.

    Args:
        seed: Seed of all draws.
        num_jobs: How many jobs.
        span_s: How long they write, seconds.
        files_per_s: Index files of all jobs together in a second, on average.
        rules: The rules; of those in `RULES` some jobs are sick.
    """
    possible = [rule for rule in RULES if rule in rules]
    mean_files = files_per_s * span_s / num_jobs
    return [
        _Draw(random.Random(f"job {seed} {number}"), span_s, mean_files).job(number, possible)
        for number in range(num_jobs)
    ]


class _Draw:
    """Draws one job.

    Args:
        chance: The draws.
        span_s: How long all jobs write, seconds.
        mean_files: Index files of a job, on average.
    """

    def __init__(self, chance: random.Random, span_s: float, mean_files: float) -> None:
        self.chance, self.span_s, self.mean_files = chance, span_s, mean_files

    def job(self, number: int, rules: list[str]) -> JobPlan:
        chance = self.chance
        on_sagemaker = chance.random() < 0.5
        num_workers = chance.choice((1, 1, 1, 2, 2, 3))
        is_silent = chance.random() < 0.15
        is_restarted = number % 8 == 5
        ending = Ending.SILENCE if is_silent else Ending.MARKER
        if on_sagemaker and not is_silent:
            ending = chance.choice((Ending.PLATFORM, Ending.BOTH))
        # Silence counts after five minutes only: what is to be silent is so early.
        end_s = self.span_s * (chance.uniform(0.3, 0.5) if is_silent else chance.uniform(0.7, 1))
        begin_s = self.span_s * chance.uniform(0, 0.2)
        num_files = self.mean_files * chance.uniform(0.6, 1.4)
        bounds = [begin_s, end_s]
        if is_restarted:
            bounds = [begin_s, begin_s + (end_s - begin_s) * 0.4, end_s]
        runs: list[RunPlan] = []
        for begin, end in pairwise(bounds):
            is_last = end == end_s
            sick = chance.choice(rules) if rules and is_last and chance.random() < 0.45 else None
            first = runs[-1].steps[-1].step + INTERVAL if runs else 0
            steps = self._steps(first, num_workers, num_files / (len(bounds) - 1), (begin, end))
            run_id = f"SOAK-{number:04d}-{len(runs) + 1}"
            runs.append(self._run(run_id, steps, sick, num_workers, is_spot=number % 8 == 2))
        opts_out = chance.random() < 0.1
        name = f"soak-{number:03d}"
        return JobPlan(name, on_sagemaker, num_workers, ending, opts_out, tuple(runs))

    def _steps(
        self, first: int, num_workers: int, num_files: float, span: tuple[float, float]
    ) -> list[StepPlan]:
        """Return steps that every worker writes, validation among them."""
        num_steps = max(round(num_files / num_workers), MIN_STEPS)
        mode_steps = {ModeKeys.TRAIN: 0, ModeKeys.EVAL: 0}
        begin, end = span
        steps = []
        for at in range(num_steps):
            mode = ModeKeys.EVAL if at % 7 == 5 else ModeKeys.TRAIN
            number = mode_steps[mode]
            mode_steps[mode] += 1
            steps.append(
                StepPlan(
                    number=number if mode is ModeKeys.TRAIN else -1,
                    step=first + INTERVAL * at,
                    mode=mode,
                    mode_step=INTERVAL * number,
                    writers=frozenset(range(num_workers)),
                    lossy=frozenset(),
                    at_s=begin + (end - begin) * (at + self.chance.random()) / num_steps,
                )
            )
        return steps

    def _run(
        self,
        run_id: str,
        steps: list[StepPlan],
        rule: str | None,
        num_workers: int,
        *,
        is_spot: bool,
    ) -> RunPlan:
        chance = self.chance
        sickness = None
        if rule is not None:
            last = max(step.number for step in steps)
            worker = chance.randrange(num_workers)
            sickness = Sickness(rule, chance.randint(FIRST_FAULTY, last - 1), worker)
        steps = self._with_gaps(steps, num_workers, sickness)
        interrupted_after, goes_on_behind = None, 0
        if is_spot:
            interrupted_after = chance.randrange(len(steps) // 3, 2 * len(steps) // 3)
            goes_on_behind = max(interrupted_after - chance.randrange(3), 0)
        return RunPlan(run_id, tuple(steps), sickness, interrupted_after, goes_on_behind)

    def _with_gaps(
        self, steps: list[StepPlan], num_workers: int, sickness: Sickness | None
    ) -> list[StepPlan]:
        """Take files away: steps that some worker does not save, numbers that were lost."""
        chance = self.chance
        has_lost_one = num_workers > 1 and chance.random() < 0.2
        gone_from = len(steps) * 2 // 3 if has_lost_one else len(steps)
        found = []
        for at, step in enumerate(steps):
            writers = set(step.writers)
            for worker in range(1, num_workers):
                if chance.random() < 0.1 or (worker == num_workers - 1 and at >= gone_from):
                    writers.discard(worker)
            if sickness is not None:  # what it is found by is all there
                writers.add(sickness.worker)
            lossy = frozenset(worker for worker in writers if chance.random() < 0.03)
            found.append(
                StepPlan(
                    step.number,
                    step.step,
                    step.mode,
                    step.mode_step,
                    frozenset(writers),
                    lossy,
                    step.at_s,
                )
            )
        return found
