"""Waits until the rules of a job have ended, and reports changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rule_runtime.jobs.summary import is_final

__all__ = ["Patience", "wait_for_rules"]

Summary = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Patience:
    """How is waited.

    Attributes:
        poll_s: Seconds between two looks.
        timeout_s: Longest wait in seconds; None for no limit.
        clock: Seconds since any moment.
        sleep: Waits for a number of seconds.
    """

    poll_s: float
    timeout_s: float | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def wait_for_rules(
    look: Callable[[], tuple[Summary, bool]], patience: Patience, out: Callable[[str], None]
) -> Summary:
    """Wait until every rule has ended; report each new status.

    Args:
        look: Returns the statuses, and whether these are all rules that there will be.
        patience: How is waited.
        out: Prints a line.

    Returns:
        The last statuses.

    Raises:
        TimeoutError: A rule has not ended in time.
    """
    printed: dict[str, str] = {}
    ends = None if patience.timeout_s is None else patience.clock() + patience.timeout_s
    while True:
        summary, is_complete = look()
        for member in summary:
            name, status = member["RuleConfigurationName"], member["RuleEvaluationStatus"]
            if printed.get(name) != status:
                out(f"{name}: {status}")
                printed[name] = status
        left = [each["RuleConfigurationName"] for each in summary if not is_final(each)]
        if is_complete and not left:
            return summary
        if ends is not None and patience.clock() >= ends:
            raise TimeoutError(
                f"after {patience.timeout_s:g} s {', '.join(left) or 'the rules'} have not ended: "
                "see whether the job still trains, and whether a deployment watches where its "
                "tensors go (rule_log_urls() has the evaluators' logs)"
            )
        patience.sleep(patience.poll_s)
