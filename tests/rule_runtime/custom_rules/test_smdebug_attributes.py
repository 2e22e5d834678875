"""What a rule of the original's style notes in `self`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rule_runtime.engine.outcome import (
    RuleStatus,
)
from tests.rule_runtime.custom_rules.smdebug_runs import (
    inline,
    judged,
)


class TestAttributes:
    """What a rule notes in `self` is there at the next step, whichever process judges it."""

    def test_are_kept_as_what_they_are(self, jobs: Path, tmp_path: Path) -> None:
        rule = inline(
            tmp_path,
            """
            def __init__(self, base_trial):
                super().__init__(base_trial)
                import collections, logging, re
                self.sizes = (1, 2.5)
                self.total = collections.defaultdict(float)
                self.when = {("a", 1): None}
                self.mean = sum
                self.log = logging.getLogger("mine")
                self.pattern = re.compile("^l", re.I)
                self.trial = base_trial
                self.bound = self.double
                self.array = __import__("numpy").zeros((2, 2), dtype="float16")
                self.tensors = []

            def double(self, value):
                return 2 * value

            def invoke_at_step(self, step):
                assert self.trial is self.base_trial and self.sizes == (1, 2.5)
                assert self.bound(2) == 4 and self.log.name == "mine" and self.pattern.match("Loss")
                assert self.array.dtype.name == "float16"
                assert self.array.sum() == 4 * len(self.when) - 4
                self.array += 1
                self.when["a", step + 2] = step
                self.total[step] += self.mean([1.0])
                if not self.tensors:
                    self.tensors = [self.base_trial.tensor("loss")]
                assert self.tensors[0] is self.base_trial.tensor("loss")
                return len(self.total) == 10 and set(self.total.values()) == {1.0}
            """,
        )
        for sizes in ([], [1] * 10):
            state = judged(jobs, rule, list(sizes))
            assert state.counts.failure == ""
            assert state.evidence is not None
            assert state.evidence.step == 45

    @pytest.mark.parametrize(
        ("value", "reported"),
        [
            ("open(__file__)", "it is or contains a TextIOWrapper"),
            ("[object()]", "it is or contains a object"),
            ("__import__('numpy').zeros(100_000)", "an array of 800000 bytes, of 65536"),
            ("__import__('numpy').array([None])", "an array of object"),
            ("'x' * 300_000", "the attribute 'helper' alone takes 300002"),
        ],
    )
    def test_that_cannot_be_kept_are_named(
        self, jobs: Path, tmp_path: Path, value: str, reported: str
    ) -> None:
        body = f"""
            def __init__(self, base_trial):
                super().__init__(base_trial)
                self.helper = []

            def invoke_at_step(self, step):
                self.helper = {value}
                return False
            """
        state = judged(jobs, inline(tmp_path, body), [])
        assert state.status is RuleStatus.ERROR
        assert state.counts.failure.startswith("Mine: the attribute")
        assert "'helper'" in state.counts.failure
        assert reported in state.counts.failure

    def test_a_finding_counts_before_what_cannot_be_kept_ends_it(
        self, jobs: Path, tmp_path: Path
    ) -> None:
        body = """
            def invoke_at_step(self, step):
                self.helper = object()
                return True
            """
        state = judged(jobs, inline(tmp_path, body), [1])
        assert state.status is RuleStatus.ISSUES_FOUND
        assert (state.counts.evaluated, state.counts.not_evaluated) == (1, 1)
        assert "'helper'" in state.counts.failure

    def test_an_argument_that_is_changed_is_the_objects_own(
        self, jobs: Path, tmp_path: Path
    ) -> None:
        body = """
            def __init__(self, base_trial, names: list = ()):
                super().__init__(base_trial)
                self.names = names

            def invoke_at_step(self, step):
                self.names.append(step)
                return len(self.names) > 10
            """
        rule = inline(tmp_path, body, names="first")
        for sizes in ([], [2, 2]):
            state = judged(jobs, rule, sizes)
            assert state.evidence is not None
            assert (state.evidence.step, state.evidence.count) == (45, 1)

    def test_changes_before_a_tensor_was_missing_stay(self, jobs: Path, tmp_path: Path) -> None:
        body = """
            seen = 0

            def invoke_at_step(self, step):
                self.seen += 1
                if self.seen < 3:
                    self.base_trial.tensor("never saved")
                return True
            """
        state = judged(jobs, inline(tmp_path, body), [1] * 10)
        assert state.evidence is not None
        assert (state.evidence.step, state.counts.not_evaluated) == (10, 2)
