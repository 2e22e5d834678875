"""Stop policies, and the tag with which a job gives consent to be stopped."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ALL",
    "ANY",
    "FATAL",
    "NEVER",
    "OBSERVE",
    "OPT_IN",
    "STOP_POLICIES",
    "STOP_SEVERITIES",
    "STOP_TAG",
    "WATCHED",
]

OPT_IN: Final = "opt_in"
"""Jobs that opted in: by `StopTraining` in their `job.json`, or by the tag."""
OBSERVE: Final = "observe"
"""No job."""
WATCHED: Final = "watched"
"""Jobs that write to a watched bucket, except those that opted out."""
ALL: Final = "all"
"""Any training job of the account and Region, except those that opted out."""
STOP_POLICIES: Final = (OPT_IN, OBSERVE, WATCHED, ALL)

ANY: Final = "any"
"""Any finding stops a job."""
FATAL: Final = "fatal"
"""Only findings from which a run does not recover stop a job."""
STOP_SEVERITIES: Final = (ANY, FATAL)

STOP_TAG: Final = "stepwatch:debug-output"
"""Default name of the tag. Its value is the S3 URI of a folder whose findings may stop the job."""
NEVER: Final = "never"
"""Value of the tag on a job that no policy may stop."""
