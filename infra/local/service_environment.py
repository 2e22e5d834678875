"""Connects AWS clients to the emulator only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import botocore.session
from botocore.config import Config

__all__ = ["ACCOUNT_ID", "CREDENTIAL", "REGION", "client_factory", "service_environment"]

ACCOUNT_ID = "123456789012"
REGION = "us-east-1"
CREDENTIAL = "local"
"""Access key of everything except the functions, which have their own."""


def service_environment(endpoint: str) -> dict[str, str]:
    """Return environment variables for a process that uses the emulator.

    The credentials are valid nowhere else; proxies and the user's AWS files are ignored.
    """
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": CREDENTIAL,
        "AWS_SECRET_ACCESS_KEY": CREDENTIAL,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


def client_factory(endpoint: str) -> Callable[[str], Any]:
    """Return a factory of boto3 clients for the emulator, in any user environment."""
    # Ignore a profile in the user's environment, which may be missing or ask for input.
    ignored = dict.fromkeys(("profile", "config_file"), (None, None, None, None))
    session = boto3.Session(
        aws_access_key_id=CREDENTIAL,
        aws_secret_access_key=CREDENTIAL,
        region_name=REGION,
        botocore_session=botocore.session.Session(session_vars=ignored),
    )
    settings = Config(proxies={}, retries={"total_max_attempts": 2}, max_pool_connections=32)

    def client(service: str) -> Any:
        # No overload of the stubs matches a variable service name.
        return session.client(service, endpoint_url=endpoint, config=settings)  # type: ignore[call-overload]

    return client
