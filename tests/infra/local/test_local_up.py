"""`stepwatch local up`: the deployed stack, for as long as somebody plays with it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
STEPWATCH = Path(sys.executable).parent / "stepwatch"


def test_it_can_be_used_as_it_says_until_it_is_interrupted() -> None:
    command = [str(STEPWATCH), "local", "up", "--context", "stepwatch:stop_rules=NonFinite"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            exports: dict[str, str] = {}
            for line in process.stdout:
                found = re.fullmatch(r"export (\w+)=(.*)\n", line)
                if found:
                    exports[found[1]] = found[2]
                elif exports:
                    break
            place = exports["STEPWATCH_OUT_DIR"].rpartition("/my-job")[0]
            asked = subprocess.run(
                [str(STEPWATCH), "doctor", place, "--stack", "Stepwatch-dev", "--output", "json"],
                env={**os.environ, **exports},
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    told = {each["subject"]: each["told"] for each in json.loads(asked.stdout)}
    assert told["stack Stepwatch-dev"] == "CREATE_COMPLETE"
    assert told[f"bucket {place.removeprefix('s3://')}"] == "the stack watches it"
    assert told[f"{place}/"] == "an object was written, listed, read and removed"


def test_without_a_checkout_it_says_what_is_needed() -> None:
    code = (
        "import sys; sys.modules['infra'] = None; sys.argv[1:] = ['local', 'up']\n"
        "from rule_runtime.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "run this in a checkout" in done.stderr
