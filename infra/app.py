"""The CDK application: `python -m infra.app` writes the deployable assembly into cdk.out.

CDK's command runs this file, as configured in cdk.json, and passes its context. Without the
command, settings come from cdk.json and from `-c key=value`, in the same form. Synthesis makes no
network requests.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from infra.config import PREFIX, ConfigurationError, StepwatchConfig
from infra.constructs.trust import bucket_statement
from infra.measurement import ImportTimeError, summary
from infra.nag import attach_checks
from infra.packaging import PackagingError
from infra.rule_settings import RuleCheckError
from infra.stacks.stepwatch_stack import StepwatchStack
from lambdas.contracts.stopping import ALL, ANY, OBSERVE, OPT_IN, WATCHED

__all__ = ["build_app", "main", "project_context"]

ROOT = Path(__file__).resolve().parent.parent

MAX_RESOURCES = 500
"""CloudFormation's limit for a stack."""
COUNTED = {
    "AWS::Lambda::Function": "functions",
    "AWS::IAM::Role": "roles",
    "AWS::SQS::Queue": "queues",
    "AWS::CloudWatch::Alarm": "alarms",
}
"""Resource types whose number synthesis prints, with their names in the text."""


def project_context() -> dict[str, Any]:
    """Return the context of cdk.json; exit with a message if the file is missing."""
    return _project()[0]


def _project() -> tuple[dict[str, Any], object]:
    """Return the context of cdk.json, and the optional tags of the stack."""
    path = ROOT / "cdk.json"
    try:
        project = json.loads(path.read_text(encoding="utf-8"))
        return dict(project["context"]), project.get("tags")
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        sys.exit(f"infra: {path} is not valid JSON: {where}: {error.msg}")
    except (KeyError, TypeError, ValueError):
        sys.exit(f'infra: {path} must be an object with an object "context", the settings')


def build_app(
    context: Mapping[str, Any], outdir: Path, *, with_wheels: bool = True, tags: object = None
) -> tuple[cdk.App, StepwatchStack]:
    """Build the application, with cdk-nag attached.

    The context of CDK's command overrides `context`. `tags` are the stack's tags in cdk.json, which
    are only checked: CDK's command sets them.

    Raises:
        ConfigurationError: The settings have mistakes.
        RuleCheckError: The parameters of the rules cannot be checked.
        PackagingError: The layer's packages are missing.
    """
    app = cdk.App(context=dict(context), outdir=str(outdir), analytics_reporting=False)
    config = StepwatchConfig.from_context(app.node.get_all_context(), tags)
    attach_checks(app)
    stack = StepwatchStack(
        app,
        "Stepwatch",
        config=config,
        with_wheels=with_wheels,
        description="Watches training jobs step by step, and reports those that go wrong",
        synthesizer=cdk.DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
    )
    return app, stack


def _size(outdir: Path, stack: cdk.Stack) -> str:
    """Return the size of a template and its numbers of resources, for reviewers."""
    resources = json.loads((outdir / stack.template_file).read_text(encoding="utf-8"))["Resources"]
    types = Counter(resource["Type"] for resource in resources.values())
    told = [f"{types[kind]} {name}" for kind, name in COUNTED.items()]
    return f"{len(resources)} resources of at most {MAX_RESOURCES}, among them {', '.join(told)}"


def _too_large(num_resources: str) -> str:
    """Return what to do if a stack has too many resources."""
    return (
        f"the stack has {num_resources} resources, and CloudFormation allows {MAX_RESOURCES}: "
        f"deploy some of the rules under another {PREFIX}stage"
    )


def _who_is_stopped(config: StepwatchConfig) -> str:
    """Return which jobs may be stopped."""
    tag, setting = config.stop_tag, f"{PREFIX}stop_policy = {config.stop_policy}"
    who = {
        OBSERVE: "no job",
        OPT_IN: f"only jobs that opted in, by StopTraining in job.json or by the tag {tag}",
        WATCHED: "all jobs that write to a watched bucket, unless they opted out",
        ALL: "ALL SageMaker training jobs of the account and Region, unless they opted out",
    }
    return f"who can be stopped: {who[config.stop_policy]} ({setting})"


def _what_stops(config: StepwatchConfig) -> str:
    """Return which findings stop these jobs; a list of rules alone does not show it."""
    observed, also = config.stop_observed_rules, ""
    if config.stop_min_rules > 1:
        also = f"; {config.stop_min_rules} rules must agree"
    if config.per_job_rules:
        also += "; a job may ask for a stop by rules of its own"
    finding = "finding" if config.stop_severity == ANY else f"{config.stop_severity} finding"
    if not config.stop_rules:
        but = f", but not of {', '.join(observed)}" if observed else ""
        return f"a {finding} of any rule stops them{but}: {PREFIX}stop_rules names none{also}"
    stopping = [name for name in config.stop_rules if name not in observed]
    return f"{finding}s of these rules stop them: {', '.join(stopping) or 'none'}{also}"


def _summary(config: StepwatchConfig) -> list[str]:
    """Return a summary for deployers, in several lines."""
    lines = [_who_is_stopped(config)]
    if config.stop_policy != OBSERVE:
        lines.append(_what_stops(config))
    if not config.alert_emails:
        lines.append(f"nobody is notified; set {PREFIX}alert_emails, or subscribe to the topic")
    fate = "outlives its deletion" if config.retains_data else "is deleted with it"
    lines.append(f"the data of the stack {fate}: {PREFIX}data_retention")
    if config.tensor_buckets:
        command = f".venv/bin/python -m infra.event_buckets {' '.join(config.tensor_buckets)}"
        lines.append(f"these buckets must send their events: {command}")
        lines += [
            f"add to the policy of {bucket}, so that others cannot write verdicts: "
            + bucket_statement(bucket)
            for bucket in config.tensor_buckets
        ]
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Synthesize the application; exit with a message if the settings have mistakes."""
    parser = argparse.ArgumentParser(prog="python -m infra.app", description=main.__doc__)
    parser.add_argument("-c", "--context", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("-o", "--output", type=Path, help="default: cdk.out")
    parser.add_argument(
        "--without-wheels",
        action="store_true",
        help="leave third-party packages out of the layer: for the local target, not for Lambda",
    )
    options = parser.parse_args(arguments)
    context, tags = _project()
    for assignment in options.context:
        key, _, value = assignment.partition("=")
        context[key] = value
    outdir = options.output or Path(os.environ.get("CDK_OUTDIR", ROOT / "cdk.out"))
    try:
        with_wheels = not options.without_wheels
        app, stack = build_app(context, outdir, with_wheels=with_wheels, tags=tags)
    except (ConfigurationError, RuleCheckError, PackagingError) as error:
        sys.exit(f"infra: {error}")
    try:
        app.synth()
    except RuntimeError as error:  # jsii raises this for CDK's own errors
        found = re.search(r"Number of resources in stack .*?: (\d+) is greater", str(error))
        sys.exit(f"infra: {_too_large(found[1]) if found else error}")
    print(f"infra: {stack.stack_name} is in {outdir}: {_size(outdir, stack)}", file=sys.stderr)  # noqa: T201
    for line in _summary(stack.config):
        print(f"infra: {line}", file=sys.stderr)  # noqa: T201
    if not options.without_wheels:
        try:
            print(f"infra: {summary(stack.layer_folder)}", file=sys.stderr)  # noqa: T201
        except ImportTimeError as error:
            sys.exit(f"infra: {error}")


if __name__ == "__main__":
    main()
