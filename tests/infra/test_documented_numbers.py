"""Numbers that the texts tell of a deployment are those of its template."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from infra.app import COUNTED, MAX_RESOURCES, project_context
from infra.config import StepwatchConfig
from lambdas.evaluate_rule.job_rules import MAX_JOB_RULES
from rule_runtime.configuration.packs import PACKS
from tests.infra.conftest import EVERY_RULE, EVERYTHING
from tests.infra.queries import Template
from tests.infra.synthesis import template_of

ROOT = Path(__file__).resolve().parents[2]
RULES = PACKS["recommended"].parameters


def words_of(page: str) -> str:
    """Return a text without its line breaks."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def counts(template: Template) -> dict[str, int]:
    types = Counter(resource["Type"] for resource in template["Resources"].values())
    return {"all": types.total(), **{name: types[kind] for kind, name in COUNTED.items()}}


@pytest.fixture(scope="module")
def pair() -> dict[str, int]:
    """The numbers of a deployment of two rules."""
    return counts(template_of({"stepwatch:rules": ["NonFinite", "LossDiverging"]}))


def test_how_large_a_deployment_is(default_template: Template, pair: dict[str, int]) -> None:
    whole, text = counts(default_template), words_of("docs/reference/stack.md")
    reported = (
        f"With the {len(RULES)} rules of `cdk.json`, the template has {whole['all']} resources: "
        f"{whole['functions']} functions, {whole['roles']} roles, {whole['queues']} queues, "
        f"{whole['alarms']} alarms and others. With two rules it has {pair['all']} resources, and "
        f"{pair['functions']} of them are functions."
    )
    assert reported in text
    of_a_rule = (whole["all"] - pair["all"]) / (len(RULES) - 2)
    assert round(of_a_rule) == 8
    assert "A rule adds eight resources:" in text
    every = {
        "stepwatch:rules": EVERY_RULE,
        "stepwatch:stage": "s" * 20,
        "stepwatch:stop_rules": [],
        "stepwatch:event_bus": "own",
    }
    assert counts(template_of({**EVERYTHING, **every}))["all"] <= MAX_RESOURCES
    assert f"has room for all {len(EVERY_RULE)} built-in rules" in text


def test_how_many_evaluations_may_run_at_once() -> None:
    config = StepwatchConfig.from_context(project_context())
    all_busy = len(RULES) * config.maximum_concurrency
    reported = f"so {len(RULES)} busy rules use {all_busy}."
    assert reported in words_of("docs/reference/stack.md")


@pytest.mark.parametrize(
    ("page", "reported"),
    [
        ("docs/tutorials/first-run.md", f": {len(RULES)} rules that rarely"),
        ("docs/how-to/jobs.md", f"evaluates the first {MAX_JOB_RULES} of the rules"),
        (
            "docs/explanation/functions.md",
            f"{'Forty' if MAX_JOB_RULES == 40 else '?'} such rules of a job",
        ),
    ],
)
def test_how_many_rules_there_are(page: str, reported: str) -> None:
    assert reported in words_of(page)
