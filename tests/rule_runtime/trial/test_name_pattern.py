"""Patterns out of files can neither take forever nor be ignored in silence."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hook_layer.storage.memory import MemoryStore
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import create_rule
from rule_runtime.rules.non_finite import ExplodingTensor
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial import name_pattern
from rule_runtime.trial.name_pattern import (
    MAX_NAME_LENGTH,
    MAX_PATTERN_LENGTH,
    NameMatcher,
    PatternError,
    check_pattern,
)
from rule_runtime.trial.trial import Trial
from tests.rule_runtime.outcomes import reason_of

USUAL = [
    ".*",
    "^gradient",
    "^(?!gradient).*bias",
    "^(?!gradient).*weight",
    "[Ll]oss_(?!input).*output",
    "^[a-zA-z]+-.+(?<!(auc|map))$",
    "^train-.+",
    r".*relu_output|.*ReLU_output",
    ".*tanh_input|.*sigmoid_input",
    "relu|tanh",
    "(?i)loss",
    "bias",
    "gradient/",
    "weight|bias",
    r"conv\d+\.weight",
    r"^(conv|fc)\d*\.(weight|bias)$",
    r"layer\.[0-9]{1,2}\.(attention|mlp)\..*weight",
    ".*encoder.*layer.*attention.*weight.*",
    ".*feature_importance/weight",
    "feature_importance/.*",
    "(average_shap|full_shap|predictions|labels)",
    ".*hybridsequential0_input_0",
    "^.*(loss|Loss).*$",
    "[^/]+/[^/]+",
    "(?:ab)+c",
    r"(?P<layer>\w+)_output_\d+",
    "500",
    "",
]
HOSTILE = [
    "(a|aa)+$",
    "(a+)+$",
    "(a*)*$",
    "([a-z]+)*!",
    "(a|a)*$",
    "(.*)*x",
    "(.*a){20}",
    "(a?){30}a{30}",
    "a?" * 40 + "a" * 40,
    "(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)$",
    "(x+x+)+y",
    "(a{1,30}){1,30}$",
    "(?=(a+)+$)b",
    "(?:(?:a|b|ab)*)+c",
    r"(\w+\s?)*$",
    r"(.*)\1\1\1$",
    r"(a)?(?(1)b|c)*",
    ".*" * 20 + "x",
    "a*" * 12 + "b",
    ".*_.*_.*_.*_.*_.*x",
    "(?i:(ab|A))+$",
]


@pytest.mark.parametrize("pattern", USUAL)
def test_usual_patterns_are_accepted_and_match_as_ever(pattern: str) -> None:
    names = ["gradient/conv1.weight", "CrossEntropyLoss_output_0", "train-rmse", "validation-auc"]
    names += ["encoder.layer.3.attention.query.weight", "ReLU_output", "layer.1.mlp.fc.weight"]
    found = NameMatcher().found_in(pattern, names)
    assert found == {name for name in names if re.search(pattern, name)}


@pytest.mark.parametrize("pattern", HOSTILE)
def test_hostile_patterns_are_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(PatternError, match="is refused: ") as caught:
        check_pattern(pattern)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "*", "a" * (MAX_PATTERN_LENGTH + 1), "(?P<a"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match=r"not valid|longer than 256"):
        check_pattern(pattern)


pieces = st.sampled_from(["a", "b", ".", "[ab]", "(a|b)", "(a|ab)", "(aa)", "^", "$", "(?!b)"])
repeats = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "{20}", "*?", "{2,}"])
flat = st.lists(st.tuples(pieces, repeats).map("".join), min_size=1, max_size=6).map("".join)
nested = st.lists(
    st.tuples(flat.map("({})".format) | pieces, repeats).map("".join), min_size=1, max_size=4
).map("".join)


@settings(max_examples=150, deadline=None)
@given(pattern=nested, end=st.sampled_from(["$", "!", "x$"]))
@example(pattern="(a|b)+(a|b)+", end="$")
def test_whatever_is_accepted_is_quick_on_the_worst_names(pattern: str, end: str) -> None:
    names = ["a" * 100 + "!", "ab" * 50 + "!", "b" * 60]
    matcher = NameMatcher()
    try:
        check_pattern(pattern + end)
    except PatternError:
        return
    started = time.process_time()
    found = matcher.found_in(pattern + end, names)
    assert time.process_time() - started < 3
    assert found == {name for name in names if re.search(pattern + end, name)}


def test_a_name_is_searched_once_and_very_long_names_not_at_all() -> None:
    matcher = NameMatcher()
    assert matcher.found_in("a", ["a", "b", "a" * (MAX_NAME_LENGTH + 1)]) == {"a"}
    assert matcher.found_in("a", ["b", "ca"]) == {"ca"}


def test_all_patterns_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = NameMatcher()
    names = [f"layer{at}_{'x' * 80}" for at in range(2000)]
    with pytest.raises(PatternError, match="too long on names"):
        matcher.found_in(".*_.*_.*_x", names)
    assert matcher.found_in("layer7_", names) == {names[7]}
    monkeypatch.setattr(name_pattern, "_ALL_WAYS", 1e7)
    matcher = NameMatcher()
    with pytest.raises(PatternError, match=r"'p99'.*too long"):
        [matcher.found_in(f"p{at}", names[:1]) for at in range(101)]


@pytest.mark.parametrize("pattern", ["(a|aa)+$", "("])
def test_a_rule_says_why_it_could_not_be_evaluated(pattern: str) -> None:
    trial = TrialBuilder(MemoryStore())
    trial.collections(gradients=("^gradient", pattern))
    trial.step(0, {"gradient/" + "a" * 60 + "!": [1e-9], "x": [1.0]})
    assert repr(pattern) in reason_of(*trial.outcomes(VanishingGradient()))
    state = trial.evaluate(VanishingGradient())
    assert state.status is RuleStatus.ERROR
    assert trial.evaluate(ExplodingTensor()).status is RuleStatus.NO_ISSUES_FOUND
    with pytest.raises(PatternError):
        Trial(trial.store, name="t").tensor_names(collection="gradients")


def test_a_jobs_own_pattern_is_refused_when_its_rule_is_made() -> None:
    with pytest.raises(ParameterError, match=r"tensor_regex.*refused.*several ways"):
        create_rule("ExplodingTensor", {"tensor_regex": "(a|aa)+$"})
    with pytest.raises(ParameterError, match=r"tensor_regex.*not valid"):
        create_rule("ExplodingTensor", {"tensor_regex": "("})
