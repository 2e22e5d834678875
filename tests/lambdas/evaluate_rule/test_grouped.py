"""One function for all built-in rules, over AWS in moto: one item for the states of a run."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from botocore.client import BaseClient

from lambdas.contracts import environment
from lambdas.contracts.events import JOB_RULES
from lambdas.evaluate_rule.attempts import DynamoAttempts
from lambdas.shared import clients
from lambdas.shared.group_item import MAX_GROUP_BYTES
from lambdas.shared.run_states import RunStates
from lambdas.shared.state_table import DynamoStateTable, StateKey, StoredState
from lambdas.shared.states import GroupConflictError
from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.state import EvaluationState
from tests.lambdas.conftest import ROOT, RUN, TABLE, Pipeline

RULES = ("ExplodingTensor", "VanishingGradient", "NonFinite")
URI = f"s3://tensors/{ROOT}"


def group(pipeline: Pipeline, rules: dict[str, dict[str, str]]) -> Pipeline:
    """Deploy the rules as one group, whatever was deployed before."""
    pipeline.patch.setenv(environment.RULE_CONFIGURATION_NAME, JOB_RULES)
    pipeline.patch.setenv(environment.GROUPED_RULES, json.dumps(rules))
    pipeline.patch.setenv(environment.DEPLOYED_RULES, ",".join(rules))
    pipeline.patch.setenv(environment.RULE_QUEUE_URLS, json.dumps({JOB_RULES: pipeline.queue_url}))
    pipeline.forget()
    return pipeline


def apart(pipeline: Pipeline, rule: str) -> None:
    """Deploy one rule with a function of its own."""
    pipeline.patch.delenv(environment.GROUPED_RULES, raising=False)
    pipeline.patch.setenv(environment.RULE_CONFIGURATION_NAME, rule)
    pipeline.patch.setenv(environment.RULE_PARAMETERS, json.dumps({"rule_to_invoke": rule}))
    pipeline.patch.setenv(environment.RULE_QUEUE_URLS, json.dumps({rule: pipeline.queue_url}))
    pipeline.forget()


@pytest.fixture
def grouped(pipeline: Pipeline) -> Pipeline:
    pipeline.put_job()
    return group(pipeline, {rule: {} for rule in RULES})


def states(run: str = RUN) -> dict[str, EvaluationState]:
    return RunStates(clients.dynamodb(), TABLE).load(URI, run)


def sort_keys(pipeline: Pipeline) -> list[str]:
    items = pipeline.aws("dynamodb").scan(TableName=TABLE)["Items"]
    return sorted(item["rule"]["S"] for item in items if item["run"]["S"].startswith("s3:"))


def statuses(pipeline: Pipeline) -> Counter[tuple[str, str]]:
    return Counter(
        (status["RuleConfigurationName"], status["RuleEvaluationStatus"])
        for detail in pipeline.announced()
        for status in detail["DebugRuleEvaluationStatuses"]
    )


def test_all_rules_of_a_run_are_one_item_with_a_verdict_each(grouped: Pipeline) -> None:
    for step in range(3):
        grouped.put_step(step, num_nan=4 * (step == 1))
    grouped.put_marker()
    grouped.deliver()
    assert sort_keys(grouped) == [JOB_RULES]
    found = {rule: state.status.value for rule, state in states().items()}
    assert found == {
        "ExplodingTensor": "IssuesFound",
        "NonFinite": "IssuesFound",
        "VanishingGradient": "NoIssuesFound",
    }
    first = [(rule, "InProgress") for rule in RULES]
    assert statuses(grouped) == Counter([*first, *found.items()])
    items = grouped.aws("dynamodb").scan(TableName=TABLE)["Items"]
    assert not [item for item in items if "active" in item]


def test_a_job_that_brings_rules_has_them_in_the_same_item(grouped: Pipeline) -> None:
    own = {"RuleConfigurationName": "own", "RuleParameters": {"rule_to_invoke": "NonFinite"}}
    named = {"RuleConfigurationName": "NonFinite"}
    grouped.put_job(debug_rule_configurations=(own, named))
    grouped.put_step(0)
    grouped.deliver()
    assert sort_keys(grouped) == [JOB_RULES]
    assert sorted(states()) == ["NonFinite", "own"]


def test_a_step_of_all_recommended_rules_costs_one_write_and_few_reads(
    grouped: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = PACKS["recommended"].parameters
    texts = {
        rule: {name: str(value) for name, value in given.items() if not isinstance(value, tuple)}
        for rule, given in pack.items()
    }
    group(grouped, texts)
    grouped.put_step(0)
    grouped.deliver()
    grouped.put_step(1)
    calls: Counter[str] = Counter()
    make_api_call = BaseClient._make_api_call  # type: ignore[attr-defined]

    def counted(self: Any, operation: str, parameters: Any) -> Any:
        calls[operation] += 1
        return make_api_call(self, operation, parameters)

    records = grouped.receive()
    assert len(records) == 1
    monkeypatch.setattr(BaseClient, "_make_api_call", counted)
    assert not grouped.invoke(records)
    assert len(states()) == len(pack)
    assert calls["PutItem"] + calls["UpdateItem"] == 1
    assert calls["GetObject"] <= 4
    assert calls["GetItem"] == 1


@pytest.mark.parametrize(
    "modes", ["per_rule grouped", "grouped per_rule", "grouped per_rule grouped"]
)
def test_the_setting_may_change_while_a_job_trains(pipeline: Pipeline, modes: str) -> None:
    """Memories, counts and verdicts are those of a run without a change."""
    rule, names = "ExplodingTensor", modes.split()
    sick_step = 3 * len(names) - 5  # in the last mode but one
    pipeline.put_job()
    for number, mode in enumerate(names):
        group(pipeline, {rule: {}}) if mode == "grouped" else apart(pipeline, rule)
        for step in range(3 * number, 3 * number + 3):
            pipeline.put_step(step, num_nan=4 * (step == sick_step))
        pipeline.deliver()
    pipeline.put_marker()
    pipeline.deliver()
    (state,) = states().values()
    assert (state.status, state.counts.evaluated) == (RuleStatus.ISSUES_FOUND, 3 * len(names))
    assert state.evidence is not None
    assert state.evidence.step == sick_step
    assert set(statuses(pipeline).values()) == {1}, "nothing is announced again"
    items = pipeline.aws("dynamodb").scan(TableName=TABLE)["Items"]
    assert not [item for item in items if "active" in item]
    assert sort_keys(pipeline) == ([JOB_RULES, rule] if names[-1] == "per_rule" else [JOB_RULES])


@pytest.mark.parametrize("is_interrupted", [False, True], ids=["", "interrupted"])
def test_a_sweep_moves_what_is_left_in_the_item_of_a_group(
    grouped: Pipeline, is_interrupted: bool
) -> None:
    """An interrupted move leaves the state in both items."""
    grouped.put_step(0)
    grouped.deliver()
    table, key = grouped.aws("dynamodb"), {"run": {"S": f"{URI}#{RUN}"}, "rule": {"S": JOB_RULES}}
    left = list(RULES)
    while left:
        rule = left.pop()
        apart(grouped, rule)
        urls = dict.fromkeys((JOB_RULES, *RULES), grouped.queue_url)
        grouped.patch.setenv(environment.RULE_QUEUE_URLS, json.dumps(urls))
        item = table.get_item(TableName=TABLE, Key=key)["Item"]
        for _ in range(1 + is_interrupted):
            item["updated_at"] = {"N": str(round((time.time() - 90) * 1000))}
            table.put_item(TableName=TABLE, Item=item)
            assert grouped.sweep() >= len(urls)
            grouped.deliver()
        of_group = table.get_item(TableName=TABLE, Key=key)["Item"]
        assert sorted(json.loads(zlib.decompress(of_group["states"]["B"]))) == sorted(left)
    assert "active" not in of_group
    assert {state.counts.evaluated for state in states().values()} == {1}
    assert set(statuses(grouped).values()) == {1}, "nothing is announced again"


@pytest.mark.parametrize("back", [False, True])
def test_an_evaluator_in_between_takes_no_state_of_a_rule(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """Another evaluator moves one rule to the item of the group, after this one read the states."""
    pipeline.put_job()
    pipeline.put_step(0, num_nan=4)
    records = pipeline.receive()
    for rule in RULES[:2]:
        apart(pipeline, rule)
        assert not pipeline.invoke(records)
    pipeline.put_step(1)
    pipeline.deliver()
    group(pipeline, {rule: {} for rule in RULES[:2]})
    groups = pipeline.evaluate_rule._service().jobs.evaluation.states
    if back:
        apart(pipeline, RULES[1])
    table = DynamoStateTable if back else type(groups)
    load, key, others = table.load, StateKey(URI, RUN, JOB_RULES), [RULES[1]]

    def overtaken(*arguments: Any) -> Any:
        loaded = load(*arguments)
        while others:
            group = groups.load(key, [others.pop()])
            groups.save(group, {})
        return loaded

    pipeline.put_step(2)
    monkeypatch.setattr(table, "load", overtaken)
    pipeline.deliver()
    counts = {rule: state.counts.evaluated for rule, state in states().items()}
    assert counts == dict(zip(RULES, (1 if back else 3, 3), strict=False))
    assert set(statuses(pipeline).values()) == {1}, "nothing is announced again"


def test_a_rule_that_became_another_functions_is_left_to_that(grouped: Pipeline) -> None:
    own = {"RuleConfigurationName": "own", "RuleParameters": {"rule_to_invoke": "NonFinite"}}
    named = {"RuleConfigurationName": "NonFinite"}
    grouped.put_job(debug_rule_configurations=(own, named))
    grouped.put_step(0)
    grouped.deliver()
    of_group = states()["own"]
    own["RuleParameters"] = {"source_s3_uri": "s3://rules/own.py", "rule_to_invoke": "Own"}
    grouped.put_job(debug_rule_configurations=(own, named))
    grouped.patch.setenv(environment.CUSTOM_RULE_BUCKET, "rules")
    grouped.patch.setenv(environment.CUSTOM_RULES, json.dumps({"own.py": "0" * 64}))
    grouped.forget()
    grouped.put_step(1)
    grouped.deliver()
    found = states()
    assert found["own"] == of_group
    assert found["NonFinite"].counts.evaluated == 2
    stored = StoredState(StateKey(URI, RUN, "own"), of_group)
    DynamoStateTable(clients.dynamodb(), TABLE, lambda: time.time() - 90).save(stored, of_group)
    assert grouped.sweep() == 1
    grouped.deliver()
    assert sort_keys(grouped) == [JOB_RULES, "own"]


def test_what_an_old_function_still_writes_is_removed(grouped: Pipeline) -> None:
    """During an update, functions of both modes evaluate the same job for a while."""
    grouped.put_step(0)
    grouped.deliver()
    key, initial = StateKey(URI, RUN, "ExplodingTensor"), EvaluationState.initial()
    DynamoStateTable(clients.dynamodb(), TABLE).save(StoredState(key, initial), initial)
    grouped.grow_quiet(90)
    assert grouped.sweep() == 1
    grouped.deliver()
    assert sort_keys(grouped) == [JOB_RULES]


@pytest.mark.parametrize("has_job_rules", [False, True])
def test_a_rule_that_is_no_longer_deployed_is_an_error_and_the_others_go_on(
    grouped: Pipeline, has_job_rules: bool
) -> None:
    grouped.put_step(0)
    grouped.deliver()
    group(grouped, {rule: {} for rule in RULES[:2]})
    if not has_job_rules:
        grouped.patch.setenv(environment.DEPLOYED_RULES, "")
    grouped.put_step(1)
    grouped.deliver()
    found = states()
    assert found["NonFinite"].status is RuleStatus.ERROR
    assert "no longer deployed" in (found["NonFinite"].blocked_by or "")
    assert {found[rule].counts.evaluated for rule in RULES[:2]} == {2}


def test_a_rule_that_ends_the_process_twice_is_left_out(grouped: Pipeline) -> None:
    grouped.put_step(0)
    attempts = DynamoAttempts(clients.dynamodb(), TABLE, JOB_RULES)
    for _ in range(2):
        attempts.begin(URI, "NonFinite")
        attempts.begin(URI, "VanishingGradient", time.time() + 60)  # another process, alive
    (record,) = grouped.receive()
    record["attributes"]["ApproximateReceiveCount"] = "3"
    assert grouped.invoke([record]) == []
    found = states()
    assert found["NonFinite"].status is RuleStatus.ERROR
    assert "ended the process of its evaluator 2 times" in found["NonFinite"].reason
    assert found["ExplodingTensor"].counts.evaluated == 1
    assert found["VanishingGradient"].status is not RuleStatus.ERROR
    assert attempts.num_unfinished(URI, "ExplodingTensor") == 0


def test_writers_that_contend_retry_and_then_hand_the_record_back(
    grouped: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    for worker in range(8):
        grouped.put_step(0, worker=f"worker_{worker}", workers=8, sequence=1)
    service = grouped.evaluate_rule._service()
    table = service.jobs.evaluation.states
    save, refused = type(table).save, []

    def contended(self: Any, stored: Any, changes: Any) -> Any:
        if changes and len(refused) < 5:
            refused.append(1)
            raise GroupConflictError(self.stored(stored.key))
        return save(self, stored, changes)

    monkeypatch.setattr(type(table), "save", contended)
    monkeypatch.setattr("lambdas.evaluate_rule.run_evaluation._FIRST_PAUSE_S", 0.0)
    records = grouped.receive()
    assert grouped.invoke(records) == []
    assert {state.counts.evaluated for state in states().values()} <= {0, 1}
    assert states()["NonFinite"].counts.evaluated == 1


def test_what_another_evaluator_announced_is_not_written_again(grouped: Pipeline) -> None:
    table = grouped.evaluate_rule._service().jobs.evaluation.states
    key, initial = StateKey(URI, RUN, JOB_RULES), EvaluationState.initial()
    saved = table.save(
        table.load(key, ()), {"A": (StoredState(replace(key, rule="A"), initial), initial)}
    )
    first = table.mark_announced(saved, ["A"])
    assert table.mark_announced(saved, ["A"]) == first == table.stored(key)


def test_large_memories_of_a_group_are_objects(grouped: Pipeline) -> None:
    table = grouped.evaluate_rule._service().jobs.evaluation.states
    key = StateKey(URI, RUN, JOB_RULES)
    noise = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(2 * MAX_GROUP_BYTES // 64)]
    initial = EvaluationState.initial()
    changes = {
        rule: (
            StoredState(replace(key, rule=rule), initial),
            replace(initial, memory={"x": memory}),
        )
        for rule, memory in {"A": noise, "B": [1.0], "C": noise[:900]}.items()
    }
    saved = table.save(table.load(key, ()), changes)
    loaded = table.load(key, ())
    assert loaded == saved
    assert {rule: bool(stored.memory_object) for rule, stored in loaded.states.items()} == {
        "A": True, "B": False, "C": False,
    }  # fmt: skip
    assert loaded.states["A"].state.memory == {"x": noise}
    (name,) = [stored.memory_object for stored in loaded.states.values() if stored.memory_object]
    place: dict[str, Any] = {"Bucket": "tensors", "Key": ROOT + name}
    data = grouped.aws("s3").get_object(**place)["Body"].read()
    grouped.aws("s3").delete_object(**place)
    assert set(table.load(key, ()).lost) == {"A"}
    grouped.aws("s3").put_object(**place, Body=data)
    apart(grouped, "A")
    items, own = grouped.evaluate_rule._service().jobs.evaluation.states, replace(key, rule="A")
    items.save(items.load(own, ()), {})
    assert items.load(own, ()).states["A"].state.memory == {"x": noise}
    assert table.load(key, ()).states.keys() == {"B", "C"}


@pytest.mark.parametrize(
    "damage",
    [
        {"states": {"B": b"no zlib"}},
        {"version": {"S": "x"}},
        {"states": {"N": "1"}},
        {"states": None},
    ],
    ids=["states", "version", "type", "missing"],
)
def test_a_damaged_item_becomes_an_error_of_each_rule_once(
    grouped: Pipeline, damage: dict[str, Any]
) -> None:
    grouped.put_step(0)
    grouped.deliver()
    key = {"run": {"S": f"{URI}#{RUN}"}, "rule": {"S": JOB_RULES}}
    table = grouped.aws("dynamodb")
    item = table.get_item(TableName=TABLE, Key=key)["Item"]
    damaged = {name: value for name, value in {**item, **damage}.items() if value}
    table.put_item(TableName=TABLE, Item=damaged)
    groups = grouped.evaluate_rule._service().jobs.evaluation.states
    stale = groups.load(StateKey(URI, RUN, JOB_RULES), RULES)
    for step in (1, 2):
        grouped.put_step(step)
        grouped.deliver()
    assert {state.status for state in states().values()} == {RuleStatus.ERROR}
    assert all("is damaged" in (state.blocked_by or "") for state in states().values())
    assert {key: n for key, n in statuses(grouped).items() if key[1] == "Error"} == {
        (rule, "Error"): 1 for rule in RULES
    }
    with pytest.raises(GroupConflictError):  # of an evaluator that read the damaged item, too
        groups.save(stale, {})
