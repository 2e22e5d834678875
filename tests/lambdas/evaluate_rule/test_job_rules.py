"""Rules that a job configures itself, in the function that has them all, over AWS in moto."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE, index_key
from hook_layer.storage.memory import MemoryStore
from lambdas.contracts import environment
from lambdas.contracts.events import CUSTOM_RULES, JOB_RULES
from lambdas.evaluate_rule.job_rules import MAX_JOB_RULES, JobRules
from lambdas.evaluate_rule.rules import DeployedRules, RuleConfigurationError
from lambdas.shared import clients
from lambdas.shared.registration import Registration
from lambdas.shared.settings import CustomRules
from lambdas.shared.wake import Wake, WakeReason
from rule_runtime.configuration.requested_rules import PROBLEMS, RequestedRule
from tests.lambdas.conftest import MemoryPipeline, Pipeline

DEPLOYED = "ExplodingTensor"
ROOT = "mnist-7/debug-output/"
URI = f"s3://tensors/{ROOT}"
RUN = "01JD0000000000000000000001"
NEXT_RUN = "01JD0000000000000000000002"
PINNED = CustomRules("rules", {"mine.py": "ab" * 32})


def rule(name: str, invoked: str | None = "NonFinite", **parameters: Any) -> dict[str, Any]:
    """Return a member of DebugRuleConfigurations."""
    given = parameters if invoked is None else {"rule_to_invoke": invoked, **parameters}
    return {"RuleConfigurationName": name, "RuleParameters": given}


def vanishing(name: str, threshold: str) -> dict[str, Any]:
    """Return a rule that judges gradients, which are all 1 here."""
    return rule(name, "VanishingGradient", threshold=threshold)


@pytest.fixture
def jobs(pipeline: Pipeline) -> Pipeline:
    """The function that evaluates what jobs configure themselves."""
    pipeline.patch.setenv(environment.RULE_CONFIGURATION_NAME, JOB_RULES)
    pipeline.patch.delenv(environment.RULE_PARAMETERS)
    pipeline.patch.setenv(environment.DEPLOYED_RULES, f"{DEPLOYED},Overfit")
    pipeline.patch.setenv(environment.RULE_QUEUE_URLS, json.dumps({JOB_RULES: pipeline.queue_url}))
    pipeline.forget()
    return pipeline


def configure(jobs: Pipeline, *rules: Any, run: str = RUN) -> None:
    jobs.put_job(run, debug_rule_configurations=rules)


def reported(jobs: Pipeline) -> dict[str, list[str]]:
    """Return the statuses that were announced since, in order, by rule."""
    found: dict[str, list[str]] = {}
    for detail in jobs.announced():
        (status,) = detail["DebugRuleEvaluationStatuses"]
        name = status["RuleConfigurationName"]
        found.setdefault(name, []).append(status["RuleEvaluationStatus"])
    return found


def reason(jobs: Pipeline, name: str) -> str:
    """Return what the item of a rule says is in its way."""
    key = {"run": {"S": f"{URI}#{RUN}"}, "rule": {"S": name}}
    item = jobs.aws("dynamodb").get_item(TableName="states", Key=key)["Item"]
    assert item["status"] == {"S": "Error"}
    text: str = json.loads(item["blocked_by"]["S"])
    return text


def grow_quiet(jobs: Pipeline, name: str, seconds: float) -> None:
    jobs.aws("dynamodb").update_item(
        TableName="states",
        Key={"run": {"S": f"{URI}#{RUN}"}, "rule": {"S": name}},
        UpdateExpression="SET updated_at = :at, seen_at = :at",
        ConditionExpression="attribute_exists(updated_at)",
        ExpressionAttributeValues={":at": {"N": str(round((time.time() - seconds) * 1000))}},
    )


class TestWhatAJobConfigures:
    def test_a_rule_twice_under_two_names(self, jobs: Pipeline) -> None:
        configure(jobs, vanishing("Strict", "2"), vanishing("Lenient", "0.5"))
        jobs.put_step(0)
        jobs.put_marker()
        jobs.deliver()
        statuses = reported(jobs)
        assert statuses.pop("Strict")[-1] == "IssuesFound"
        assert statuses.pop("Lenient")[-1] == "NoIssuesFound"
        assert statuses == {}
        listed = jobs.aws("s3").list_objects_v2(Bucket="tensors", Prefix="mnist-7/rule-output/")
        assert [found["Key"] for found in listed["Contents"]] == [
            "mnist-7/rule-output/Lenient/status.json",
            "mnist-7/rule-output/Strict/status.json",
        ]

    def test_a_name_may_stand_for_the_rule(self, jobs: Pipeline) -> None:
        configure(jobs, {"RuleConfigurationName": "NonFinite"})
        jobs.put_step(0, num_nan=1)
        jobs.deliver()
        assert reported(jobs) == {"NonFinite": ["InProgress", "IssuesFound"]}

    def test_a_deployed_name_is_left_to_its_function(self, jobs: Pipeline) -> None:
        """Whatever the job says that it stands for; that function tells what is wrong with it."""
        configure(jobs, rule(DEPLOYED, "NonFinite"), rule("Overfit", "Nothing"), rule("own"))
        jobs.put_step(0)
        jobs.deliver()
        assert reported(jobs) == {"own": ["InProgress"]}
        job = Registration(
            URI, "mnist-7", rules={DEPLOYED: RequestedRule({"rule_to_invoke": "NonFinite"})}
        )
        deployed = DeployedRules({DEPLOYED: {"rule_to_invoke": DEPLOYED}})
        assert deployed.names(job) == [DEPLOYED]
        with pytest.raises(RuleConfigurationError, match="use another RuleConfigurationName"):
            deployed.rule(DEPLOYED, job)

    @pytest.mark.parametrize("rules", [None, (), (rule(DEPLOYED),)])
    def test_without_any_of_its_own_a_job_costs_its_registration(
        self, jobs: Pipeline, monkeypatch: pytest.MonkeyPatch, rules: Any
    ) -> None:
        reads: list[str] = []
        get = clients.s3().get_object

        def noted(**arguments: Any) -> Any:
            reads.append(arguments["Key"])
            return get(**arguments)

        monkeypatch.setattr(clients.s3(), "get_object", noted)
        jobs.put_job(debug_rule_configurations=rules)
        for step in range(5):
            jobs.put_step(step)
            jobs.deliver()
        assert reads == [ROOT + JOB_FILE] * 2, "once, and once more after registering"
        assert reported(jobs) == {}

    def test_a_run_that_begins_later_has_its_own(self, jobs: Pipeline) -> None:
        configure(jobs, rule("first"))
        jobs.put_step(0)
        jobs.deliver()
        configure(jobs, rule("second"), run=NEXT_RUN)
        jobs.put_step(0, run=NEXT_RUN, num_nan=1)
        jobs.deliver()
        assert reported(jobs) == {"first": ["InProgress"], "second": ["InProgress", "IssuesFound"]}


class TestWhatNobodyCanEvaluate:
    @pytest.mark.parametrize(
        ("configured", "words"),
        [
            (vanishing("x", "small"), "parameter threshold is 'small'"),
            (rule("x", "VanishingGradeint"), "there is no rule 'VanishingGradeint'"),
            (rule("x", "VanishingGradeint"), "VanishingGradient"),
            (rule("x", "NonFinite", treshold="1"), "takes no parameter 'treshold'"),
            (rule("x", None), "there is no rule 'x'"),
            (rule("x", ["NonFinite"]), "is ['NonFinite'], but must be a text"),
            (rule("x", "NonFinite", collection_names=["a"] * 20_000), "at most 65536 are allowed"),
            (
                rule("x", "Mine", source_s3_uri="s3://sagemaker-eu-west-1/mine.py"),
                "this deployment runs no custom rules",
            ),
        ],
    )
    def test_ends_as_error_with_the_reason_told_once(
        self, jobs: Pipeline, configured: dict[str, Any], words: str
    ) -> None:
        configure(jobs, configured, rule("healthy"))
        for step in range(3):
            jobs.put_step(step)
            jobs.deliver()
        jobs.put_marker()
        jobs.deliver()
        statuses = reported(jobs)
        assert statuses.pop("x") == ["InProgress", "Error"]
        assert words in reason(jobs, "x")
        assert statuses.pop("healthy")[-1] == "NoIssuesFound", "it harms no other rule"
        grow_quiet(jobs, "x", 86_430)
        assert jobs.sweep() == 1
        jobs.deliver()
        assert reported(jobs) == {}
        assert jobs.sweep() == 0, "it has come to its end"

    def test_a_file_that_is_not_pinned(
        self, jobs: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = {f"{number}.py": "ab" * 32 for number in range(9)}
        monkeypatch.setenv(environment.CUSTOM_RULE_BUCKET, "rules")
        monkeypatch.setenv(environment.CUSTOM_RULES, json.dumps(files))
        jobs.forget()
        pinned = rule("pinned", "Mine", source_s3_uri="s3://rules/3.py")
        configure(jobs, rule("x", "Mine", source_s3_uri="s3://rules/mine.py"), pinned)
        jobs.put_step(0)
        jobs.deliver()
        assert reported(jobs) == {"x": ["InProgress", "Error"]}, "the other function runs the other"
        text = reason(jobs, "x")
        assert "s3://rules/mine.py" in text
        assert "stepwatch:custom_rules; pinned are s3://rules/0.py, " in text
        assert text.endswith("s3://rules/4.py and 4 more")

    def test_what_is_wrong_with_the_list_has_an_item_of_its_own(self, jobs: Pipeline) -> None:
        own = [rule(f"own-{number:02}") for number in range(MAX_JOB_RULES + 2)]
        wrong = ({}, rule(""), rule("#stop"), rule("a\nb"), rule("x" * 257))
        again = rule("own-00", "NonFinite")
        configure(jobs, rule(DEPLOYED), *wrong, rule(PROBLEMS), *own, again)
        jobs.put_step(0)
        jobs.deliver()
        jobs.put_step(1)
        jobs.deliver()
        statuses = reported(jobs)
        assert statuses.pop(PROBLEMS) == ["InProgress", "Error"]
        assert statuses == {f"own-{number:02}": ["InProgress"] for number in range(MAX_JOB_RULES)}
        text = reason(jobs, PROBLEMS)
        assert (
            "entry 2 of DebugRuleConfigurations is ignored, because its RuleConfigurationName is "
            "None" in text
        )
        left_out = [f"own-{MAX_JOB_RULES + number}" for number in range(2)]
        told_of = (
            f"{MAX_JOB_RULES} are evaluated, and 2 are skipped: {', '.join(map(repr, left_out))}"
        )
        assert told_of in text

    def test_parameters_that_are_none_and_a_name_that_is_there_twice(self, jobs: Pipeline) -> None:
        odd = {"RuleConfigurationName": "NonFinite", "RuleParameters": ["threshold"]}
        configure(jobs, rule("NonFinite", "Nothing"), odd)
        jobs.put_step(0)
        jobs.deliver()
        assert reported(jobs) == {name: ["InProgress", "Error"] for name in ("NonFinite", PROBLEMS)}
        text = reason(jobs, PROBLEMS)
        assert "'NonFinite' is there again as entry 2, which alone counts" in text
        assert "RuleParameters are ['threshold'], but must be an object" in reason(
            jobs, "NonFinite"
        )

    def test_a_deployed_rule_judges_by_no_parameters_that_cannot_be_used(
        self, pipeline: Pipeline
    ) -> None:
        configure(pipeline, {"RuleConfigurationName": DEPLOYED, "RuleParameters": "threshold"})
        pipeline.put_step(0)
        pipeline.deliver()
        assert "RuleParameters are 'threshold', but must be an object" in reason(pipeline, DEPLOYED)


class TestWhoComesBack:
    def test_the_sweep_wakes_the_rule_that_is_quiet_and_no_other(self, jobs: Pipeline) -> None:
        configure(jobs, rule("one"), rule("two"))
        jobs.put_step(0)
        jobs.deliver()
        jobs.put_step(1, num_nan=1)
        jobs.aws("sqs").purge_queue(QueueUrl=jobs.queue_url)  # nobody is told of the step
        assert reported(jobs) == {"one": ["InProgress"], "two": ["InProgress"]}
        grow_quiet(jobs, "one", 120)
        assert jobs.sweep() == 1
        jobs.deliver()
        assert reported(jobs) == {"one": ["IssuesFound"]}

    def test_silence_ends_it(self, jobs: Pipeline) -> None:
        configure(jobs, rule("one"))
        jobs.put_step(0)
        jobs.deliver()
        grow_quiet(jobs, "one", 86_430)
        jobs.sweep()
        jobs.deliver()
        assert reported(jobs) == {"one": ["InProgress", "NoIssuesFound"]}

    def test_the_end_that_sagemaker_tells_ends_all(self, jobs: Pipeline) -> None:
        configure(jobs, rule("one"), rule("two"))
        jobs.put_step(0)
        jobs.deliver()
        event = {
            "source": "aws.sagemaker",
            "detail-type": "SageMaker Training Job State Change",
            "time": "2026-11-20T11:00:00Z",
            "account": "123456789012",
            "region": "eu-west-1",
            "detail": {"TrainingJobName": "mnist-7", "TrainingJobStatus": "Failed"},
        }
        assert jobs.finish(event) == "1 evaluations are due"
        jobs.deliver()
        ended = ["InProgress", "NoIssuesFound"]
        assert reported(jobs) == {"one": ended, "two": ended}

    def test_a_rule_that_job_json_has_no_more_is_reported(self, jobs: Pipeline) -> None:
        configure(jobs, rule("one"))
        jobs.put_step(0)
        jobs.deliver()
        configure(jobs, rule("two"), run=NEXT_RUN)
        jobs.forget()
        reported(jobs)
        grow_quiet(jobs, "one", 120)
        jobs.sweep()
        jobs.deliver()
        assert reported(jobs) == {"one": ["Error"]}
        assert "no longer deployed or configured in job.json" in reason(jobs, "one")

    def test_a_rule_that_is_deployed_no_more_goes_on_where_a_job_configures_it(
        self, jobs: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(environment.RULE_CONFIGURATION_NAME, "watch")
        monkeypatch.setenv(environment.RULE_PARAMETERS, json.dumps({"rule_to_invoke": "NonFinite"}))
        jobs.forget()
        configure(jobs, rule("watch"))
        jobs.put_step(0)
        jobs.deliver()
        monkeypatch.setenv(environment.RULE_CONFIGURATION_NAME, JOB_RULES)
        jobs.forget()
        jobs.put_step(1, num_nan=1)
        jobs.deliver()
        assert reported(jobs) == {"watch": ["InProgress", "IssuesFound"]}

    def test_several_rules_share_the_time_and_all_come_to_their_end(self, jobs: Pipeline) -> None:
        names = [f"own-{number}" for number in range(4)]
        configure(jobs, *map(rule, names))
        for step in range(6):
            jobs.put_step(step, num_nan=step == 5)
        jobs.put_marker()
        calls = 0
        while records := jobs.receive():
            calls += 1
            assert calls < 50
            failed = jobs.invoke(records, remaining_ms=[*[60_000] * 10, 14_999])
            for record in records:
                if record["messageId"] not in failed:
                    jobs.aws("sqs").delete_message(
                        QueueUrl=jobs.queue_url, ReceiptHandle=record["handle"]
                    )
        assert calls > 2
        assert {name: statuses[-1] for name, statuses in reported(jobs).items()} == dict.fromkeys(
            names, "IssuesFound"
        )


# ---------------------------------------------------------------------- whatever a job says

_TEXT = st.text(st.characters(codec="utf-8"), max_size=4)
_NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=3,
)
_NAMES = st.sampled_from(
    (DEPLOYED, "Overfit", "NonFinite", "own", "other", PROBLEMS, "#x", "", "a\n", "a" * 257)
)
_PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "rule_to_invoke": st.sampled_from(("NonFinite", "VanishingGradient", "os")) | _JSON,
        "threshold": st.sampled_from(("1e-7", "nan", "-1")) | _JSON,
        "tensor_regex": st.sampled_from((".*", "(a+)+$", "(")) | _JSON,
        "source_s3_uri": st.sampled_from(("s3://rules/mine.py", "s3://rules/x.py")) | _JSON,
        "start_step": st.sampled_from(("0", "x")) | _JSON,
        "action_json": _JSON,
    },
)
_CONFIGURATIONS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "RuleConfigurationName": _NAMES | _JSON,
            "RuleParameters": _PARAMETERS | _JSON,
        },
    )
    | st.dictionaries(_TEXT, _JSON, max_size=2),
    max_size=4,
)


def registration_of(configurations: Any) -> Registration:
    job = JobFile("mnist-7", RUN, "local", "", debug_rule_configurations=tuple(configurations))
    return Registration.of_job_file(URI, job)


def rule_source(*, runs_files: bool = False, custom: CustomRules = PINNED) -> JobRules:
    deployed = (DEPLOYED, "Overfit")
    return JobRules(
        deployed, custom, runs_files=runs_files, open_store=lambda _: MemoryStore("rules")
    )


@given(_CONFIGURATIONS)
def test_each_configuration_is_one_functions(configurations: Any) -> None:
    job = registration_of(configurations)
    functions: list[Any] = [rule_source(), rule_source(runs_files=True)]
    functions += [DeployedRules({n: {"rule_to_invoke": n}}) for n in (DEPLOYED, "Overfit")]
    names = [name for function in functions for name in function.names(job)]
    assert len(names) == len(set(names))
    assert set(names) - {PROBLEMS} == set(job.rules or ())
    assert (PROBLEMS in names) == bool(job.rule_problems)
    for function in functions:
        for name in (*names, "gone"):
            includes = name == "gone" and function is functions[0]
            assert function.includes(name, job) == (name in function.names(job) or includes)


@settings(max_examples=60, deadline=None)
@given(_CONFIGURATIONS)
def test_whatever_a_job_configures_is_evaluated_or_told(
    memory_pipelines: Callable[..., MemoryPipeline], trial_files: Any, configurations: Any
) -> None:
    pipeline = memory_pipelines(rule_name=JOB_RULES, rule_source=rule_source())
    configured = tuple(configurations)
    job = trial_files.job_bytes(RUN, debug_rule_configurations=configured)
    pipeline.store.put(JOB_FILE, job)
    keys = [index_key(step, "worker_0") for step in range(2)]
    for step, key in enumerate(keys):
        pipeline.store.put(key, trial_files.index_bytes(step))
        assert not pipeline.service().evaluate(pipeline.records([key]), lambda: 60_000)
    found = {key.rule: stored.state for key, stored in pipeline.states.items.items()}
    asked = rule_source().names(registration_of(configured))
    assert sorted(found) == sorted(asked)
    for name, state in found.items():
        told_statuses = [
            detail["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"]
            for detail in pipeline.bus.details
            if detail["DebugRuleEvaluationStatuses"][0]["RuleConfigurationName"] == name
        ]
        assert len(told_statuses) == len(set(told_statuses)), "each once"
        if state.blocked_by:
            assert told_statuses == ["InProgress", "Error"]


def test_a_wake_of_somebody_elses_rule_does_nothing(
    memory_pipelines: Callable[..., MemoryPipeline], trial_files: Any
) -> None:
    pipeline = memory_pipelines(rule_name=CUSTOM_RULES, rule_source=rule_source(runs_files=True))
    pipeline.store.put(JOB_FILE, trial_files.job_bytes(RUN, debug_rule_configurations=()))
    service = pipeline.service()
    for name in (DEPLOYED, "own", PROBLEMS):
        wake = Wake(URI, RUN, WakeReason.SWEEP, rule=name)
        body = {**pipeline.records(["x"])[0], "body": wake.to_body()}
        assert not service.evaluate([body], lambda: 60_000)
    assert pipeline.states.items == {}
