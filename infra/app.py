"""The CDK application: `python -m infra.app` writes the deployable assembly into cdk.out.

CDK's command runs this file as cdk.json says and hands its context over. Without the command,
settings come from cdk.json and from `-c key=value`, in the same form. Synthesis calls nothing
outside this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from infra.config import ConfigurationError, StepwatchConfig
from infra.measurement import ImportTimeError, summary
from infra.nag import attach_checks
from infra.packaging import PackagingError
from infra.rule_settings import RuleCheckError
from infra.stacks.stepwatch_stack import StepwatchStack

__all__ = ["build_app", "main", "project_context"]

ROOT = Path(__file__).resolve().parent.parent


def project_context() -> dict[str, Any]:
    """Return the context of cdk.json."""
    settings = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))
    return dict(settings["context"])


def build_app(
    context: Mapping[str, Any], outdir: Path, *, with_wheels: bool = True
) -> tuple[cdk.App, StepwatchStack]:
    """Build the application, with cdk-nag attached.

    Args:
        context: Context, over which what CDK's command hands over wins.
        outdir: Folder of the assembly.
        with_wheels: Whether the layer holds third-party packages, which Lambda needs.

    Raises:
        ConfigurationError: If the settings hold mistakes.
        RuleCheckError: If the rules cannot be asked about their parameters.
        PackagingError: If the layer's packages are missing.
    """
    app = cdk.App(context=dict(context), outdir=str(outdir), analytics_reporting=False)
    config = StepwatchConfig.from_context(app.node.get_all_context())
    attach_checks(app)
    stack = StepwatchStack(
        app,
        "Stepwatch",
        config=config,
        with_wheels=with_wheels,
        description="Watches training jobs step by step, and stops those that go wrong",
        synthesizer=cdk.DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
    )
    return app, stack


def main(arguments: list[str] | None = None) -> None:
    """Synthesise the application; mistakes in the settings end it with a message."""
    parser = argparse.ArgumentParser(prog="python -m infra.app", description=main.__doc__)
    parser.add_argument("-c", "--context", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("-o", "--output", type=Path, help="default: cdk.out")
    parser.add_argument(
        "--without-wheels",
        action="store_true",
        help="leave third-party packages out of the layer: for the local target, not for Lambda",
    )
    options = parser.parse_args(arguments)
    context = project_context()
    for assignment in options.context:
        key, _, value = assignment.partition("=")
        context[key] = value
    outdir = options.output or Path(os.environ.get("CDK_OUTDIR", ROOT / "cdk.out"))
    try:
        app, stack = build_app(context, outdir, with_wheels=not options.without_wheels)
    except (ConfigurationError, RuleCheckError, PackagingError) as error:
        sys.exit(f"infra: {error}")
    try:
        app.synth()
    except RuntimeError as error:  # all that jsii lets through of CDK's own error
        sys.exit(f"infra: {error}")
    print(f"infra: {stack.stack_name} is in {outdir}", file=sys.stderr)  # noqa: T201
    if stack.config.tensor_buckets:
        names = " ".join(stack.config.tensor_buckets)
        hint = f"these buckets must send their events: python -m infra.event_buckets {names}"
        print(f"infra: {hint}", file=sys.stderr)  # noqa: T201
    if not options.without_wheels:
        try:
            print(f"infra: {summary(stack.layer_folder)}", file=sys.stderr)  # noqa: T201
        except ImportTimeError as error:
            sys.exit(f"infra: {error}")


if __name__ == "__main__":
    main()
