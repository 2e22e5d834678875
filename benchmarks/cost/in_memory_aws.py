"""The requests of the functions to AWS, answered in this process, and counted.

The clients are the functions' own: a request is built and checked by botocore, and answered where
it would go out. So the counted requests are those that AWS would get.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from benchmarks.cost.in_memory_table import InMemoryTable, RefusedWriteError
from hook_layer.storage.base import ObjectNotFoundError, Store
from hook_layer.storage.memory import MemoryStore
from lambdas.shared import clients

__all__ = ["InMemoryAws", "Requests", "counted_requests"]

_PARAMETERS: Final = "stepwatch_parameters"
_PAGE_KEYS: Final = 1000


@dataclass(frozen=True)
class _Http:
    """The part of an HTTP answer that botocore looks at."""

    status_code: int = 200


@dataclass
class InMemoryAws:
    """A bucket's objects, the state table, the event bus, and queues that take anything.

    Attributes:
        objects: Objects by bucket and key, "<bucket>/<key>".
        table: The state table.
    """

    objects: Store = field(default_factory=MemoryStore)
    table: InMemoryTable = field(default_factory=InMemoryTable)

    def answer(self, operation: str, request: Mapping[str, Any]) -> tuple[_Http, dict[str, Any]]:
        """Return what botocore takes for the answer to a request.

        Raises:
            NotImplementedError: Nobody here knows the operation.
        """
        answers: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "s3.GetObject": self._get_object,
            "s3.PutObject": self._put_object,
            "s3.DeleteObject": self._delete_object,
            "s3.ListObjectsV2": self._list_objects,
            "dynamodb.GetItem": self.table.get,
            "dynamodb.PutItem": self.table.put,
            "dynamodb.DeleteItem": self.table.delete,
            "dynamodb.UpdateItem": self.table.update,
            "dynamodb.Query": self.table.query,
            "events.PutEvents": lambda _: {"FailedEntryCount": 0, "Entries": []},
            "sqs.SendMessageBatch": self._send_messages,
        }
        if operation not in answers:
            raise NotImplementedError(f"{operation} is not answered in memory")
        try:
            return _Http(), answers[operation](request)
        except ObjectNotFoundError as error:
            absent = {"Code": "NoSuchKey", "Message": str(error)}
            return _Http(404), {"Error": absent}
        except RefusedWriteError as error:
            refused: dict[str, Any] = {
                "Error": {"Code": "ConditionalCheckFailedException", "Message": str(error)}
            }
            if error.item is not None and "ReturnValuesOnConditionCheckFailure" in request:
                refused["Item"] = dict(error.item)
            return _Http(400), refused

    def _get_object(self, request: Mapping[str, Any]) -> dict[str, Any]:
        first, _, last = request.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        length = int(last) + 1 - int(first) if last else None
        return {"Body": io.BytesIO(self.objects.get(_name(request), int(first), length))}

    def _put_object(self, request: Mapping[str, Any]) -> dict[str, Any]:
        body = request["Body"]
        self.objects.put(_name(request), body if isinstance(body, bytes) else body.read())
        return {}

    def _delete_object(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.objects.delete(_name(request))
        return {}

    def _list_objects(self, request: Mapping[str, Any]) -> dict[str, Any]:
        bucket = f"{request['Bucket']}/"
        after = request.get("ContinuationToken") or bucket + request.get("StartAfter", "")
        found = self.objects.list(bucket + request["Prefix"], after)
        names = list(islice(found, _PAGE_KEYS + 1))
        page = [{"Key": name.removeprefix(bucket)} for name in names[:_PAGE_KEYS]]
        is_cut = len(names) > _PAGE_KEYS
        answer: dict[str, Any] = {"Contents": page, "IsTruncated": is_cut}
        return answer | ({"NextContinuationToken": names[_PAGE_KEYS - 1]} if is_cut else {})

    def _send_messages(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]]}


@dataclass
class Requests:
    """The requests of the functions' clients.

    Attributes:
        counts: Number of requests by "<service>.<operation>".
        messages: Bodies of the messages that were sent to each queue, by its URL.
    """

    counts: Counter[str] = field(default_factory=Counter)
    messages: dict[str, list[str]] = field(default_factory=dict)

    def record(self, operation: str, request: Mapping[str, Any]) -> None:
        """Record a request."""
        self.counts[operation] += 1
        if operation == "sqs.SendMessageBatch":
            bodies = [entry["MessageBody"] for entry in request["Entries"]]
            self.messages.setdefault(request["QueueUrl"], []).extend(bodies)


@contextmanager
def counted_requests(aws: InMemoryAws | None) -> Iterator[Requests]:
    """Count the requests of the functions' clients.

    The clients are made anew inside, and again behind.

    Args:
        aws: Who answers them; None to let them go out.
    """
    requests = Requests()

    def keep(**emitted: Any) -> None:
        emitted["context"][_PARAMETERS] = emitted["params"]

    def count(**emitted: Any) -> Any:
        operation = _short(emitted["event_name"].removeprefix("before-call."))
        parameters = emitted["context"][_PARAMETERS]
        requests.record(operation, parameters)
        return None if aws is None else aws.answer(operation, parameters)

    clients.forget()
    session = clients._session()  # noqa: SLF001 - its clients' own events are what is counted
    session.register("before-parameter-build", keep)
    session.register("before-call", count)
    try:
        yield requests
    finally:
        clients.forget()


def _short(operation: str) -> str:
    service, _, name = operation.partition(".")
    return f"{'events' if service == 'eventbridge' else service}.{name}"


def _name(request: Mapping[str, Any]) -> str:
    return f"{request['Bucket']}/{request['Key']}"
