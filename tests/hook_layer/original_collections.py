"""Prints what the original's hook makes of configuration files; run by its environment."""

from __future__ import annotations

import json
import sys

if __name__ == "__main__":
    from smdebug.pytorch import Hook

    made = []
    for path in sys.argv[1:]:
        hook = Hook.create_from_json_file(path)
        hook._prepare_collections()
        made.append(
            {
                "include": sorted(hook.include_collections),
                "collections": hook.collection_manager.to_json_dict()["collections"],
            }
        )
    print(json.dumps(made))
