"""The environment in which AWS clients reach the emulator and nothing else."""

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

    Credentials are valid nowhere; no proxy and no file of the user's stands between.
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
    """Return a maker of boto3 clients that reach the emulator, whatever the user's environment."""
    # A profile in the user's environment must neither be asked for nor be missing.
    ignored = dict.fromkeys(("profile", "config_file"), (None, None, None, None))
    session = boto3.Session(
        aws_access_key_id=CREDENTIAL,
        aws_secret_access_key=CREDENTIAL,
        region_name=REGION,
        botocore_session=botocore.session.Session(session_vars=ignored),
    )
    settings = Config(proxies={}, retries={"total_max_attempts": 2}, max_pool_connections=32)

    def client(service: str) -> Any:
        # The service is a variable, so no overload of the stubs fits.
        return session.client(service, endpoint_url=endpoint, config=settings)  # type: ignore[call-overload]

    return client
