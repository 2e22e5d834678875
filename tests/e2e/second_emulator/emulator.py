"""ministack in a process of its own, on loopback, with moto's server for SageMaker beside it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from typing_extensions import Self

from infra.local.emulator import LOOPBACK, Emulator
from infra.local.service_environment import ACCOUNT_ID, CREDENTIAL, REGION, service_environment

__all__ = ["E2E", "ROOT", "SecondEmulator", "eventually", "tail"]

ROOT = Path(__file__).resolve().parents[3]
E2E = ROOT / ".venv-e2e"
SERVER = Path(__file__).with_name("ministack_server.py")
START_LIMIT_S = 60
POLL_S = 0.1


class SecondEmulator:
    """All services in ministack but SageMaker, which it lacks: that is moto's, with our patches.

    Roles and policies are enforced (`AUTH=true`): a function may do what its role allows. As the
    policies of buckets and queues refuse what is not encrypted on its way, ministack has TLS.

    Attributes:
        endpoint_url: Address of ministack.
        certificate: What it shows, to be trusted.
        log: What ministack and the functions printed.
    """

    def __init__(self, folder: Path) -> None:
        """Describe the emulator; entering it starts it.

        Args:
            folder: Where its log and the unpacked code of functions are kept.
        """
        self._folder = folder
        self.log = folder / "ministack.log"
        self._code = folder / "code"
        self.certificate = self._code / "ministack-tls" / "server.crt"
        self.endpoint_url = ""

    def __enter__(self) -> Self:
        assert E2E.exists(), "run `make e2e`: ministack is not installed"
        assert shutil.which("openssl"), "ministack makes a certificate with openssl: install it"
        self._sagemaker = Emulator()
        try:
            self._start()
        except BaseException:
            self._sagemaker.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self._sagemaker.stop()

    def environment(self) -> dict[str, str]:
        """Return environment variables of a process that uses both."""
        return {
            **service_environment(self.endpoint_url),
            "AWS_ENDPOINT_URL_SAGEMAKER": self._sagemaker.endpoint_url,
            "AWS_CA_BUNDLE": str(self.certificate),
            "NODE_EXTRA_CA_CERTS": str(self.certificate),
        }

    def client(self, service: str, **credentials: str) -> Any:
        """Return a boto3 client of whichever of the two has the service.

        Args:
            service: Its name.
            credentials: Keys to use instead of those that may do everything.
        """
        keys = {"aws_access_key_id": CREDENTIAL, "aws_secret_access_key": CREDENTIAL, **credentials}
        is_motos = service == "sagemaker"
        return boto3.client(
            service,
            endpoint_url=self._sagemaker.endpoint_url if is_motos else self.endpoint_url,
            region_name=REGION,
            verify=str(self.certificate),
            config=Config(proxies={}),
            **keys,
        )

    def function_logs(self) -> dict[str, str]:
        """Return what each function logged, by the name of its log group."""
        logs = self.client("logs")
        pages = logs.get_paginator("describe_log_groups").paginate()
        groups = [group["logGroupName"] for page in pages for group in page["logGroups"]]
        events = logs.get_paginator("filter_log_events")
        return {
            group: "".join(
                f"{event['message'].rstrip()}\n"
                for page in events.paginate(logGroupName=group)
                for event in page["events"]
            )
            for group in groups
        }

    def _start(self) -> None:
        port = _free_port()
        self.endpoint_url = f"https://{LOOPBACK}:{port}"
        self._code.mkdir(parents=True)
        # The functions inherit this environment; their credentials are those of their roles.
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "PYTHON"))},
            **self.environment(),
            "AUTH": "true",
            "BIND_HOST": LOOPBACK,
            "GATEWAY_PORT": str(port),
            "MINISTACK_ACCOUNT_ID": ACCOUNT_ID,
            "MINISTACK_HOST": LOOPBACK,
            "MINISTACK_REGION": REGION,
            "TMPDIR": str(self._code),
            "USE_SSL": "true",
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [E2E / "bin" / "python", SERVER],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            eventually(self._answers, START_LIMIT_S, "ministack answers")
        except BaseException:
            self._kill()
            raise

    def _answers(self) -> bool:
        assert self._process.poll() is None, f"ministack ended:\n{tail(self.log)}"
        with suppress(OSError):
            trust = ssl.create_default_context(cafile=str(self.certificate))
            handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
            opener = urllib.request.build_opener(*handlers)
            with opener.open(f"{self.endpoint_url}/_ministack/health", timeout=5) as answer:
                return bool(answer.status == 200)
        return False

    def _kill(self) -> None:
        # The group holds ministack and the functions that it started, and nothing else.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def eventually(probe: Callable[[], Any], limit_s: float, what: str) -> Any:
    """Return the probe's answer as soon as it is true.

    Args:
        probe: Asked again and again.
        limit_s: Longest wait in seconds.
        what: What is waited for, for the message.

    Raises:
        TimeoutError: If the answer has not become true in time.
    """
    ends = time.monotonic() + limit_s
    while not (answer := probe()):
        if time.monotonic() > ends:
            raise TimeoutError(f"not within {limit_s} s: {what}")
        time.sleep(POLL_S)
    return answer


def tail(path: Path, characters: int = 4000) -> str:
    """Return the end of a file, or nothing where there is none."""
    return path.read_text(errors="replace")[-characters:] if path.exists() else ""


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        port: int = listener.getsockname()[1]
    return port
