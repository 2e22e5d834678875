"""Gaps of moto 5.2.5 that the deployed template meets, each closed by one named patch.

`apply_patches()` changes moto in this process; a second call changes nothing. Every patch says in
its docstring what moto does without it.
"""

from __future__ import annotations

from collections.abc import Callable

from infra.local.moto_patches.event_rules import (
    patch_event_patterns_into_arrays,
    patch_event_rule_targets,
)
from infra.local.moto_patches.functions import (
    patch_event_source_mappings_inline,
    patch_function_code_locations,
    patch_function_layers_from_cloudformation,
)
from infra.local.moto_patches.queues import (
    patch_deletions_beside_other_requests,
    patch_long_polls_of_dead_consumers,
    patch_retention_of_long_queues,
)
from infra.local.moto_patches.resources import (
    patch_event_invoke_config_from_cloudformation,
    patch_key_tags_from_cloudformation,
    patch_policies_and_alarms_from_cloudformation,
)
from infra.local.moto_patches.s3_events import (
    patch_bucket_notifications_from_cloudformation,
    patch_get_bucket_notification,
    patch_s3_event_details,
)
from infra.local.moto_patches.training_jobs import (
    patch_rule_statuses_of_training_jobs,
    patch_training_job_life,
)

__all__ = ["PATCHES", "apply_patches"]

PATCHES: tuple[Callable[[], None], ...] = (
    patch_event_patterns_into_arrays,
    patch_event_rule_targets,
    patch_bucket_notifications_from_cloudformation,
    patch_get_bucket_notification,
    patch_s3_event_details,
    patch_function_layers_from_cloudformation,
    patch_function_code_locations,
    patch_event_invoke_config_from_cloudformation,
    patch_key_tags_from_cloudformation,
    patch_policies_and_alarms_from_cloudformation,
    patch_event_source_mappings_inline,
    patch_long_polls_of_dead_consumers,
    patch_deletions_beside_other_requests,
    patch_retention_of_long_queues,
    patch_training_job_life,
    patch_rule_statuses_of_training_jobs,
)


def apply_patches() -> None:
    """Apply every patch to moto in this process, once."""
    for patch in PATCHES:
        patch()
