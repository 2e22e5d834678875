"""Runs or checks the commands of the README and of every page, in the order of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hook_layer.frameworks import FRAMEWORKS, TORCH, XGBOOST
from lambdas.contracts import events
from tests.docs.page_blocks import ROOT, Block, Command, blocks_of, pages
from tests.docs.shown_commands import check, parse
from tests.rule_runtime.jobs.conftest import Account, account

__all__ = ["account"]

CHECKED_BELOW = {
    "findings.json",
    "findings.py",
    "my_rule.py",
    "overdue.json",
    "pattern.json",
    "pyproject.toml",
    "quiet_pack.py",
    "stepwatch.json",
    "summaries.json",
    "tensors.json",
    "training.yml",
}
"""Files that no command of their page uses, which other tests check."""
OTHER_FRAMEWORKS = {
    f"tutorials/{each.extra}.md" for each in FRAMEWORKS if each not in (TORCH, XGBOOST)
}
"""Pages whose Python is run by `tests/frameworks`, in the environment of the framework."""
OF_THE_REPOSITORY = ("../README.md", "../CONTRIBUTING.md")
PAGES = [page for page in (*OF_THE_REPOSITORY, *pages()) if blocks_of(page)]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_works(
    page: str, tmp_path: Path, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, Any] = {}
    used = set(CHECKED_BELOW)
    blocks = blocks_of(page)
    printed = ""
    for block in blocks:
        if block.title:
            (tmp_path / block.title).write_text(block.text)
        elif block.language == "python" and page in OTHER_FRAMEWORKS:
            continue
        elif block.language == "python":
            exec(compile(block.text, f"docs/{page}", "exec"), names)
        elif block.language == "text":
            assert " ".join(block.text.split()) in " ".join(printed.split())
        else:
            assert block.language == "sh", f"{page}: nobody checks {block.language!r} blocks"
            for command in block.commands():
                printed = check(command, tmp_path)
                used |= set(command.line.replace("file://", " ").replace(":", " ").split())
    assert {block.title for block in blocks if block.title} <= used


def titled(page: str) -> Mapping[str, str]:
    return {block.title: block.text for block in blocks_of(page) if block.title}


def test_the_patterns_of_events_are_those_of_the_functions() -> None:
    shown = {
        name: json.loads(text)
        for name, text in titled("reference/events.md").items()
        if ".json" in name
    }
    findings = shown.pop("findings.json")
    wanted = events.issues_found_pattern()
    assert {key: sorted(findings.pop(key)) for key in ("source", "detail-type")} == {
        key: sorted(wanted.pop(key)) for key in ("source", "detail-type")
    }
    assert findings == wanted
    assert shown.pop("summaries.json") == events.job_summary_pattern()
    assert shown.pop("overdue.json") == events.stop_overdue_pattern()
    assert shown.pop("tensors.json") == events.tensor_object_pattern(["<TensorBucketName>"])
    assert not shown


def test_the_function_that_gets_findings_tells_them() -> None:
    names: dict[str, Any] = {}
    exec(
        compile(titled("reference/events.md")["findings.py"], "docs/reference/events.md", "exec"),
        names,
    )
    folder = ROOT / "lambdas" / "contracts" / "test_events"
    ours = json.loads((folder / "notify.json").read_text())
    native = {"detail": json.loads((folder / "stop_job.json").read_text())}
    job = "mnist-7: NonFinite at step"
    (reported,) = names["lambda_handler"](ours, None)
    assert reported == f"{job} 500: gradient/conv.weight: 3 of 4 elements are NaN"
    (reported,) = names["lambda_handler"](native, None)  # without evidence
    assert reported.startswith(f"{job} None: RuleEvaluationConditionMet")


def test_the_workflow_for_continuous_integration(tmp_path: Path) -> None:
    workflow = titled("how-to/continuous-integration.md")["training.yml"]
    commands = re.findall(r"- run: (.+)", workflow)
    assert len(commands) == 4
    for command in commands[:2]:
        check(Command(command), tmp_path)
    for command in commands[2:]:
        parse(command.split()[1:])


class TestABadPage:
    """What is wrong on a page would be found."""

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("curl https://example.org", "there is no way to check"),
            ("pip install '.[nothing]'", "nothing"),
            ("pip install 'stepwatch[torch]'", "install from a checkout"),
            ("git clone https://example.org/x && cd x", "git clone"),
            ("make nothing", "make nothing"),
            ("npx aws-cdk@1.0.0 deploy", "aws-cdk@1.0.0"),
            ("npx aws-cdk@2.1148.1 deploy -c stepwatch:stop_polcy=observe", "stop_polcy"),
            ("aws events put-rule --nme x", "there is no --nme"),
            ("stepwatch evaluate s3://bucket/x --nothing", "--nothing"),
            ("stepwatch status x --output-path", "requires"),
            ("python nothing.py", "nothing.py"),
            ("python -m pytest tests/nothing", "tests/nothing"),
            ("python -m tools.nothing", "nothing"),
        ],
    )
    def test_a_command(self, line: str, reason: str, tmp_path: Path) -> None:
        with pytest.raises(Exception, match=reason):
            check(Command(line), tmp_path)

    def test_an_exit_status(self, tmp_path: Path) -> None:
        block = Block("x.md", "sh", "", "python -c 'raise SystemExit(3)'  # exit status 3\n")
        (command,) = block.commands()
        check(command, tmp_path)
        with pytest.raises(AssertionError):
            check(Command(command.line), tmp_path)
