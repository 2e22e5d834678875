"""How each setting is read; the settings themselves are in `infra.config`."""

from __future__ import annotations

import re

from infra.custom_rule_settings import read_custom_rules
from infra.rule_settings import read_rules
from infra.settings import (
    Reader,
    read_choice,
    read_flag,
    read_list,
    read_names,
    read_number,
    read_text,
)
from lambdas.contracts.stopping import STOP_POLICIES

__all__ = ["FIELDS", "TAG_NAME", "TAG_VALUE"]

LOG_RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096),
    *(1827, 2192, 2557, 2922, 3288, 3653),
)
"""The numbers of days that CloudWatch Logs accepts."""

STATUSES = "IssuesFound|NoIssuesFound|Error|Stopped"
"""Statuses that an evaluation can end with."""

# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
RESERVED_BEGINNINGS = ("xn--", "sthree-", "amzn-s3-demo-")
RESERVED_ENDS = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")
NOT_RESERVED = (
    rf"(?!{'|'.join(RESERVED_BEGINNINGS)})(?!.*({'|'.join(map(re.escape, RESERVED_ENDS))})$)"
)
NO_RESERVED = (
    f"that do not begin with {', '.join(RESERVED_BEGINNINGS)} or end with "
    f"{', '.join(RESERVED_ENDS)}"
)
BUCKET_NAME = (
    NOT_RESERVED + "[a-z0-9][a-z0-9-]{1,61}[a-z0-9]",
    f"3 to 63 lower-case letters, digits and '-', {NO_RESERVED}",
)
EXISTING_BUCKET_NAME = (
    NOT_RESERVED + r"(?![0-9]+(\.[0-9]+){3}$)(?!.*(\.\.|\.-|-\.))[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
    "names of buckets: 3 to 63 lower-case letters, digits, '-' and single '.', no IP address, "
    + NO_RESERVED,
)
EMAIL = (r"[^@\s,]{1,64}@[^@\s,]+\.[^@\s,]+", "addresses such as name@example.com")
KEY_ARN = (
    r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+",
    "the ARN of a key, arn:aws:kms:<region>:<account>:key/<id>",
)
STAGE = ("[a-z][a-z0-9-]{0,19}", "at most 20 lower-case letters, digits and '-', a letter first")
TAG_VALUE = (
    r"[A-Za-z0-9 +=._:/@-]{0,256}",
    "at most 256 letters, digits, spaces and + = . _ : / @ -",
)
TAG_NAME = (
    r"(?!(?i:aws):)(?! )[A-Za-z0-9 +=._:/@-]{1,128}(?<! )",
    "1 to 128 letters, digits, spaces and + = . _ : / @ -, no prefix aws:, no space at either end",
)

FIELDS: dict[str, Reader] = {
    "rules": read_rules,
    "per_job_rules": read_flag,
    "custom_rules": read_custom_rules,
    "custom_rule_bucket": read_text(*EXISTING_BUCKET_NAME),
    "stage": read_text(*STAGE),
    "data_retention": read_choice("retain", "destroy"),
    "stop_policy": read_choice(*STOP_POLICIES),
    "stop_rules": read_names,
    "stop_observed_rules": read_names,
    "stop_min_rules": read_number(1, 100),
    "stop_confirm_s": read_number(60, 86400),
    "stop_platforms": read_list("batch|ecs", "batch, ecs"),
    "stop_tag": read_text(*TAG_NAME),
    "alert_emails": read_list(*EMAIL),
    "notify_statuses": read_list(STATUSES, STATUSES.replace("|", ", "), at_least=1),
    "notify_not_judged": read_flag,
    "alarms": read_choice("all", "essential"),
    "verdict_latency_s": read_number(1, 86400),
    "tracing": read_flag,
    "retention_days": read_number(1, 3653, only=LOG_RETENTION_DAYS),
    "tensor_expiration_days": read_number(1, 3650),
    "tensor_bucket_name": read_text(*BUCKET_NAME),
    "new_tensor_buckets": read_list(*BUCKET_NAME),
    "tensor_buckets": read_list(*EXISTING_BUCKET_NAME),
    "encryption": read_choice("managed", "kms"),
    "kms_key_arn": read_text(*KEY_ARN),
    "architecture": read_choice("arm64", "x86_64"),
    "evaluator_timeout_s": read_number(1, 900),
    "evaluator_memory_mb": read_number(128, 10240),
    "batch_size": read_number(1, 10000),
    "batching_window_s": read_number(0, 300),
    "maximum_concurrency": read_number(2, 1000),
    "worker_wait_s": read_number(1, 86400),
    "worker_wait_steps": read_number(1, 10000),
    "max_silence_s": read_number(300, 30 * 86400),
    "event_schema": read_flag,
}
