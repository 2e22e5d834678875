"""The application: synthesis without network or account, and the gate of cdk-nag."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from cfnlint.api import ManualArgs, lint

from infra import app as application
from infra import packaging
from infra.config import BOUNDARY, StepwatchConfig
from infra.nag import acknowledge, attach_checks
from lambdas.contracts.environment import RULE_CONFIGURATION_NAME, STOP_RULES, STOP_SEVERITY
from lambdas.contracts.events import JOB_RULES
from rule_runtime.configuration.packs import PACKS
from tests.infra.synthesis import assembly_of, template_of

ROOT = Path(__file__).resolve().parents[2]


def without_network() -> tuple[str, ...]:
    prefix = ("unshare", "--map-root-user", "--net")
    if not shutil.which("unshare"):
        pytest.skip("unshare is not installed")
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"unshare is not permitted: {tried.stderr.strip()}")
    return prefix


def test_deployable_assembly_needs_no_network_and_no_account(tmp_path: Path) -> None:
    packaging.prepare_wheels("arm64")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CDK_"))}
    done = subprocess.run(
        [*without_network(), sys.executable, "-m", "infra.app", "--output", str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    template = json.loads((tmp_path / "Stepwatch.template.json").read_text())
    functions = [r for r in template["Resources"].values() if r["Type"] == "AWS::Lambda::Function"]
    assert {function["Properties"]["Architectures"][0] for function in functions} == {"arm64"}
    variables = [function["Properties"]["Environment"]["Variables"] for function in functions]
    recommended = PACKS["recommended"]
    rules = [
        reported[RULE_CONFIGURATION_NAME]
        for reported in variables
        if RULE_CONFIGURATION_NAME in reported
    ]
    assert sorted(rules) == sorted([*recommended.parameters, JOB_RULES])
    (stopping,) = [reported for reported in variables if STOP_RULES in reported]
    assert (stopping[STOP_RULES], stopping[STOP_SEVERITY]) == ("", "fatal")
    reported = done.stderr.splitlines()
    assert (
        "infra: who can be stopped: only jobs that opted in, by StopTraining in job.json or by the "
        "tag stepwatch:debug-output (stepwatch:stop_policy = opt_in)"
    ) in reported
    assert (
        "infra: a fatal finding of any rule stops them: stepwatch:stop_rules names none; a job may "
        "ask for a stop by rules of its own"
    ) in reported
    assert any(line.startswith("infra: nobody is notified; ") for line in reported)
    assert re.search(
        r"infra: layer \d+\.\d MiB of 250 \(\d+\.\d MiB zipped\), import of an evaluator \d",
        done.stderr,
    )
    layers = [path for path in tmp_path.iterdir() if (path / "python" / "numpy").exists()]
    assert len(layers) == 1


def test_buckets_of_others_are_pointed_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = ["-c", "stepwatch:tensor_buckets=theirs,ours", "-c", "stepwatch:rules=NonFinite"]
    application.main([*context, "--without-wheels", "-o", str(tmp_path)])
    printed = capsys.readouterr().err
    assert "must send their events: .venv/bin/python -m infra.event_buckets theirs ours" in printed
    assert "layer" not in printed, "the local layer is not the one that is uploaded"
    resources = json.loads((tmp_path / "Stepwatch.template.json").read_text())["Resources"]
    roles = sum(resource["Type"] == "AWS::IAM::Role" for resource in resources.values())
    assert f"{tmp_path}: {len(resources)} resources of at most 500, among them" in printed
    assert f", {roles} roles, " in printed
    assert "infra: a finding of any rule stops them: stepwatch:stop_rules names none" in printed


ANY_RULE = "a finding of any rule stops them: stepwatch:stop_rules names none"


@pytest.mark.parametrize(
    ("settings", "who", "why"),
    [
        (
            {"stop_policy": "all"},
            "ALL SageMaker training jobs of the account and Region, unless they opted out",
            [f"{ANY_RULE}; a job may ask for a stop by rules of its own"],
        ),
        (
            {"stop_policy": "watched", "stop_min_rules": 2, "per_job_rules": False},
            "all jobs that write to a watched bucket, unless they opted out",
            [f"{ANY_RULE}; 2 rules must agree"],
        ),
        (
            {"stop_policy": "opt_in", "stop_tag": "mine", "per_job_rules": False},
            "only jobs that opted in, by StopTraining in job.json or by the tag mine",
            [ANY_RULE],
        ),
        ({"stop_policy": "observe"}, "no job", []),
    ],
)
def test_it_is_said_who_can_be_stopped(settings: dict[str, Any], who: str, why: list[str]) -> None:
    given = {"rules": ["NonFinite", "LossSpike"], "stage": "prod", "alert_emails": "a@example.com"}
    context = {f"stepwatch:{key}": value for key, value in {**given, **settings}.items()}
    lines = application._summary(StepwatchConfig.from_context(context))
    setting = f"stepwatch:stop_policy = {settings['stop_policy']}"
    assert lines[:-1] == [f"who can be stopped: {who} ({setting})", *why]
    assert lines[-1] == "the data of the stack outlives its deletion: stepwatch:data_retention"


def test_a_boundary_and_a_qualifier_of_the_project_reach_every_role() -> None:
    settings = {
        "stepwatch:rules": ["NonFinite"],
        BOUNDARY: {"name": "TeamBoundary"},
        "@aws-cdk/core:bootstrapQualifier": "team",
    }
    template, assembly = template_of(settings), assembly_of(settings)
    roles = [r for r in template["Resources"].values() if r["Type"] == "AWS::IAM::Role"]
    assert len(roles) > 4
    assert all("TeamBoundary" in str(r["Properties"]["PermissionsBoundary"]) for r in roles)
    manifest = json.loads((assembly / "manifest.json").read_text())
    role = manifest["artifacts"]["Stepwatch"]["properties"]["cloudFormationExecutionRoleArn"]
    assert "cdk-team-cfn-exec-role" in role


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ('{"context": {\n  "stepwatch:stage": "dev",\n}}', "is not valid JSON: line 3, column 1: "),
        ('{"app": "python"}', 'must be an object with an object "context"'),
        ('{"context": 3}', 'must be an object with an object "context"'),
        ("[]", 'must be an object with an object "context"'),
    ],
)
def test_a_broken_cdk_json_is_reported_in_one_line(
    text: str, reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cdk.json").write_text(text)
    monkeypatch.setattr(application, "ROOT", tmp_path)
    with pytest.raises(SystemExit) as ended:
        application.main([])
    assert str(ended.value).startswith(f"infra: {tmp_path / 'cdk.json'} {reported}")


def test_tags_of_the_stack_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = {
        "tags": [{"Key": "aws:team", "Value": "ml"}],
        "context": {"stepwatch:rules": ["NonFinite"]},
    }
    (tmp_path / "cdk.json").write_text(json.dumps(project))
    monkeypatch.setattr(application, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="tags: Key = 'aws:team': allowed: "):
        application.main(["-o", str(tmp_path / "out"), "--without-wheels"])


@pytest.mark.parametrize("module", ["app", "redrive", "event_buckets", "local", "packaging"])
def test_an_interpreter_without_the_packages_names_the_one_that_has_them(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", f"infra.{module}"],  # without any installed package
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "infra needs aws_cdk and boto3. Run `make synth`" in done.stderr
    assert "use .venv/bin/python" in done.stderr
    assert "Traceback" not in done.stderr


def test_mistakes_end_synthesis_with_one_message(tmp_path: Path) -> None:
    settings = ["-c", "stepwatch:stagee=x", "-c", "stepwatch:batch_size=0"]
    with pytest.raises(SystemExit, match=r"^infra: 2 mistakes in the settings"):
        application.main([*settings, "-o", str(tmp_path)])


def test_rules_that_cannot_be_asked_end_synthesis(tmp_path: Path) -> None:
    """Without the rules' own dependencies nothing is taken for valid."""
    (tmp_path / "numpy.py").write_text("raise ImportError('no numpy here')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "infra.app", "-o", str(tmp_path / "out")]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("infra: the parameters of the rules cannot be checked")
    assert "no numpy here" in done.stderr


def test_findings_of_cdk_nag_stop_synthesis(tmp_path: Path) -> None:
    app = cdk.App(outdir=str(tmp_path))
    attach_checks(app)
    bucket = s3.Bucket(cdk.Stack(app, "Open"), "Bucket", enforce_ssl=True)
    with pytest.raises(RuntimeError, match="server access logs disabled"):
        app.synth()
    acknowledge(bucket, "S1", reason="The test wants to see that this is enough.")
    app.synth(force=True)


def test_the_template_is_what_cloudformation_takes(
    template: dict[str, Any], full_template: dict[str, Any], frugal_template: dict[str, Any]
) -> None:
    for found in (template, full_template, frugal_template):
        matches = lint(
            json.dumps(found),
            regions=["us-east-1", "eu-central-1", "us-gov-west-1"],
            # CDK names the role's policies as dependencies, and the role beside them.
            config=ManualArgs(ignore_checks=["W3005"]),
        )
        assert [str(match) for match in matches] == []


def test_the_default_leaves_room_in_a_stack(default_template: dict[str, Any]) -> None:
    """A stack holds 500 resources; a rule takes eight."""
    of_a_rule = [n for n in default_template["Resources"] if n.startswith("RuleNonFinite")]
    assert len(of_a_rule) == 8
    assert len(default_template["Resources"]) + 14 * len(of_a_rule) < 500


def test_more_rules_than_a_stack_holds_are_refused(tmp_path: Path) -> None:
    rules = {f"Rule{number}": {"rule_to_invoke": "NonFinite"} for number in range(52)}
    with pytest.raises(SystemExit, match=r"has 5\d\d resources, and CloudFormation allows 500: d"):
        application.main(
            ["--without-wheels", "-o", str(tmp_path), "-c", f"stepwatch:rules={json.dumps(rules)}"]
        )


def test_acknowledgements_are_specific_and_reasoned(assembly: Path) -> None:
    report = json.loads((assembly / "validation-report.json").read_text())
    (pack,) = report["pluginReports"]
    assert (pack["pluginName"], pack["conclusion"]) == ("AwsSolutions", "success")
    assert pack["violations"] == []
    reasons: dict[str, set[str]] = {}
    for accepted in pack["suppressedViolations"]:
        assert accepted["acknowledgedAt"].count("/") >= 2, "not on the whole stack"
        assert "*" not in accepted["acknowledgedId"].replace("/*", "").replace("-*]", "")
        reasons.setdefault(accepted["reason"], set()).add(accepted["ruleName"])
        assert len(accepted["reason"]) > 40
    assert {len(rule_names) for rule_names in reasons.values()} == {1}
