"""Environment variables that infra writes and the functions read."""

from __future__ import annotations

from typing import Final

__all__ = [
    "CUSTOM_RULES",
    "CUSTOM_RULE_BUCKET",
    "DEPLOYED_RULES",
    "ESTIMATES_COST",
    "EVENT_BUS_NAME",
    "GROUPED_RULES",
    "JOB_FILES_PER_MINUTE",
    "MAX_SILENCE_S",
    "METRICS_NAMESPACE",
    "NOTIFY_NOT_JUDGED",
    "NOTIFY_STATUSES",
    "QUEUE_URL",
    "RULE_CONFIGURATION_NAME",
    "RULE_LOG_GROUPS",
    "RULE_PARAMETERS",
    "RULE_QUEUE_URLS",
    "STATE_TABLE_NAME",
    "STOP_CONFIRM_S",
    "STOP_MIN_RULES",
    "STOP_OBSERVED_RULES",
    "STOP_PLATFORMS",
    "STOP_POLICY",
    "STOP_RULES",
    "STOP_SEVERITY",
    "STOP_TAG",
    "TENSOR_BUCKET_NAMES",
    "TOPIC_ARN",
    "WORKER_WAIT_S",
    "WORKER_WAIT_STEPS",
]

RULE_CONFIGURATION_NAME: Final = "STEPWATCH_RULE_CONFIGURATION_NAME"
"""evaluate_rule: configuration name of the function's rule, e.g. `VanishingGradient`.

`#job-rules` for the function that evaluates rules that jobs configure, `#custom-rules` for the one
that runs the deployer's own files.
"""

RULE_PARAMETERS: Final = "STEPWATCH_RULE_PARAMETERS"
"""evaluate_rule: JSON object of strings, for functions with a rule of their own.

For example `{"rule_to_invoke": "VanishingGradient", "threshold": "1e-7"}`.
"""

DEPLOYED_RULES: Final = "STEPWATCH_DEPLOYED_RULES"
"""evaluate_rule (for rules that jobs configure) and stop_job: comma-separated names of the rules
with functions of their own."""

GROUPED_RULES: Final = "STEPWATCH_GROUPED_RULES"
"""evaluate_rule (for all built-in rules): JSON object, configuration name of a deployed rule -> its
parameters as an object of strings. `rule_to_invoke` is omitted if it is the name.

Not set: each deployed rule has a function of its own.
"""

CUSTOM_RULE_BUCKET: Final = "STEPWATCH_CUSTOM_RULE_BUCKET"
"""evaluate_rule, likewise: the bucket of the deployer's own rules; not set: jobs can use none."""

CUSTOM_RULES: Final = "STEPWATCH_CUSTOM_RULES"
"""evaluate_rule, likewise: JSON object, key of a file in that bucket -> its required SHA-256.

A job can select these files, but not add one.
"""

ESTIMATES_COST: Final = "STEPWATCH_ESTIMATES_COST"
"""All functions: `true` to write the estimated cost of each call as a metric."""

METRICS_NAMESPACE: Final = "POWERTOOLS_METRICS_NAMESPACE"
"""All functions: namespace of their metrics, see `lambdas.contracts.metrics`."""

STATE_TABLE_NAME: Final = "STEPWATCH_STATE_TABLE_NAME"
"""All functions: the DynamoDB table of evaluation states and registrations."""

TENSOR_BUCKET_NAMES: Final = "STEPWATCH_TENSOR_BUCKET_NAMES"
"""All functions: comma-separated names of the watched buckets."""

EVENT_BUS_NAME: Final = "STEPWATCH_EVENT_BUS_NAME"
"""evaluate_rule, finish_job and stop_job: the bus for Stepwatch's events; native events only
arrive at `default`."""

STOP_POLICY: Final = "STEPWATCH_STOP_POLICY"
"""stop_job: which jobs may be stopped, a policy of `lambdas.contracts.stopping`; `opt_in`."""

STOP_RULES: Final = "STEPWATCH_STOP_RULES"
"""stop_job: comma-separated names of rules, including SageMaker's, whose finding stops a job;
empty: all."""

STOP_SEVERITY: Final = "STEPWATCH_STOP_SEVERITY"
"""stop_job: which of their findings do, a severity of `lambdas.contracts.stopping`; `any`."""

STOP_CONFIRM_S: Final = "STEPWATCH_STOP_CONFIRM_S"
"""stop_job: seconds that a stopped job may take to end before an alarm is raised."""

QUEUE_URL: Final = "STEPWATCH_QUEUE_URL"
"""evaluate_rule: URL of the function's own queue, for work that one call has no time for.

If it is not set, the records themselves are delivered again.
"""

WORKER_WAIT_S: Final = "STEPWATCH_WORKER_WAIT_S"
"""evaluate_rule: seconds that a step waits for a worker before it may be evaluated without it."""

WORKER_WAIT_STEPS: Final = "STEPWATCH_WORKER_WAIT_STEPS"
"""evaluate_rule: later steps of other workers that must wait, too, before a worker is given up."""

JOB_FILES_PER_MINUTE: Final = "STEPWATCH_JOB_FILES_PER_MINUTE"
"""evaluate_rule: files of a job that a process evaluates as they come, in a minute."""

RULE_QUEUE_URLS: Final = "STEPWATCH_RULE_QUEUE_URLS"
"""sweep, finish_job: JSON object of the evaluators' queues by rule configuration name.

`lambdas.contracts.name_list` resolves the list.
"""

MAX_SILENCE_S: Final = "STEPWATCH_MAX_SILENCE_S"
"""sweep: seconds without output after which a run without an end marker counts as ended."""

TOPIC_ARN: Final = "STEPWATCH_TOPIC_ARN"
"""notify: ARN of the topic for messages about findings."""

STOP_OBSERVED_RULES: Final = "STEPWATCH_STOP_OBSERVED_RULES"
"""stop_job: comma-separated names of the deployed rules whose finding never stops a job."""

STOP_MIN_RULES: Final = "STEPWATCH_STOP_MIN_RULES"
"""stop_job: number of different rules that must have found an issue to stop a job; 1."""

STOP_PLATFORMS: Final = "STEPWATCH_STOP_PLATFORMS"
"""stop_job: comma-separated, of `batch` and `ecs`: platforms whose API stops jobs. Empty: jobs
there get only the stop signal beside the tensors."""

STOP_TAG: Final = "STEPWATCH_STOP_TAG"
"""stop_job: the tag with which a job of SageMaker, Batch or ECS names the folder whose findings may
stop it."""

NOTIFY_STATUSES: Final = "STEPWATCH_NOTIFY_STATUSES"
"""notify: comma-separated statuses of rules that cause a message."""

NOTIFY_NOT_JUDGED: Final = "STEPWATCH_NOTIFY_NOT_JUDGED"
"""notify: `true` also sends a message if a rule that the job did not request was not evaluated."""

RULE_LOG_GROUPS: Final = "STEPWATCH_RULE_LOG_GROUPS"
"""notify: JSON object, rule configuration name -> name of the log group of its evaluator; a list
likewise."""
