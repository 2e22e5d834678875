"""What healthy scripts came to, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from benchmarks.tutorials.runs import Outcome

__all__ = ["as_page", "as_text"]

_HEAD = """\
# Healthy trainings, as tutorials show them

<!-- written by `python -m benchmarks.tutorials --write` -->

Scripts that know nothing of Stepwatch, run unchanged by `stepwatch run` with the pack `recommended`
to their end, every {interval}th step saved. Nothing should be found.

**{accused} of {runs} runs have a finding** ({names} scripts, {seeds} of each).

{table}
"""


def as_text(outcome: Outcome) -> str:
    """Return the lines about one run."""
    head = f"{outcome.script.name} {outcome.seed} ({outcome.took_s:.0f} s)"
    if outcome.failure:
        return f"{head}: FAILED: {outcome.failure}"
    said = [f"    {rule}: {details}" for rule, details in outcome.findings.items()]
    state = "ACCUSED" if said else "nothing found"
    return "\n".join([f"{head}: {state} by {outcome.judged} of {outcome.rules} rules", *said])


def as_page(outcomes: Sequence[Outcome], save_interval: int) -> str:
    """Return the page.

    Args:
        outcomes: What came of the runs, those of a script one behind the other.
        save_interval: Steps between two that were saved.
    """
    by_script = [list(runs) for _, runs in groupby(outcomes, lambda each: each.script.name)]
    return _HEAD.format(
        interval=save_interval,
        accused=sum(bool(each.findings) for each in outcomes),
        runs=len(outcomes),
        names=len(by_script),
        seeds=max(map(len, by_script)),
        table="\n".join(_rows(by_script)),
    )


def _rows(by_script: Iterable[Sequence[Outcome]]) -> Iterable[str]:
    yield "| Script | Trains | Rules that could judge | Findings |"
    yield "|---|---|--:|---|"
    for runs in by_script:
        first = runs[0]
        judged = f"{min(each.judged for each in runs)} of {first.rules}"
        failed = ["failed" for each in runs if each.failure]
        found = failed + [
            f"{rule} (seed {each.seed})" for each in runs for rule in sorted(each.findings)
        ]
        cells = (first.script.name, first.script.about, judged, ", ".join(found) or "none")
        yield "| " + " | ".join(cells) + " |"
