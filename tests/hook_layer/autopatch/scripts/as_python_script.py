"""Prints what Python shows it, from another folder than the one in which it started."""

import json
import os
import sys
from pathlib import Path

started_in = str(Path.cwd())
os.chdir("/")
print(
    json.dumps(
        {
            "arguments": sys.argv,
            "file": __file__,
            "name": __name__,
            "spec": __spec__ and __spec__.name,
            "package": __package__,
            "line": Path(__file__).read_text().splitlines()[0],
            "path": [part for part in sys.path if part != started_in],
        }
    )
)
raise SystemExit(None)
