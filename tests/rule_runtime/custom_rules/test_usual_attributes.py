"""Attributes that rules of users usually have: each is there at the next step, in any split."""

from __future__ import annotations

import json
import logging
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from hook_layer.storage.memory import MemoryStore
from rule_runtime.custom_rules.loader import load_custom_rule
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.state import Counts, EvaluationState
from rule_runtime.testing.trial_builder import TrialBuilder

HEAD = """
import datetime, enum, threading
from collections import defaultdict, namedtuple
from dataclasses import dataclass
from smdebug.rules import Rule

Pair = namedtuple("Pair", "step value")

class State(enum.Enum):
    GOOD = 1
    BAD = 2

@dataclass(frozen=True)
class Best:
    step: int
    value: float = 0.0

@dataclass
class Open:
    step: int

class Plain:
    bound = 3
"""
BODIES = {
    "a factory": ("defaultdict(lambda: 7)", "self.a[step] += 1", "set(self.a.values()) == {8}"),
    "an enumeration": ("State.GOOD", "self.a = State.BAD", "self.a is State.BAD"),
    "a named tuple": ("None", "self.a = Pair(step, 2.5)", "self.a.value == 2.5"),
    "a dataclass": ("Best(0)", "self.a = Best(step, 1.5)", "self.a == Best(step, 1.5)"),
    "a time": (
        "datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)",
        "self.a += datetime.timedelta(days=1)",
        "self.a.date() == datetime.date(2020, 1, 2 + step)",
    ),
    "a lock": ("threading.Lock()", "self.a.acquire(); self.a.release()", "not self.a.locked()"),
    "a file": ("open(__file__)", "self.a.name", "not self.a.closed"),
    "an object": ("Plain()", "pass", "self.a.bound == 3"),
    "a large array": ("__import__('numpy').ones(100_000)", "pass", "self.a.sum() == 100_000"),
}


def rule_of(folder: Path, made: str, changed: str, holds: str) -> Rule:
    code = f"""

class Mine(Rule):
    def __init__(self, base_trial):
        super().__init__(base_trial)
        self.a = {made}

    def invoke_at_step(self, step):
        {changed}
        assert {holds}
        return False
"""
    (folder / "mine.py").write_text(textwrap.dedent(HEAD) + code)
    return load_custom_rule(folder / "mine.py", "Mine", allowed=[folder])


def judged(rules: list[Rule], run: TrialBuilder) -> list[Evaluation]:
    """Judge each step by the next rule, as another process does that knows the memory only."""
    evaluations = [Evaluation.fresh(rules[0])]
    for at, step in enumerate(run.views()):
        memory = json.loads(json.dumps(evaluations[-1].memory))
        counts = Counts(failure=evaluations[-1].failure)
        state = replace(EvaluationState.initial(), memory=memory, counts=counts)
        one = Evaluation(rules[at % len(rules)], state)
        one.feed(step)
        evaluations.append(one)
    return evaluations[1:]


@pytest.fixture
def run() -> TrialBuilder:
    made = TrialBuilder(MemoryStore())
    for step in range(4):
        made.step(step, {"w": [1.0]})
    return made


@pytest.mark.parametrize("kind", BODIES)
def test_usual_attributes_do_no_harm(
    tmp_path: Path, run: TrialBuilder, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    memories = []
    for num_processes in (1, 4):
        rules = [rule_of(tmp_path, *BODIES[kind]) for _ in range(num_processes)]
        with caplog.at_level(logging.WARNING, "stepwatch"):
            evaluations = judged(rules, run)
        assert [one.failure for one in evaluations] == [""] * 4
        memories.append(evaluations[-1].memory)
        if num_processes == 1:
            reported = [text for text in caplog.messages if "is created by __init__" in text]
            assert len(reported) == (kind in ("a lock", "a file", "an object", "a large array"))
    assert memories[0] == memories[1]


@pytest.mark.parametrize("num_processes", [1, 4])
def test_what_cannot_be_kept_must_stay_as_it_was_made(
    tmp_path: Path, run: TrialBuilder, num_processes: int
) -> None:
    body = ("Plain()", "vars(self.a).update({step: 1} if step else {})", "True")
    rules = [rule_of(tmp_path, *body) for _ in range(num_processes)]
    failures = [one.failure for one in judged(rules, run)]
    assert failures[0] == ""
    assert "the attribute 'a' cannot be stored" in failures[1]
    assert failures[1:] == failures[1:2] * 3


def test_what_a_dataclass_does_not_declare_is_not_lost_in_silence(
    tmp_path: Path, run: TrialBuilder
) -> None:
    rule = rule_of(tmp_path, "None", "self.a = Open(step); self.a.more = step", "True")
    (first, *_) = judged([rule], run)
    assert "the attribute 'a' cannot be stored" in first.failure
    assert "Open" in first.failure
