"""Synthesizes the application, uploads its assets and creates the stack in the emulator."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from infra.build_folder import BUILD, publish, reuse
from infra.local.functions import ClientFactory, pack_folder
from infra.local.service_environment import ACCOUNT_ID, REGION

__all__ = ["DeploymentError", "deploy", "synthesise"]

ROOT = Path(__file__).resolve().parent.parent.parent
ASSEMBLIES = BUILD / "assemblies"
SOURCES = ("hook_layer", "infra", "lambdas", "rule_runtime", "stepwatch")
STACK_TIMEOUT_S = 60


class DeploymentError(RuntimeError):
    """The stack could not be synthesized or created; the message says why."""


def synthesise(context: Mapping[str, Any]) -> Path:
    """Return the folder of the assembly for a context; cached until a source changes.

    Its layer has no third-party packages; the functions use those of this interpreter.

    Raises:
        DeploymentError: With the application's own message.
    """
    folder = ASSEMBLIES / _digest(context)
    if reuse(folder):
        return folder
    ASSEMBLIES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ASSEMBLIES) as temporary:
        made = Path(temporary) / "assembly"
        command = [sys.executable, "-m", "infra.app", "--without-wheels", "--output", str(made)]
        for key, value in context.items():
            text = value if isinstance(value, str) else json.dumps(value)
            command += ["--context", f"{key}={text}"]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CDK_"))}
        done = subprocess.run(  # noqa: S603
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise DeploymentError(f"synthesis failed:\n{done.stderr.strip()}")
        publish(made, folder)
    return folder


def deploy(
    assembly: Path, client: ClientFactory, on_progress: Callable[[str], object] = lambda _: None
) -> dict[str, str]:
    """Create the stack of an assembly, like `cdk deploy`, and return its outputs.

    Calls `on_progress` with a line about each part when it begins.

    Raises:
        DeploymentError: The stack cannot be created.
    """
    manifest = json.loads((assembly / "manifest.json").read_text(encoding="utf-8"))
    stacks = {
        name: artifact
        for name, artifact in manifest["artifacts"].items()
        if artifact["type"] == "aws:cloudformation:stack"
    }
    if len(stacks) != 1:
        raise DeploymentError(f"{assembly} must hold one stack, not {len(stacks)}")
    (name, stack), *_ = stacks.items()
    on_progress("uploading the code of the functions")
    _upload_assets(assembly, assembly / f"{name}.assets.json", client)
    template = (assembly / stack["properties"]["templateFile"]).read_text(encoding="utf-8")
    stack_name = stack["properties"].get("stackName", name)
    formation = client("cloudformation")
    on_progress(f"creating the stack {stack_name}")
    formation.create_stack(
        StackName=stack_name,
        TemplateBody=template,
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
    )
    described = _wait_until_created(formation, stack_name)
    return {output["OutputKey"]: output["OutputValue"] for output in described["Outputs"]}


def _wait_until_created(formation: Any, stack_name: str) -> dict[str, Any]:
    ends = time.monotonic() + STACK_TIMEOUT_S
    while True:
        described: dict[str, Any] = formation.describe_stacks(StackName=stack_name)["Stacks"][0]
        status = described["StackStatus"]
        if status == "CREATE_COMPLETE":
            return described
        if status != "CREATE_IN_PROGRESS" or time.monotonic() > ends:
            reason = described.get("StackStatusReason", "no reason given")
            raise DeploymentError(f"stack {stack_name} is {status}: {reason}")
        time.sleep(0.05)


def _upload_assets(assembly: Path, manifest: Path, client: ClientFactory) -> None:
    s3 = client("s3")
    files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
    buckets: set[str] = set()
    for asset in files.values():
        source = assembly / asset["source"]["path"]
        body = pack_folder(source) if asset["source"]["packaging"] == "zip" else source.read_bytes()
        for destination in asset["destinations"].values():
            bucket = _resolve(destination["bucketName"])
            if bucket not in buckets:
                s3.create_bucket(Bucket=bucket)
                buckets.add(bucket)
            s3.put_object(Bucket=bucket, Key=_resolve(destination["objectKey"]), Body=body)


def _resolve(text: str) -> str:
    values = {"AWS::AccountId": ACCOUNT_ID, "AWS::Region": REGION, "AWS::Partition": "aws"}
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def _digest(context: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(context, sort_keys=True).encode())
    files = [ROOT / "cdk.json", ROOT / "constraints.txt"]
    for folder in SOURCES:
        files += sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in {".py", ".json"})
    for path in files:
        digest.update(f"{path.relative_to(ROOT)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]
