"""The program: its command line, and one short run of it on the local target."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.__main__ import main
from tests.soak.plan import RULES, Ending
from tests.soak.soaking import Settings, soak


@pytest.mark.parametrize(
    "arguments", [["--failures", "1"], ["--failures", "-0.1"], ["--jobs", "0"], ["--minutes", "x"]]
)
def test_arguments_that_make_no_soak_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2


def test_a_short_run_without_faults_ends_well(tmp_path: Path) -> None:
    findings, course, misfortune = soak(settings(SEED), tmp_path, lambda _: None)
    assert findings.problems() == []
    assert len(findings.outcomes) == 2 * sum(len(stop.plan.runs) for stop in findings.stops)
    assert any(stop.requests for stop in findings.stops)
    assert course.num_files > 0
    assert misfortune.counts["dynamodb"].requests > 0


def settings(seed: int) -> Settings:
    rules = {name: RULES[name] for name in ("ExplodingTensor", "UnchangedTensor")}
    return Settings(num_jobs=3, span_s=3.0, failures=0.0, seed=seed, rules=rules)


def _is_quick(seed: int) -> bool:
    """Whether one job is sick, and each marks its end: SageMaker may tell of it too soon."""
    jobs = settings(seed).jobs()
    is_sick = any(job.runs[-1].sickness and not job.opts_out for job in jobs)
    return is_sick and all(job.ending in (Ending.MARKER, Ending.BOTH) for job in jobs)


SEED = next(seed for seed in range(1000) if _is_quick(seed))
