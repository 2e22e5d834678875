"""Nothing that a run's files say can control the terminal of who watches it."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console

from hook_layer.format.session_file import SessionRun
from rule_runtime.cli.session_messages import SessionMessages
from rule_runtime.cli.summary import Summary
from rule_runtime.embedded.live_judge import LiveJudge
from rule_runtime.embedded.session_judge import JudgedRun
from rule_runtime.embedded.stop_policy import StopPolicy
from rule_runtime.engine.registry import create_rule
from rule_runtime.reporting.run_verdicts import RunVerdicts
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.cut_values import CutValues

ATTACKS = {
    "clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "title": "\x1b]0;mine\x1b\\",
    "link": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "c1": "\x9b2J\x9d52;c;eA==\x9c",
    "carriage return": "fine\rrewritten\x08\x7f",
    "right to left": "\u202egnp.exe",
    "markup": "[link=http://evil.example]click[/link]",
}
OWN = re.compile("\x1b\\[[0-9;]*[mK]|\r|\n")
"""Colours, and the start of a new line, which the console writes itself."""


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_names_in_a_run_control_no_terminal(attack: str) -> None:
    tensor = f"gradient/{attack}"
    trial = TrialBuilder()
    trial.step(0, {tensor: np.full(4, np.nan)})
    trial.end()
    rules = [(name, create_rule(name)) for name in ("NonFinite", "ExplodingTensor")]
    judge = LiveJudge(trial.store, rules, stops=StopPolicy(frozenset({"NonFinite"})))
    judge.look(is_over=True)
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80)
    run = SessionRun(attack, "", trial.run or "", "2026-01-01T00:00:00Z", 1)
    judged = JudgedRun(run, trial.store, judge, CutValues())
    messages = SessionMessages(attack, StopPolicy(), console, None)
    messages.changes([judged, judged], "NonFinite")
    messages.line(f"training ends, as requested: {attack}")
    for runs in (1, 2):
        console.print(Summary([RunVerdicts(attack, "", judge.states)] * runs))
    text = OWN.sub("", written.getvalue())
    assert "NonFinite" in text
    assert text.isprintable(), repr(text)
    assert "\x1b]8;" not in written.getvalue(), "a link of the console itself"
