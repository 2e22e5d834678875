"""Runs and evaluates training scripts on one machine: a folder and two processes, no server.

`live_judge.py` evaluates a run while it is stored, with the code of the cloud evaluators;
`watched_script.py` runs an unchanged training script with a hook and evaluates its runs.
"""

from __future__ import annotations

__all__: list[str] = []
