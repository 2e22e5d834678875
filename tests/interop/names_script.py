"""Print the public names of classes of the original client, as a JSON object.

    python names_script.py [--alias] smdebug.trials.Trial smdebug.pytorch.Hook ...

With --alias, `smdebug` is Stepwatch.
"""

import importlib
import json
import sys


def public_names(path):
    """Return the public attributes of the class at a dotted path, without those of instances."""
    module, _, name = path.rpartition(".")
    found = dir(getattr(importlib.import_module(module), name))
    return sorted(each for each in found if not each.startswith("_"))


def main(arguments):
    """Print the names of each class."""
    if arguments[0] == "--alias":
        importlib.import_module("rule_runtime.smdebug_alias").install(replace=True)
        arguments = arguments[1:]
    print("names:" + json.dumps({path: public_names(path) for path in arguments}))


if __name__ == "__main__":
    main(sys.argv[1:])
