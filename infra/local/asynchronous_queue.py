"""The queue between an asynchronous invocation and its function, which Lambda keeps inside.

The emulator keeps it as an SQS queue of its own, so that an event that was accepted is not lost
when the poller is killed. The server writes to it, the poller reads from it.
"""

from __future__ import annotations

__all__ = ["QUEUE_NAME_PREFIX", "queue_name"]

QUEUE_NAME_PREFIX = "lambda-async-"
LONGEST_QUEUE_NAME = 80


def queue_name(function_name: str) -> str:
    """Return the name of the queue of a function's asynchronous invocations."""
    # The end of a name that CloudFormation made is the part that makes it unique.
    return QUEUE_NAME_PREFIX + function_name[-(LONGEST_QUEUE_NAME - len(QUEUE_NAME_PREFIX)) :]
