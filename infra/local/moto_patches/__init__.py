"""Patches for gaps of moto 5.2.5 that affect the deployed template.

`apply_patches()` changes moto in this process; a second call has no effect. The docstring of every
patch describes moto without it.
"""

from __future__ import annotations

from collections.abc import Callable

from infra.local.moto_patches import (
    event_rules,
    functions,
    queues,
    resources,
    s3_events,
    training_jobs,
)

__all__ = ["PATCHES", "apply_patches"]

PATCHES: tuple[Callable[[], None], ...] = tuple(
    patch
    for module in (event_rules, functions, queues, resources, s3_events, training_jobs)
    for name, patch in vars(module).items()
    if name.startswith("patch_")
)


def apply_patches() -> None:
    """Apply every patch to moto in this process, once."""
    for patch in PATCHES:
        patch()
