"""Sends one message for each change of a rule's status.

Stepwatch's own events are only hints, because everyone with access to the bus can send them:
messages use the content of the table. SageMaker's events are trusted, because only SageMaker can
send them.

Some deployed rules do not apply to most jobs, such as a rule about labels to a job without any. By
default, no message is sent if such a rule was not evaluated, unless the job requested the rule by
name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from hook_layer.storage.base import StorageError
from lambdas.notify.events import OverdueStop, StatusChange
from lambdas.notify.notice import OVERDUE, StatusFacts, overdue_notice, status_notice
from lambdas.notify.sent_notices import NoticeKey
from lambdas.shared.job_actions import JobActions
from lambdas.shared.state_table import StateKey
from lambdas.shared.stop_table import CONFIRMED
from lambdas.shared.watched_job_file import watched_job_file
from rule_runtime.configuration.requested_rules import parse_rule_requests
from rule_runtime.engine.outcome import RuleStatus, status_details

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hook_layer.format.job_file import JobFile
    from hook_layer.storage.base import Store
    from lambdas.notify.notice import Notice
    from lambdas.notify.sent_notices import SentNotices
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration, RegistrationTable
    from lambdas.shared.run_states import RunStates
    from lambdas.shared.settings import NotifySettings
    from lambdas.shared.stop_table import StopTable
    from rule_runtime.engine.state import EvaluationState

__all__ = ["NotifyService"]

_Message = tuple[NoticeKey, "Notice"]


@dataclass(frozen=True)
class NotifyService:
    """Sends messages about what the rules found.

    Attributes:
        settings: The function's settings.
        states: The evaluation states.
        registrations: The registered jobs.
        stops: The requests to stop jobs.
        sent: The sent messages.
        topic: Returns the client of SNS.
        open_store: Returns the store at a trial's root.
        telemetry: Logs and metrics.
    """

    settings: NotifySettings
    states: RunStates
    registrations: RegistrationTable
    stops: StopTable
    sent: SentNotices
    topic: Callable[[], Any]
    open_store: Callable[[str], Store]
    telemetry: Telemetry

    def tell(self, news: Sequence[StatusChange | OverdueStop]) -> None:
        """Send a message for each change that requires one and has none yet.

        Raises:
            ClientError: A message could not be sent; all others were.
            StorageError: A `job.json` could not be read; all other messages were sent.
        """
        failures = [failure for change in news if (failure := self._try_to_tell(change))]
        if failures:
            raise failures[0]

    def _try_to_tell(self, change: StatusChange | OverdueStop) -> Exception | None:
        try:
            message = self._message(change)
            if message is not None:
                self._send(*message)
        except (ClientError, BotoCoreError, StorageError) as error:
            return error
        return None

    def _message(self, change: StatusChange | OverdueStop) -> _Message | None:
        if isinstance(change, OverdueStop):
            return self._of_overdue(change)
        if change.status not in self.settings.statuses:
            return None
        return self._of_native(change) if change.root_uri is None else self._of_ours(change)

    def _of_native(self, change: StatusChange) -> _Message:
        facts = StatusFacts(
            change.training_job_name,
            change.rule,
            change.status,
            change.details,
            is_sagemaker_job=True,
        )
        name, status = change.training_job_name, change.status.value
        key = NoticeKey(("native", name, change.rule, status, change.changed_at))
        return key, status_notice(facts, self.settings)

    def _of_ours(self, change: StatusChange) -> _Message | None:
        name, root_uri = change.training_job_name, change.root_uri or ""
        job = self.registrations.get(name, root_uri) if root_uri else None
        stored = None
        if job is not None:
            stored = self.states.verdict(StateKey(root_uri, change.run_id, change.rule))
        if job is None or stored is None:
            self._refuse("neither a registered job nor its verdict confirm the event", change)
            return None
        state = stored.state
        if state.status is not change.status:
            # The event is forged, or older than a status with an event of its own.
            self._refuse(f"the status is {state.status.value} now", change)
            return None
        is_finding = state.status is RuleStatus.ISSUES_FOUND
        is_quiet = _has_no_change(state) and not self.settings.tells_not_judged
        file = self._job_file(job) if is_finding or is_quiet else None
        if is_quiet and not _requests_by_name(file, change.rule):
            self.telemetry.info("no message: the rule had nothing to evaluate", reason=state.reason)
            return None
        actions = JobActions.of(job.training_job_name, file) if is_finding else None
        facts = StatusFacts(
            name,
            change.rule,
            state.status,
            status_details(change.rule, state),
            state.evidence,
            root_uri,
            change.run_id,
            job.is_sagemaker_job,
            emails=actions.endpoints(change.rule, "email") if actions else [],
            phones=actions.endpoints(change.rule, "sms") if actions else [],
        )
        changed_at = str(stored.status_changed_at_ms)
        key = NoticeKey((root_uri, change.run_id, change.rule, state.status.value, changed_at))
        return key, status_notice(facts, self.settings)

    def _of_overdue(self, news: OverdueStop) -> _Message | None:
        item = self.stops.load(news.training_job_name, news.root_uri, news.run_id)
        # The event is sent shortly before the request is stored as late.
        if item is None or item.status == CONFIRMED or item.num_requests < 2:  # noqa: PLR2004
            self._refuse("no request to stop the job is overdue", news)
            return None
        name, requested_at = news.training_job_name, str(item.requested_at_ms)
        key = NoticeKey((OVERDUE, name, news.root_uri, news.run_id, requested_at))
        return key, overdue_notice(item, self.settings)

    def _job_file(self, job: Registration) -> JobFile | None:
        """Return the `job.json`; None if it is invalid, which must not suppress messages."""
        buckets = self.settings.tensor_bucket_names
        return watched_job_file(job.root_uri, buckets, self.open_store, self.telemetry)

    def _send(self, key: NoticeKey, notice: Notice) -> None:
        if not self.sent.claim(key):
            self.telemetry.info("message was sent before", subject=notice.subject)
            return
        try:
            self.topic().publish(
                TopicArn=self.settings.topic_arn,
                Subject=notice.subject,
                Message=notice.body,
                MessageAttributes=notice.attributes,
            )
        except (ClientError, BotoCoreError):
            self.sent.release(key)
            raise
        self.sent.mark_sent(key)
        self.telemetry.count("NoticesSent")
        self.telemetry.info("message sent", subject=notice.subject)

    def _refuse(self, why: str, news: StatusChange | OverdueStop) -> None:
        self.telemetry.count("NoticesRefused")
        self.telemetry.warning(
            "no message: " + why,
            event_training_job_name=news.training_job_name,
            debug_output_uri=news.root_uri,
            event_run_id=news.run_id,
        )


def _has_no_change(state: EvaluationState) -> bool:
    """Return whether a rule was not evaluated, and all stored files are readable."""
    counts = state.counts
    is_whole = not (counts.unreadable or counts.missing or counts.given_up)
    return state.has_evaluated_nothing and is_whole


def _requests_by_name(file: JobFile | None, rule: str) -> bool:
    """Return whether a job requests this rule by name, not only a pack that contains it."""
    rules, _ = parse_rule_requests((file and file.debug_rule_configurations) or ())
    return rule in rules and not rules[rule].pack
