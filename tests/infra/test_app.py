"""The application: synthesis without network or account, and the gate of cdk-nag."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3

from infra import packaging
from infra.nag import acknowledge, attach_checks
from lambdas.contracts.environment import STOP_RULES

ROOT = Path(__file__).resolve().parents[2]


def run_app(*arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CDK_"))}
    command = [*prefix, sys.executable, "-m", "infra.app", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


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
    done = run_app("--output", str(tmp_path), prefix=without_network())
    assert done.returncode == 0, done.stderr
    template = json.loads((tmp_path / "Stepwatch.template.json").read_text())
    functions = [r for r in template["Resources"].values() if r["Type"] == "AWS::Lambda::Function"]
    assert {function["Properties"]["Architectures"][0] for function in functions} == {"arm64"}
    settings = json.loads((ROOT / "cdk.json").read_text())["context"]
    assert len(functions) == len(settings["stepwatch:rules"]) + 1
    stopping = [f["Properties"]["Environment"]["Variables"].get(STOP_RULES) for f in functions]
    assert [rules for rules in stopping if rules is not None] == ["ExplodingTensor"]
    layers = [path for path in tmp_path.iterdir() if (path / "python" / "numpy").exists()]
    assert len(layers) == 1


def test_mistakes_end_synthesis_with_one_message(tmp_path: Path) -> None:
    done = run_app("-c", "stepwatch:stagee=x", "-c", "stepwatch:batch_size=0", "-o", str(tmp_path))
    assert done.returncode == 1
    assert "infra: 2 mistakes in the settings" in done.stderr
    assert "Traceback" not in done.stderr


def test_rules_that_cannot_be_asked_end_synthesis(tmp_path: Path) -> None:
    """Without the rules' own dependencies nothing is taken for valid."""
    (tmp_path / "numpy.py").write_text("raise ImportError('no numpy here')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "infra.app", "-o", str(tmp_path / "out")]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("infra: the rules' parameters cannot be checked")
    assert "no numpy here" in done.stderr


def test_findings_of_cdk_nag_stop_synthesis(tmp_path: Path) -> None:
    app = cdk.App(outdir=str(tmp_path))
    attach_checks(app)
    bucket = s3.Bucket(cdk.Stack(app, "Open"), "Bucket", enforce_ssl=True)
    with pytest.raises(RuntimeError, match="server access logs disabled"):
        app.synth()
    acknowledge(bucket, "S1", reason="The test wants to see that this is enough.")
    app.synth(force=True)


def test_acknowledgements_are_specific_and_reasoned(assembly: Path) -> None:
    report = json.loads((assembly / "validation-report.json").read_text())
    (pack,) = report["pluginReports"]
    assert (pack["pluginName"], pack["conclusion"]) == ("AwsSolutions", "success")
    assert pack["violations"] == []
    reasons: dict[str, set[str]] = {}
    for accepted in pack["suppressedViolations"]:
        assert accepted["acknowledgedAt"].count("/") >= 2, "not on the whole stack"
        assert "*" not in accepted["acknowledgedId"].replace("/*", "")
        reasons.setdefault(accepted["reason"], set()).add(accepted["ruleName"])
        assert len(accepted["reason"]) > 40
    assert {len(rule_names) for rule_names in reasons.values()} == {1}
