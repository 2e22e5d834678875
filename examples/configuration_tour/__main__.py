"""Train once for each thing that can be configured, and tell what came of it.

python -m examples.configuration_tour [FOLDER]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from examples.configuration_tour.checks import mistakes
from examples.configuration_tour.refused import MISTAKES, refusal
from examples.configuration_tour.run import Ran, run
from examples.configuration_tour.stops import COLLECTIONS, STOPS


def main(folder: Path) -> int:
    """Go through all stops; return 0 if each of them came to what it must."""
    wrong = []
    for stop in STOPS:
        print(f"\n== {stop.name}: {stop.about}\n")
        print("CreateTrainingJob:", json.dumps(stop.request(), indent=2))
        ran = run(stop, folder)
        print_run(ran)
        wrong += mistakes(ran)
    print("\n== the kill switch: USE_SMDEBUG=0 in the environment of a job that has a hook\n")
    killed = run(COLLECTIONS, folder / "kill-switch", USE_SMDEBUG="0")
    print_run(killed)
    wrong += [f"the kill switch: saved is {killed.saved()}"] if killed.saved() else []
    print("\n== what is refused before a job costs anything\n")
    for what, mistake in MISTAKES.items():
        told = refusal(mistake, folder)
        print(f"{what}: {told}")
        wrong += [] if told else [f"{what} is not refused"]
    for text in wrong:
        print(f"tour: FAILED: {text}")
    print(f"\ntour: {'failed' if wrong else 'ok'}")
    return 1 if wrong else 0


def print_run(ran: Ran) -> None:
    """Print what a stop's training saved, and what became of its rules."""
    environment = ", ".join(f"{name}={value}" for name, value in ran.prepared.environment.items())
    print(f"environment of the job: {environment}")
    print(f"{ran.num_steps} steps were made{': ' * bool(ran.stopped)}{ran.stopped}")
    for saved in ran.saved():
        print(
            f"saved: {saved.collection} ({saved.num_tensors} tensors, {saved.form}): "
            f"TRAIN {saved.train}, EVAL {saved.evaluation}"
        )
    if not ran.saved():
        print("saved: nothing")
    for file in ran.tensorboard_files():
        print(f"TensorBoard: {file}")
    for rule in ran.summary():
        details = rule["StatusDetails"].strip().rpartition("\n")[2]
        print(f"{rule['RuleConfigurationName']}: {rule['RuleEvaluationStatus']}: {details}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory(prefix="stepwatch-tour-") as temporary:
        sys.exit(main(Path(temporary)))
