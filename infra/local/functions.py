"""Reads deployed functions through the API, and unpacks them to folders."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ClientFactory", "DeployedFunction", "load_function", "pack_folder"]

ClientFactory = Callable[[str], Any]
"""Creates a boto3 client of the service with the given name."""


@dataclass(frozen=True)
class DeployedFunction:
    """Lambda's data about a function; `code` and `layers` are folders with unpacked files."""

    name: str
    arn: str
    handler: str
    timeout_s: int
    memory_mb: int
    environment: Mapping[str, str]
    code: Path
    layers: tuple[Path, ...]


def load_function(name: str, client: ClientFactory, folder: Path) -> DeployedFunction:
    """Read a function's configuration, and fetch its code and its layers.

    Archives are unpacked below `folder`, each once.

    Raises:
        ValueError: A layer's ARN is invalid.
    """
    functions = client("lambda")
    described = functions.get_function(FunctionName=name)
    configuration = described["Configuration"]
    code = _fetch(client, described["Code"]["Location"], configuration["CodeSha256"], folder)
    layers = []
    for layer in configuration.get("Layers", []):
        layer_arn, _, version = layer["Arn"].rpartition(":")
        content = functions.get_layer_version(LayerName=layer_arn, VersionNumber=int(version))[
            "Content"
        ]
        layers.append(_fetch(client, content["Location"], content["CodeSha256"], folder))
    return DeployedFunction(
        name=configuration["FunctionName"],
        arn=configuration["FunctionArn"],
        handler=configuration["Handler"],
        timeout_s=int(configuration["Timeout"]),
        memory_mb=int(configuration["MemorySize"]),
        environment=configuration.get("Environment", {}).get("Variables", {}),
        code=code,
        layers=tuple(layers),
    )


def pack_folder(folder: Path) -> bytes:
    """Return a ZIP archive of a folder's files, for Lambda."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder).as_posix())
    return buffer.getvalue()


def _fetch(client: ClientFactory, location: str, digest: str, folder: Path) -> Path:
    target = folder / "".join(c if c.isalnum() else "_" for c in digest)
    if not target.exists():
        bucket, _, key = location.removeprefix("s3://").partition("/")
        body = client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        folder.mkdir(parents=True, exist_ok=True)
        unpacked = Path(tempfile.mkdtemp(dir=folder))  # the poller may be killed meanwhile
        zipfile.ZipFile(io.BytesIO(body)).extractall(unpacked)
        unpacked.rename(target)
    return target
