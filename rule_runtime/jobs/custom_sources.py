"""Uploads local files of custom rules to where the deployment runs them.

A deployment runs only files that its deployer pinned by SHA-256. So a local file is uploaded only
if it is pinned, to the pinned key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hook_layer.storage.base import ObjectNotFoundError
from rule_runtime.custom_rules.loader import MAX_SOURCE_BYTES

if TYPE_CHECKING:
    from rule_runtime.configuration.debug_rule import Rule
    from rule_runtime.jobs.aws import Aws
    from rule_runtime.jobs.deployment import CustomRuleFiles, Deployment

__all__ = ["with_placed_sources"]


def with_placed_sources(
    rules: Sequence[Rule], deployment: Deployment | None, aws: Aws
) -> tuple[Rule, ...]:
    """Return the rules with sources that the evaluators can run.

    Args:
        rules: The rules; deployed rules and files in S3 stay unchanged.
        deployment: The deployment; asked only if a rule has a local file. None for a local job,
            whose files get absolute paths.
        aws: The account.

    Raises:
        ValueError: A file does not exist, or the deployment does not run it.
        DeploymentError: There is no deployment, or you may not describe it.
        StorageError: A file cannot be uploaded.
    """
    return tuple(_placed(rule, deployment, aws) for rule in rules)


def _placed(rule: Rule, deployment: Deployment | None, aws: Aws) -> Rule:
    if not rule.source or "://" in rule.source:
        return rule
    path = _existing(rule, rule.source)
    if deployment is None:
        return rule.with_source(str(path))
    return _uploaded(rule, path, deployment.custom_rules, aws)


def _existing(rule: Rule, source: str) -> Path:
    path = Path(source).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"rule {rule.name!r}: source={source!r} is not a local file")
    return path


def _uploaded(rule: Rule, path: Path, files: CustomRuleFiles, aws: Aws) -> Rule:
    if path.stat().st_size > MAX_SOURCE_BYTES:
        raise ValueError(
            f"rule {rule.name!r}: {path} has {path.stat().st_size} bytes; a rule's file may have "
            f"{MAX_SOURCE_BYTES}"
        )
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    keys = [key for key, sha256 in files.sha256_by_key.items() if sha256.lower() == digest]
    if not keys:
        raise ValueError(_not_pinned(rule, path, digest, files))
    key = next((key for key in keys if key.rpartition("/")[2] == path.name), keys[0])
    store = aws.open_store(files.uri(""))
    try:
        is_there = store.get(key, 0, MAX_SOURCE_BYTES + 1) == data
    except ObjectNotFoundError:
        is_there = False
    if not is_there:
        store.put(key, data)
    return rule.with_source(files.uri(key))


def _not_pinned(rule: Rule, path: Path, digest: str, files: CustomRuleFiles) -> str:
    pinned = {**files.sha256_by_key, path.name: digest}
    was = files.sha256_by_key.get(path.name)
    what = f"is pinned as {was} there" if was else "is not pinned there"
    return (
        f"rule {rule.name!r}: the deployment runs only files that the deployer pinned, and "
        f"{path.name} with the SHA-256 {digest} {what}; after a review: "
        f"cdk deploy -c stepwatch:custom_rules='{json.dumps(pinned)}'"
    )
