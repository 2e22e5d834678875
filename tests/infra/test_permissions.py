"""Roles: each function may do exactly what is written here, on exactly these resources.

`tests/infra/local/test_permissions.py` compares the deployed roles with the functions' requests.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from typing import Any

import pytest

from infra.constructs.encryption import KEY_ACTIONS, TABLE_KEY_ACTIONS
from tests.infra.conftest import EVERY_RULE, FRUGAL
from tests.infra.queries import Template, actions, as_list, resources, statements
from tests.infra.synthesis import template_of
from tools.statement_table import text_of

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


def events_of(detail_type: str) -> str:
    """Return the condition on source and type of the events that a function may put."""
    return (
        "StringEquals events:source stepwatch.debugger, "
        f"StringEquals events:detail-type {detail_type}"
    )


def opted_in(*buckets: str) -> str:
    """Return the condition on jobs whose tag names a folder of one of these buckets."""
    places = ",".join(f"s3://{bucket}/*" for bucket in buckets)
    return f"StringLike aws:ResourceTag/stepwatch:debug-output {places}"


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
    ("events:PutEvents", BUS, events_of("SageMaker Training Job State Change")),
    ("sqs:ChangeMessageVisibility", "${RuleexplosionQueue.Arn}", ""),
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
    ("events:PutEvents", BUS, events_of("Stepwatch Job Summary")),
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
    ("events:PutEvents", BUS, events_of("Stepwatch Stop Overdue")),
    ("sagemaker:DescribeTrainingJob", JOBS, ""),
    ("sagemaker:ListTags", JOBS, ""),
    ("sagemaker:StopTrainingJob", JOBS, opted_in("${TensorStorageTensors}")),
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
ALL_BUCKETS = (
    "${TensorStorageTensors}",
    "${TensorStorageTensorssecondbucket}",
    "another.team",
)
WITHOUT_RESOURCES = {"batch:DescribeJobs", "cloudwatch:DescribeAlarms", *TRACES}
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
    return ", ".join(
        f"{operator} {key} {text_of(value)}"
        for operator, keys in statement.get("Condition", {}).items()
        for key, value in keys.items()
    )


def without_digests(text: str) -> str:
    return re.sub(r"[0-9A-F]{8}(?=[.}])", "", text)


def granted(template: Template, part: str) -> set[Grant]:
    """Return what a role grants, with logical ids as they were before CDK's digests."""
    return {
        (action, without_digests(text_of(resource)), without_digests(condition_of(statement)))
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
    assert {name.partition("Role")[0] for name in others} == (
        ALLOWED.keys() - {"RuleexplosionEvaluator"} | {"Emergency"}
    )


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
    parts = roles(full_template)
    assert len(parts) == 9
    for part in set(parts) - {"JobRulesCustomEvaluator"}:
        assert not [grant for grant in granted(full_template, part) if RULES in grant[1]]


def test_no_wildcard_in_actions_and_no_managed_policies(
    template: Template, full_template: Template
) -> None:
    for found, part in [(each, p) for each in (template, full_template) for p in roles(each)]:
        for statement in statements(found, f"{part}Role"):
            assert not [action for action in actions(statement) if "*" in action]
            assert statement["Resource"] != "*" or set(actions(statement)) <= WITHOUT_RESOURCES
    for role in resources(template, "AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role


def test_jobs_of_other_platforms_are_stopped_only_with_their_tag(full_template: Template) -> None:
    tagged = opted_in(*ALL_BUCKETS)
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
    """Without a condition for objects and messages, and through DynamoDB for items."""
    table = "StringEquals kms:ViaService dynamodb.${AWS::Region}.${AWS::URLSuffix}"
    expected = {(action, KEY, "") for action in KEY_ACTIONS}
    expected |= {(action, KEY, table) for action in TABLE_KEY_ACTIONS}
    for part in ALLOWED:
        keys = {grant for grant in granted(full_template, part) if grant[0].startswith("kms:")}
        assert keys == expected
    assert not {action for action in TABLE_KEY_ACTIONS if "Grant" in action or "*" in action}


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


class TestWhoCanBeStopped:
    """Which jobs a stack may stop, by whom, as IAM enforces it."""

    STOPPERS = ("sagemaker:StopTrainingJob", "batch:TerminateJob", "ecs:StopTask")
    GUARDED = (*STOPPERS, "events:PutEvents")

    def test_without_settings_only_jobs_whose_tag_names_the_tensor_bucket_by_one_function(
        self, default_template: Template
    ) -> None:
        found = {
            (part, *grant)
            for part in roles(default_template)
            for grant in granted(default_template, part)
            if grant[0] in self.STOPPERS
        }
        condition = opted_in("${TensorStorageTensors}")
        assert found == {("StopJobStopTrainingJob", "sagemaker:StopTrainingJob", JOBS, condition)}

    @pytest.mark.parametrize(
        ("policy", "condition"),
        [
            ("opt_in", opted_in("${TensorStorageTensors}")),
            ("watched", "StringNotEquals aws:ResourceTag/stepwatch:debug-output never"),
            ("all", "StringNotEquals aws:ResourceTag/stepwatch:debug-output never"),
            ("observe", None),
        ],
    )
    def test_another_policy_is_one_setting(self, policy: str, condition: str | None) -> None:
        template = template_of({**FRUGAL, "stepwatch:stop_policy": policy})
        grants = granted(template, "StopJobStopTrainingJob")
        stops = {grant for grant in grants if grant[0] in self.STOPPERS}
        expected = {("sagemaker:StopTrainingJob", JOBS, condition)} if condition else set()
        assert stops == expected
        signals = {grant for grant in grants if grant[0] == "s3:PutObject"}
        assert bool(signals) is (condition is not None), "no stop signal under `observe`"
        assert_guarded(template, self.GUARDED)

    def test_no_statement_stops_jobs_or_puts_events_without_a_condition(
        self,
        template: Template,
        full_template: Template,
        default_template: Template,
        frugal_template: Template,
    ) -> None:
        for found in (template, full_template, default_template, frugal_template):
            assert_guarded(found, self.GUARDED)

    @pytest.mark.parametrize("action", GUARDED)
    @pytest.mark.parametrize("pattern", ["{action}", "{service}:*", "*", "{prefix}*"])
    def test_a_statement_without_its_condition_would_be_found(
        self, action: str, pattern: str
    ) -> None:
        service, prefix = action.partition(":")[0], action[:-5]
        name = pattern.format(action=action, service=service, prefix=prefix)
        statement = {"Effect": "Allow", "Action": ["s3:GetObject", name], "Resource": "*"}
        policy = {"PolicyDocument": {"Statement": [statement]}}
        template = {"Resources": {"P": {"Type": "AWS::IAM::Policy", "Properties": policy}}}
        with pytest.raises(AssertionError, match="without its condition"):
            assert_guarded(template, self.GUARDED)

    def test_policies_fit_into_a_role_with_the_most_buckets_of_the_longest_names(self) -> None:
        names = [f"{number:063}" for number in range(15)]
        settings = {
            "stepwatch:rules": EVERY_RULE,
            "stepwatch:stage": "s" * 20,
            "stepwatch:tensor_buckets": names,
            "stepwatch:stop_platforms": ["batch", "ecs"],
            "stepwatch:encryption": "kms",
        }
        template = template_of(settings)
        for part in roles(template):
            document = {"Statement": statements(template, f"{part}Role")}
            text = re.sub(r"\s", "", text_of_policy(document))
            assert len(text) < MAX_POLICY_CHARACTERS, part


MAX_POLICY_CHARACTERS = 10_240
"""Of the inline policies of a role, white space not counted."""
NEEDED_KEYS = {"events:PutEvents": "events:source"}
"""Condition keys that are needed by action; on those that stop jobs the tag of the job."""


def roles(template: Template) -> list[str]:
    """Return the parts of the logical ids of all functions that have a policy."""
    return [name.rpartition("Role")[0] for name in resources(template, "AWS::IAM::Role")]


def assert_guarded(template: Template, guarded: tuple[str, ...]) -> None:
    """Every statement that covers a guarded action has the condition that belongs to it."""
    for resource in template["Resources"].values():
        for document in policy_documents(resource):
            for statement in document["Statement"]:
                assert "NotAction" not in statement
                covered = [
                    action
                    for action in guarded
                    for pattern in as_list(statement.get("Action", []))
                    if fnmatchcase(action.lower(), pattern.lower())
                ]
                for action in covered if statement["Effect"] == "Allow" else ():
                    key = NEEDED_KEYS.get(action, "aws:ResourceTag/stepwatch:debug-output")
                    keys = {
                        key for found in statement.get("Condition", {}).values() for key in found
                    }
                    assert key in keys, f"{action} is allowed without its condition on {key}"


def policy_documents(resource: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the policies of a resource, those that stand in a role too."""
    properties = resource.get("Properties", {})
    inline = [policy["PolicyDocument"] for policy in properties.get("Policies", [])]
    return [properties["PolicyDocument"], *inline] if "PolicyDocument" in properties else inline


def text_of_policy(value: Any) -> str:
    """Return JSON with references as long as what they stand for can be."""
    if (
        isinstance(value, dict)
        and len(value) == 1
        and ({"Ref", "Fn::GetAtt", "Fn::Join"} & value.keys())
    ):
        named = re.sub(r"\$\{AWS::Partition\}", "aws-us-gov", text_of(value))
        named = named.replace("${AWS::Region}", "ap-southeast-1").replace(
            "${AWS::AccountId}", "1" * 12
        )
        return json.dumps(re.sub(r"\$\{[^}]*\}", "x" * 100, named))
    if isinstance(value, dict):
        return "{" + ",".join(f'"{k}":{text_of_policy(v)}' for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of_policy, value)) + "]"
    return json.dumps(value)
