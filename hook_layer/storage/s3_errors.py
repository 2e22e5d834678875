"""Errors of S3 that waiting does not resolve, and their solutions."""

from __future__ import annotations

from typing import Final

from hook_layer.storage.base import StoreRefusedError

__all__ = ["refusal", "refusal_without_answer"]

_RIGHTS: Final = {
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "DeleteObject": "s3:DeleteObject",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
}
_FORBIDDEN: Final = frozenset(("403", "AccessDenied", "AllAccessDisabled", "Forbidden"))
_HINTS: Final = {
    "NoSuchBucket": "the bucket does not exist; create it (aws s3 mb s3://{bucket}) or correct the "
    "name",
    "InvalidBucketName": "{bucket!r} is not the name of a bucket; correct it",
    "PermanentRedirect": "the bucket is in another region; set AWS_REGION to that",
    "301": "the bucket is in another region; set AWS_REGION to that",
    "AuthorizationHeaderMalformed": "the bucket is in another region; set AWS_REGION to that",
    "IllegalLocationConstraintException": "the bucket is in another region; set AWS_REGION to that",
    "ExpiredToken": "the credentials have expired; renew them",
    "InvalidToken": "the session token of the credentials is not valid; renew them",
    "InvalidAccessKeyId": "the access key of the credentials does not exist; correct it",
    "SignatureDoesNotMatch": "the secret key of the credentials is wrong; correct it",
    "RequestTimeTooSkewed": "the clock of this machine is wrong; set it",
    "AccountProblem": "there is a problem with the AWS account; ask AWS support",
    "NotSignedUp": "the AWS account is not signed up for S3; sign it up",
    "EntityTooLarge": "the object exceeds S3's limit; save fewer or smaller tensors per step",
    "QuotaExceeded": "the bucket's quota is used up; make room",
}
_WITHOUT_ANSWER: Final = {
    "NoCredentialsError": "there are no AWS credentials; give the process a role, or set "
    "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "PartialCredentialsError": "the AWS credentials are incomplete; set both keys",
    "CredentialRetrievalError": "the AWS credentials cannot be loaded; check the command or role "
    "that provides them",
    "ParamValidationError": "bucket or prefix is not valid; correct it",
    "InvalidEndpointDiscoveryConfigurationError": "the endpoint is wrong; correct it",
    "UnauthorizedSSOTokenError": "the SSO session has expired; run aws sso login",
    "SSOTokenLoadError": "there is no SSO session; run aws sso login",
    "TokenRetrievalError": "the SSO session has expired; run aws sso login",
}


def refusal(place: str, code: str, operation: str, message: str) -> StoreRefusedError | None:
    """Return the error for a response that waiting does not resolve; None for others."""
    bucket = place.removeprefix("s3://").partition("/")[0]
    if code in _FORBIDDEN:
        right = _RIGHTS.get(operation, "s3:PutObject")
        resource = bucket if right == "s3:ListBucket" else place.removeprefix("s3://")
        hint = (
            f"allow {right} on arn:aws:s3:::{resource} (and the use of its KMS key, if it has one)"
        )
    elif code in _HINTS:
        hint = _HINTS[code].format(bucket=bucket)
    else:
        return None
    return StoreRefusedError(f"{place}: {hint} [{message}]")


def refusal_without_answer(place: str, kind: str, message: str) -> StoreRefusedError | None:
    """Return the error for a request that could not be sent; None for others."""
    hint = _WITHOUT_ANSWER.get(kind)
    return None if hint is None else StoreRefusedError(f"{place}: {hint} [{message}]")
