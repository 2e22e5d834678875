"""Accepted texts and numbers of the settings in `infra.config`."""

from __future__ import annotations

import re

__all__ = [
    "BUCKET_NAME",
    "EMAIL",
    "EXISTING_BUCKET_NAME",
    "KEY_ARN",
    "LOG_RETENTION_DAYS",
    "STAGE",
    "STATUSES",
    "TAG_NAME",
    "TAG_VALUE",
]

LOG_RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096),
    *(1827, 2192, 2557, 2922, 3288, 3653),
)
"""Log retention periods in days that CloudWatch accepts."""

STATUSES = ("IssuesFound|NoIssuesFound|Error|Stopped", "IssuesFound, NoIssuesFound, Error, Stopped")
"""Final statuses of an evaluation."""

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
