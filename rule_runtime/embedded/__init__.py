"""The embedded target: a folder and two processes, no server and no account.

`live_judge.py` judges a run while it is being stored, by the code that judges it in the cloud;
`watched_script.py` runs a training script, unchanged, with a hook whose tensors it judges.
"""

from __future__ import annotations

__all__: list[str] = []
