"""Roles: each function may do exactly what is written here, on exactly these resources.

`tests/infra/local/test_permissions.py` compares the deployed roles with the functions' requests.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.infra.queries import Template, actions, as_list, resources, statements, text_of

TABLE = "${EvaluationStateStates.Arn}"
TENSORS = "${TensorStorageTensors.Arn}"
HERE = "${AWS::Region}:${AWS::AccountId}"
BUS = f"arn:${{AWS::Partition}}:events:{HERE}:event-bus/default"
KEY = "${EncryptionKey.Arn}"
RULES = "${JobRulesFiles.Arn}"

Grant = tuple[str, str, str]


def logs(part: str) -> set[Grant]:
    """Return what every function may do: write to its own log group."""
    own = f"${{{part}Logs.Arn}}"
    return {("logs:CreateLogStream", own, ""), ("logs:PutLogEvents", own, "")}


OWN = "ForAllValues:StringLike dynamodb:LeadingKeys s3://*,job#*,attempts#*"
EVALUATOR: set[Grant] = {
    ("s3:GetObject", f"{TENSORS}/*", ""),
    ("s3:PutObject", f"{TENSORS}/*_stepwatch/memory/*", ""),
    ("s3:DeleteObject", f"{TENSORS}/*_stepwatch/memory/*", ""),
    ("s3:PutObject", f"{TENSORS}/*rule-output/*/status.json", ""),
    ("s3:ListBucket", TENSORS, ""),
    ("dynamodb:GetItem", TABLE, OWN),
    ("dynamodb:PutItem", TABLE, OWN),
    ("dynamodb:UpdateItem", TABLE, OWN),
    ("events:PutEvents", BUS, ""),
    ("sqs:DeleteMessage", "${RuleexplosionQueue.Arn}", ""),
    ("sqs:GetQueueAttributes", "${RuleexplosionQueue.Arn}", ""),
    ("sqs:ReceiveMessage", "${RuleexplosionQueue.Arn}", ""),
    ("sqs:SendMessage", "${RuleexplosionQueue.Arn}", ""),
}
WAKES: set[Grant] = {
    ("sqs:SendMessage", f"${{{evaluator}Queue.Arn}}", "")
    for evaluator in (
        *("RuleVanishingGradient", "Ruleexplosion", "RuleLossNotDecreasing"),
        "JobRulesBuiltIn",
    )
}
SWEEP: set[Grant] = WAKES | {
    ("dynamodb:Query", f"{TABLE}/index/active-updated_at", ""),
    ("dynamodb:GetItem", TABLE, ""),
}
FINISH_JOB: set[Grant] = WAKES | {
    ("s3:GetObject", f"{TENSORS}/*index/*", ""),
    ("s3:GetObject", f"{TENSORS}/*collections/*", ""),
    ("s3:GetObject", f"{TENSORS}/*job.json", ""),
    ("s3:GetObject", f"{TENSORS}/*stop.json", ""),
    ("s3:GetObject", f"{TENSORS}/*training_job_end.ts", ""),
    ("s3:PutObject", f"{TENSORS}/*rule-output/report.html", ""),
    ("s3:ListBucket", TENSORS, ""),
    ("dynamodb:GetItem", TABLE, ""),
    ("dynamodb:Query", TABLE, ""),
    ("dynamodb:UpdateItem", TABLE, ""),
    ("sqs:SendMessage", "${FinishJobFinishFailures.Arn}", ""),
}
STOPS = "ForAllValues:StringLike dynamodb:LeadingKeys stop#*"
JOBS = f"arn:${{AWS::Partition}}:sagemaker:{HERE}:training-job/*"
STOP_JOB: set[Grant] = {
    ("s3:GetObject", f"{TENSORS}/*/stop.json", ""),
    ("s3:GetObject", f"{TENSORS}/*/job.json", ""),
    ("s3:GetObject", f"{TENSORS}/*/training_job_end.ts", ""),
    ("s3:PutObject", f"{TENSORS}/*/stop.json", ""),
    ("s3:ListBucket", TENSORS, ""),
    ("dynamodb:GetItem", TABLE, ""),
    ("dynamodb:Query", TABLE, ""),
    ("dynamodb:PutItem", TABLE, STOPS),
    ("dynamodb:UpdateItem", TABLE, STOPS),
    ("dynamodb:Query", f"{TABLE}/index/active-updated_at", ""),
    ("events:PutEvents", BUS, "StringEquals events:source stepwatch.debugger"),
    ("sagemaker:DescribeTrainingJob", JOBS, ""),
    ("sagemaker:StopTrainingJob", JOBS, ""),
    ("sqs:SendMessage", "${StopJobStopTrainingJobFailures.Arn}", ""),
}
NOTICES = "ForAllValues:StringLike dynamodb:LeadingKeys notice#*"
NOTIFY: set[Grant] = {
    ("s3:GetObject", f"{TENSORS}/*/job.json", ""),
    ("s3:ListBucket", TENSORS, ""),
    ("dynamodb:GetItem", TABLE, ""),
    ("dynamodb:PutItem", TABLE, NOTICES),
    ("dynamodb:UpdateItem", TABLE, NOTICES),
    ("dynamodb:DeleteItem", TABLE, NOTICES),
    ("sns:Publish", "${AlertsTopic}", ""),
    ("kms:Decrypt", KEY, ""),
    ("kms:GenerateDataKey", KEY, ""),
    ("sqs:SendMessage", "${NotifyNotifierFailures.Arn}", ""),
}
TRACES = {"xray:PutTelemetryRecords", "xray:PutTraceSegments"}
WITHOUT_RESOURCES = {"batch:DescribeJobs", *TRACES}
"""Actions for which the services know no resources."""
ALLOWED = {
    "RuleexplosionEvaluator": EVALUATOR,
    "SweepSweeper": SWEEP,
    "FinishJobFinish": FINISH_JOB,
    "StopJobStopTrainingJob": STOP_JOB,
    "NotifyNotifier": NOTIFY,
}
"""By the part of a function's logical id."""


