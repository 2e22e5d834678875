"""Reads the state file of a checkpoint directory with the original client, and adds a state to it.

Arguments: the directory. Prints the state that the original would go on from.
"""

import json
import os
import sys
from pathlib import Path

folder = Path(sys.argv[1])
config = folder.with_suffix(".json")
config.write_text(json.dumps({"LocalPath": str(folder)}))
os.environ["CHECKPOINT_CONFIG_FILE_PATH"] = str(config)

from smdebug.core.state_store import StateStore  # noqa: E402 - reads the environment

store = StateStore()
print(json.dumps(store.get_last_saved_state()))
store.update_state(
    {
        "training-run": 3,
        "latest-global-step-saved": 40,
        "latest-global-step-seen": 42,
        "latest-mode-step": {"GLOBAL": 42, "TRAIN": 40, "EVAL": 1},
    }
)
