"""What every history has to end in."""

from __future__ import annotations

from tests.lambdas.histories.world import World

_RANK = ("InProgress", "Error", "NoIssuesFound", "IssuesFound")


def check(world: World) -> None:
    """Let a history happen, and see that it comes to the verdict of one pass in order."""
    world.run()
    job, state = world.job, world.state
    expected = job.expected()
    assert state.ended
    assert state.evidence == expected.evidence
    assert state.memory == expected.memory
    counts = state.counts
    assert (counts.evaluated, counts.not_evaluated, counts.not_applicable) == (
        expected.counts.evaluated,
        expected.counts.not_evaluated,
        expected.counts.not_applicable,
    )
    verdict = "Error"
    if expected.evidence is not None:
        verdict = "IssuesFound"
    elif expected.counts.evaluated:
        verdict = "NoIssuesFound"
    assert state.status.value == verdict
    decided = [status for key, _, status in world.decided if key == world.key]
    announced = [status for key, status in world.bus.announced if key == world.key]
    assert decided.count(verdict) == 1
    assert verdict in announced
    assert state.is_announced
    assert decided == sorted(set(decided), key=_RANK.index)
    if not job.after_end:
        assert decided == [verdict]
        assert set(announced) <= {"InProgress", verdict}
    numbers = [number for key, number, _ in world.decided if key == world.key]
    assert numbers == sorted(set(numbers))