def condition_of(statement: dict[str, Any]) -> str:
    return " ".join(
        f"{operator} {key} {','.join(as_list(value))}"
        for operator, keys in statement.get("Condition", {}).items()
        for key, value in keys.items()
    )


def granted(template: Template, part: str) -> set[Grant]:
    """Return what a role grants, with logical ids as they were before CDK's digests."""
    return {
        (action, re.sub(r"[0-9A-F]{8}(?=[.}])", "", text_of(resource)), condition_of(statement))
        for statement in statements(template, f"{part}Role")
        for action in actions(statement)
        for resource in as_list(statement["Resource"])
        if statement["Effect"] == "Allow"
    }


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_a_function_may_do_exactly_this(template: Template, part: str) -> None:
    assert granted(template, part) == ALLOWED[part] | logs(part)


def test_every_role_is_looked_at(template: Template) -> None:
    roles = resources(template, "AWS::IAM::Role")
    evaluators = {name for name in roles if "Evaluator" in name}
    assert len(evaluators) == 4
    others = roles.keys() - evaluators
    assert {part for part in ALLOWED if any(name.startswith(part) for name in others)} == (
        ALLOWED.keys() - {"RuleexplosionEvaluator"}
    )
    assert len(others) == len(ALLOWED) - 1


def test_evaluators_differ_in_nothing_but_their_rule(template: Template) -> None:
    for part in ("RuleLossNotDecreasing", "JobRulesBuiltIn"):
        other = granted(template, f"{part}Evaluator")
        renamed = {(a, r.replace(part, "Ruleexplosion"), c) for a, r, c in other}
        assert renamed == granted(template, "RuleexplosionEvaluator")


def test_custom_code_may_read_its_files_and_do_what_evaluators_do(full_template: Template) -> None:
    """And nobody else may read them, so that no other function can be made to run one."""
    custom = granted(full_template, "JobRulesCustomEvaluator")
    files = {("s3:GetObject", f"{RULES}/{key}", "") for key in ("team/mine.py", "yours.py")}
    assert files <= custom
    others = {(a, r.replace("JobRulesCustom", "Ruleexplosion"), c) for a, r, c in custom - files}
    assert others == granted(full_template, "RuleexplosionEvaluator")
    parts = [name.partition("Role")[0] for name in resources(full_template, "AWS::IAM::Policy")]
    assert len(parts) == 7
    for part in set(parts) - {"JobRulesCustomEvaluator"}:
        assert not [grant for grant in granted(full_template, part) if RULES in grant[1]]


def test_no_wildcard_in_actions_and_no_managed_policies(
    template: Template, full_template: Template
) -> None:
    for policy in [
        *resources(template, "AWS::IAM::Policy").values(),
        *resources(full_template, "AWS::IAM::Policy").values(),
    ]:
        for statement in policy["PolicyDocument"]["Statement"]:
            assert not [action for action in actions(statement) if "*" in action]
            assert statement["Resource"] != "*" or set(actions(statement)) <= WITHOUT_RESOURCES
    for role in resources(template, "AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role


def test_jobs_of_other_platforms_are_stopped_only_with_their_tag(full_template: Template) -> None:
    tagged = "Null aws:ResourceTag/stepwatch:debug-output false"
    tasks = f"arn:${{AWS::Partition}}:ecs:{HERE}:task/*"
    expected = {
        ("batch:DescribeJobs", "*", ""),
        ("batch:TerminateJob", f"arn:${{AWS::Partition}}:batch:{HERE}:job/*", tagged),
        ("ecs:DescribeTasks", tasks, ""),
        ("ecs:StopTask", tasks, tagged),
    }
    found = granted(full_template, "StopJobStopTrainingJob")
    assert {grant for grant in found if grant[0].split(":")[0] in {"batch", "ecs"}} == expected


def test_with_a_key_of_ones_own_every_function_may_use_it_and_no_other(
    full_template: Template,
) -> None:
    for part in ALLOWED:
        keys = {grant for grant in granted(full_template, part) if grant[0].startswith("kms:")}
        assert keys == {("kms:Decrypt", KEY, ""), ("kms:GenerateDataKey", KEY, "")}


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_traces_are_sent_only_where_that_is_asked_for(full_template: Template, part: str) -> None:
    found = granted(full_template, part)
    assert {grant for grant in found if grant[0].startswith("xray:")} == {
        (action, "*", "") for action in TRACES
    }


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_every_watched_bucket_is_covered_alike(full_template: Template, part: str) -> None:
    found = granted(full_template, part)
    first = "${TensorStorageTensors.Arn}"
    others = ("${TensorStorageTensorssecondbucket.Arn}", "arn:${AWS::Partition}:s3:::another.team")
    of_first = {(a, r, c) for a, r, c in found if r.startswith(first)}
    for other in others:
        assert {(a, r.replace(first, other), c) for a, r, c in of_first} <= found
    assert len([g for g in found if g[0].startswith("s3:")]) == 3 * len(of_first)
