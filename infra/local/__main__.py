"""Deploy the stack on this machine and keep it running: `python -m infra.local`.

The stack of `cdk deploy`, with the context of cdk.json, runs in an emulator on this machine until
Ctrl-C. It evaluates, and stops, trainings that are started with the printed variables.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from infra.local.deployment import DeploymentError
from infra.local.hook_configuration import write_hook_configuration
from infra.local.target import LocalTarget
from infra.rule_settings import RuleCheckError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the target until it is interrupted; return the exit status."""
    options = _parser().parse_args(arguments)
    context = dict(item.split("=", 1) for item in options.context)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background job ignores the first
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="stepwatch-local-") as folder:
        sys.stderr.write("deploying on this machine ...\n")
        try:
            with LocalTarget(context, workdir=Path(folder)) as target:
                config = Path(folder) / "stepwatch.json"
                write_hook_configuration(target.client, f"s3://{target.tensor_bucket}", config)
                shown = (_described if options.json else _greeting)(target, config)
                sys.stdout.write(f"{shown}\n")
                sys.stdout.flush()
                signal.pause()
        except (DeploymentError, RuleCheckError) as error:
            sys.stderr.write(f"{error}\n")
            return 2
        except KeyboardInterrupt:
            sys.stderr.write("taken down\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.local", description=(__doc__ or "").partition("\n\n")[2]
    )
    parser.add_argument(
        "--context",
        "-c",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="CDK context that overrides cdk.json, e.g. stepwatch:stop_rules=NonFinite",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the variables as JSON, in one line"
    )
    return parser


def _environment(target: LocalTarget, config: Path) -> dict[str, str]:
    return {**target.environment(), "STEPWATCH_CONFIG": str(config)}


def _greeting(target: LocalTarget, config: Path) -> str:
    exports = (
        f"export {name}={shlex.quote(value)}"
        for name, value in _environment(target, config).items()
    )
    lines = [
        "# deployed; give these variables to a training, and to stepwatch:",
        *exports,
        "# the file configures a hook that saves what the deployed rules need; for example:",
        "#   TRAINING_JOB_NAME=my-job python -m hook_layer train.py",
        f"#   stepwatch status my-job --output-path s3://{target.tensor_bucket}",
        f"# logs of the functions: {target.workdir / 'logs'}    Ctrl-C takes it down",
    ]
    return "\n".join(lines)


def _described(target: LocalTarget, config: Path) -> str:
    return json.dumps(
        {
            "environment": _environment(target, config),
            "output_path": f"s3://{target.tensor_bucket}",
            "logs": str(target.workdir / "logs"),
        }
    )


if __name__ == "__main__":
    sys.exit(main())
