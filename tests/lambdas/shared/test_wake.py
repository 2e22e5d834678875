"""Messages that wake an evaluator: written, sent, and read with suspicion."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.shared import clients
from lambdas.shared.wake import (
    InvalidWakeError,
    Wake,
    WakeNotSentError,
    WakeQueue,
    WakeReason,
)

BUCKETS = frozenset({"tensors"})
ROOT = "s3://tensors/mnist-7/debug-output/"
RUN = "01JD0000000000000000000001"
WAKE = Wake(ROOT, RUN, WakeReason.CONTINUE, hop=3, silent_s=7200.0, version=12, rule="A")


def body(**changes: Any) -> str:
    event = json.loads(WAKE.to_body())
    event["detail"] |= changes
    return json.dumps(event)


def test_the_message_has_the_agreed_shape() -> None:
    assert json.loads(WAKE.to_body()) == {
        "source": "stepwatch.debugger",
        "detail-type": "Evaluation Due",
        "detail": {
            "DebugOutputUri": ROOT,
            "RunId": RUN,
            "Reason": "continue",
            "Hop": 3,
            "SilentSeconds": 7200.0,
            "Version": 12,
            "Rule": "A",
        },
    }


_PART = st.text("aß .+#?%ä-_0", min_size=1, max_size=20).filter(lambda p: p not in (".", ".."))


_WAKES = st.builds(
    Wake,
    root_uri=st.lists(_PART, max_size=4).map(
        lambda parts: "s3://tensors/" + "".join(f"{part}/" for part in parts)
    ),
    run_id=st.from_regex(r"[0-9A-Za-z._-]{0,64}", fullmatch=True),
    reason=st.sampled_from(WakeReason),
    hop=st.integers(0, 1_000_000),
    silent_s=st.floats(0, 1e10),
    version=st.integers(0, 1 << 53),
    rule=st.text("aß .+#?%ä-_0", max_size=256).filter(lambda rule: not rule.startswith("#")),
)


@given(_WAKES)
def test_what_is_written_is_read(wake: Wake) -> None:
    assert Wake.of_event(json.loads(wake.to_body()), BUCKETS) == wake


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"DebugOutputUri": "s3://other/mnist-7/"}, "not watched"),
        ({"DebugOutputUri": "file:///mnist-7/"}, "not the root"),
        ({"DebugOutputUri": "s3://tensors"}, "end in /"),
        ({"DebugOutputUri": "s3://tensors/mnist-7"}, "end in /"),
        ({"DebugOutputUri": "s3://tensors/a/../b/"}, "is not a key"),
        ({"DebugOutputUri": "s3://tensors//"}, "is not a key"),
        ({"DebugOutputUri": "s3://tensors/" + "ü" * 451 + "/"}, "longer than"),
        ({"DebugOutputUri": "s3://tensors/\ud800/"}, "is not a key"),
        ({"DebugOutputUri": None}, "not the root"),
        ({"RunId": "a#b"}, "not a run id"),
        ({"RunId": None}, "not a run id"),
        ({"RunId": "r" * 65}, "not a run id"),
        ({"Reason": "because"}, "not a reason"),
        ({"Reason": []}, "not a reason"),
        ({"Rule": "#job-rules"}, "not the name of a rule"),
        ({"Rule": "a\nb"}, "not the name of a rule"),
        ({"Rule": "\ud800"}, "not the name of a rule"),
        ({"Rule": "r" * 257}, "not the name of a rule"),
        ({"Rule": None}, "not the name of a rule"),
        ({"Hop": -1}, "Hop is"),
        ({"Hop": 1.0}, "Hop is"),
        ({"Hop": True}, "Hop is"),
        ({"Version": "1"}, "Version is"),
        ({"Version": 1 << 60}, "Version is"),
        ({"SilentSeconds": -1}, "seconds"),
        ({"SilentSeconds": float("nan")}, "seconds"),
        ({"SilentSeconds": float("inf")}, "seconds"),
        ({"SilentSeconds": 10**400}, "seconds"),
        ({"SilentSeconds": "7"}, "seconds"),
        ({"SilentSeconds": True}, "seconds"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidWakeError, match=words):
        Wake.of_event(json.loads(body(**changes)), BUCKETS)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"source": "aws.s3", "detail-type": "Evaluation Due", "detail": {}}',
        '{"source": "stepwatch.debugger", "detail-type": "Evaluation Due"}',
        '{"source": "stepwatch.debugger", "detail-type": "Evaluation Due", "detail": []}',
    ],
)
def test_what_is_no_wake_is_refused(text: str) -> None:
    with pytest.raises(InvalidWakeError):
        Wake.of_event(json.loads(text), BUCKETS)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner),
    ),
    st.sampled_from(["DebugOutputUri", "RunId", "Reason", "Hop", "SilentSeconds", "Version"]),
)
def test_whatever_json_it_is_nothing_else_is_raised(value: Any, name: str) -> None:
    try:
        wake = Wake.of_event(json.loads(body(**{name: value})), BUCKETS)
    except InvalidWakeError:
        return
    assert wake.root_uri.startswith("s3://tensors/")


@pytest.mark.usefixtures("aws")
class TestQueue:
    @pytest.fixture
    def url(self) -> str:
        return clients.sqs().create_queue(QueueName="evaluator")["QueueUrl"]

    def received(self, url: str) -> list[Wake]:
        wakes = []
        while (
            messages := clients.sqs()
            .receive_message(QueueUrl=url, MaxNumberOfMessages=10)
            .get("Messages")
        ):
            wakes += [Wake.of_event(json.loads(message["Body"]), BUCKETS) for message in messages]
        return wakes

    def test_takes_any_number(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes = []
        send = clients.sqs().send_message_batch

        def noted(**arguments: Any) -> Any:
            sizes.append(len(arguments["Entries"]))
            return send(**arguments)

        monkeypatch.setattr(clients.sqs(), "send_message_batch", noted)
        queue = WakeQueue(clients.sqs, {"Rule": url})
        wakes = [Wake(ROOT, f"run-{number}", WakeReason.SWEEP) for number in range(23)]
        queue.send_all("Rule", iter(wakes))
        assert sizes == [10, 10, 3]
        assert sorted(wake.run_id for wake in self.received(url)) == sorted(
            wake.run_id for wake in wakes
        )

    def test_makes_no_client_for_nothing(self) -> None:
        def made() -> Any:
            raise AssertionError

        WakeQueue(made, {"Rule": "url"}).send_all("Rule", [])

    def test_a_message_that_is_not_taken_is_reported(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refused = {"Failed": [{"Id": "0", "Code": "InternalError", "SenderFault": False}]}
        monkeypatch.setattr(clients.sqs(), "send_message_batch", lambda **_: refused)
        with pytest.raises(WakeNotSentError, match=r"Rule refused 1 of 1.*InternalError"):
            WakeQueue(clients.sqs, {"Rule": url}).send("Rule", WAKE)

    def test_a_rule_without_a_queue_is_reported(self) -> None:
        with pytest.raises(KeyError):
            WakeQueue(clients.sqs, {}).send("Rule", WAKE)
