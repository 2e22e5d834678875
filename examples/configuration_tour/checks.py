"""Checks of the expected results of each stop of the tour."""

from __future__ import annotations

from examples.configuration_tour import stops
from examples.configuration_tour.run import Ran, Saved

__all__ = ["mistakes"]

_EVERY_20 = [0, 20, 40, 60, 80, 100]
_LOSSES = Saved("losses", 1, [0], [0], "value")  # every 500th step, which nobody need ask for
SAVED = {
    stops.COLLECTIONS.name: [
        Saved("activations", 2, [0, 50, 100], [0, 2, 4], "value"),
        Saved("losses", 1, _EVERY_20, [0, 1, 2, 3, 4, 5], "value"),
        Saved("weights", 2, [0], [0], "value"),
    ],
    stops.HOOK_PARAMETERS.name: [
        Saved("gradients", 4, [60, 90], [], "l2"),
        Saved("losses", 1, [0, 30, 60, 90], [1, 4], "value"),  # scalars are never reduced
        Saved("weights", 2, [0, 30, 60, 90], [1, 4], "abs_max, mean"),
    ],
    stops.BUILT_IN_RULES.name: [Saved("gradients", 4, _EVERY_20, [], "value"), _LOSSES],
    stops.CUSTOMISED_RULES.name: [
        Saved("gradients", 4, list(range(0, 120, 10)), [], "value"),
        Saved("losses", 1, [0], [0, 1, 2, 3, 4, 5], "value"),
    ],
    stops.TENSORBOARD.name: [
        Saved("gradients", 4, _EVERY_20, [], "value"),
        Saved("losses", 1, _EVERY_20, [0], "value"),
        Saved("weights", 2, _EVERY_20, [0], "value"),
    ],
    stops.OPTED_OUT.name: [],
}
"""What is saved at the stops whose trainings run to their end."""
STATUSES = {
    stops.BUILT_IN_RULES.name: ["NoIssuesFound", "NoIssuesFound"],
    stops.CUSTOMISED_RULES.name: ["IssuesFound", "NoIssuesFound"],
    stops.CUSTOM_RULE.name: ["IssuesFound"],
}


def mistakes(ran: Ran) -> list[str]:
    """Return what came of a stop otherwise than it must."""
    name = ran.stop.name
    found = []
    saved = ran.saved()
    if name in SAVED and saved != SAVED[name]:
        found.append(f"saved is {saved}, not {SAVED[name]}")
    statuses = [rule["RuleEvaluationStatus"] for rule in ran.summary()]
    if statuses != STATUSES.get(name, []):
        found.append(f"the rules are {statuses}, not {STATUSES.get(name, [])}")
    if bool(ran.stopped) != (name == stops.CUSTOM_RULE.name):
        found.append(f"{ran.num_steps} of {ran.stop.num_steps} steps were made: {ran.stopped}")
    if bool(ran.tensorboard_files()) != (ran.stop.tensorboard is not None):
        found.append(f"TensorBoard's files are {ran.tensorboard_files()}")
    return [f"{name}: {text}" for text in found]
