"""`stepwatch local up`: the deployed stack, for as long as somebody plays with it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from rule_runtime.engine.outcome import needs_more

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests" / "hook_layer" / "autopatch" / "scripts" / "torch_script.py"
STEPWATCH = Path(sys.executable).parent / "stepwatch"
STACK = "Stepwatch-dev"
RULES = ("NonFinite", "MissingGradient", "VanishingGradient")
"""Rules of gradients among them, which no hook saves unasked."""


def as_a_user(exports: list[str], line: str) -> subprocess.CompletedProcess[str]:
    """Type what was printed into a shell, about a script that is there."""
    return subprocess.run(
        ["bash", "-c", "".join(exports) + line.replace("train.py", str(SCRIPT))],
        env={**os.environ, "PATH": f"{STEPWATCH.parent}:{os.environ['PATH']}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_it_can_be_used_as_it_says_until_it_is_interrupted() -> None:
    context = [f"stepwatch:rules={','.join(RULES)}", "stepwatch:stop_rules=NonFinite"]
    options = [option for each in context for option in ("--context", each)]
    command = [str(STEPWATCH), "local", "up", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            printed: list[str] = []
            while not printed or "Ctrl-C" not in printed[-1]:
                printed.append(process.stdout.readline())
            exports = [line for line in printed if line.startswith("export ")]
            examples = [line for line in printed if line.startswith("#   ")]
            train, status = [line.removeprefix("#   ").strip() for line in examples]
            (place,) = re.findall(r"--output-path (\S+)", status)
            found = f"{place}/my-job/debug-output"
            asked = as_a_user(exports, f"stepwatch doctor {place} --stack {STACK} --output json")
            trained = as_a_user(exports, train)
            stored = as_a_user(exports, f"stepwatch tensors {found} --output json")
            known = as_a_user(exports, f"{status} --wait --output json")
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    assert trained.returncode == 0, trained.stderr
    assert "without a hook" not in trained.stderr
    assert "CrossEntropyLoss_output_0" in {each["tensor"] for each in json.loads(stored.stdout)}
    described = json.loads(known.stdout)
    assert described["TrainingJobStatus"] == "Completed", known.stderr
    rules = described["DebugRuleEvaluationStatuses"]
    assert {each["RuleConfigurationName"] for each in rules} == set(RULES)
    assert all(
        each["RuleEvaluationStatus"] == "NoIssuesFound" or needs_more(each["StatusDetails"])
        for each in rules
    ), "each had the tensors that it evaluates"
    assert asked.returncode == 0, asked.stdout
    told = {each["subject"]: each["told"] for each in json.loads(asked.stdout)}
    assert told[f"stack {STACK}"] == "CREATE_COMPLETE"
    assert told["events of the bucket"] == "go to EventBridge"
    assert told[f"bucket {place.removeprefix('s3://')}"] == "the stack watches it"
    assert told[f"{place}/"] == "an object was written, listed, read and removed"


def test_without_a_checkout_it_says_what_is_needed() -> None:
    code = (
        "import sys; sys.modules['infra'] = None; sys.argv[1:] = ['local', 'up']\n"
        "from rule_runtime.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "run this in a checkout" in done.stderr
