"""A mistake in a user's rule: its line and what was expected are shown, and the status is 2."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.rule_runtime.cli.invoking import invoke, trial_in

HEAD = """import stepwatch
from stepwatch import IssueFound, Passed, Rule


class MyRule(Rule):
"""
CHECK = "    def check(self, step, memory):\n"
PASSES = f"{CHECK}        return Passed()\n"
OUTCOMES = 'must return Passed(), IssueFound("loss 12.3 above 5") or NotEvaluated('
SIGNATURE = "must begin with `def check(self, step, memory):`"
KINDS = "float, int, bool, str, tuple[str, ...] or Literal[...]"

MISTAKES_OF_CHECK = {
    "returns None at the end": (
        "        if step.step > 100:\n            return Passed()\n",
        ("check returned None, but", OUTCOMES, "line 6: def check("),
    ),
    "returns True": (
        "        return True\n",
        ("check returned True, but", OUTCOMES, "line 6: def check("),
    ),
    "returns a class": (
        "        return Passed\n",
        ("check returned the class Passed, but", OUTCOMES, "line 6: def check("),
    ),
    "yields": ("        yield Passed()\n", ("check returned a generator, but", OUTCOMES)),
    "finding is a number": (
        "        return IssueFound(12.3)\n",
        ("IssueFound got 12.3, but takes a text", "line 7: return IssueFound(12.3)"),
    ),
    "finding is empty": (
        "        return IssueFound(' ')\n",
        ("IssueFound got an empty text: say what was found", "line 7: return IssueFound(' ')"),
    ),
    "value is a text": (
        "        return IssueFound('high', value='12')\n",
        ("the value of a finding is '12', but must be a number", "line 7: return IssueFound("),
    ),
    "tensor is a number": (
        "        return IssueFound('high', tensor=3)\n",
        ("the tensor of a finding is 3, but must be a text", "line 7: return IssueFound("),
    ),
    "raises": (
        "        return {}['loss']\n",
        ("KeyError: 'loss'", "line 7: return {}['loss']"),
    ),
    "exception without a text": (
        "        class Bad(Exception):\n            __str__ = None\n        raise Bad\n",
        ("Bad (my_rule.py, line 9: raise Bad)",),
    ),
    "misspelt name": (
        "        return Pased()\n",
        ("name 'Pased' is not defined; did you mean 'Passed'?", "line 7: return Pased()"),
    ),
    "name of stepwatch": (
        "        return NotEvaluated('no')\n",
        (
            "write `from stepwatch import NotEvaluated`",
            "line 7: return NotEvaluated('no')",
        ),
    ),
    "parameter without self": (
        "        return Passed() if bound else Passed()\n\n    bound: float = 1.0\n",
        ("name 'bound' is not defined; did you mean 'self.bound'?", "line 7: return"),
    ),
    "misspelt method": (
        "        return step.tensor('w')\n",
        ("no attribute 'tensor'; did you mean 'tensors'?", "line 7: return step.tensor('w')"),
    ),
    "no such statistic": (
        "        return step.tensors().largest('norm')\n",
        ("there is no statistic 'norm'; valid are size,", "line 7: return step.tensors()"),
    ),
    "keeps state in the rule": (
        "        self.seen = 1\n        return Passed()\n",
        ("a rule is frozen: keep what changes in memory", "line 7: self.seen = 1"),
    ),
    "memory of the wrong kind": (
        "        memory['step'] = step\n        return Passed()\n",
        ("put a value into memory that cannot be stored", "not a StepView", "line 6: def check("),
    ),
    "ends the process": ("        exit(0)\n", ("SystemExit: 0", "line 7: exit(0)")),
}

MISTAKES_OF_CLASS = {
    "too few arguments": (
        "    def check(self, step):\n        return Passed()\n",
        (f"MyRule.check {SIGNATURE}", "line 6: def check(self, step):"),
    ),
    "too many arguments": (
        "    def check(self, step, memory, loss):\n        return Passed()\n",
        (f"MyRule.check {SIGNATURE}", "line 6: def check(self, step, memory, loss):"),
    ),
    "no method": (
        "    bound: float = 1.0\n",
        ("lacks the method check; write `def check(self, step, memory):`", "line 5: class MyRule"),
    ),
    "misspelt annotation": (
        f"    bound: flot = 5.0\n{PASSES}",
        ("name 'flot' is not defined", KINDS, "line 6: bound: flot = 5.0"),
    ),
    "unknown kind of parameter": (
        f"    names: list[str] = ()\n{PASSES}",
        ("the type of the parameter names must be", KINDS, "line 6: names: list[str] = ()"),
    ),
    "list as default": (
        f"    names: list[str] = []\n{PASSES}",
        ("several values are a tuple: `names: tuple[str, ...] = ()`", "line 5: class MyRule"),
    ),
    "default of another type": (
        f"    bound: float = 'high'\n{PASSES}",
        ("bound is 'high', but must be a number", "line 6: bound: float = 'high'"),
    ),
    "constructor": (
        f"    def __init__(self, bound):\n        pass\n\n{PASSES}",
        ("declare parameters in the class instead: `bound: float = 5.0`", "line 6: def __init__("),
    ),
    "collection is a text": (
        f"    bound: float = 1.0\n    collections = 'weights'\n{PASSES}",
        (
            "collections='weights' is not valid; write a tuple of names, such as",
            "line 7: collections =",
        ),
    ),
    "collection is a number": (
        f"    collections = (5,)\n{PASSES}",
        ("5 is not a CollectionConfig; write a tuple of names", "line 6: collections = (5,)"),
    ),
    "parameters of a collection": (
        f"    collections = (stepwatch.CollectionConfig('weights', 'every 10'),)\n{PASSES}",
        ("must be a dict, such as", "line 6: collections = (stepwatch.CollectionConfig("),
    ),
    "requires answers a text": (
        f"    def requires(self):\n        return 'weights'\n\n{PASSES}",
        ("collections='weights' is not valid; write a tuple", "line 6: def requires(self):"),
    ),
    "requires raises": (
        f"    def requires(self):\n        return self.bound\n\n{PASSES}",
        ("AttributeError", "line 7: return self.bound"),
    ),
    "sets an attribute when it is made": (
        f"    def __post_init__(self):\n        self.seen = 0\n\n{PASSES}",
        ("a rule is frozen", "line 7: self.seen = 0"),
    ),
}

MISTAKES_OF_FILE = {
    "syntax": (f"{HEAD}{CHECK}        return Passed(\n", ("was never closed", "line 7: return")),
    "unknown name": (
        f"{HEAD}    collections = (weights,)\n{PASSES}",
        ("name 'weights' is not defined", "line 6: collections = (weights,)"),
    ),
    "missing import of all names": (
        "class MyRule(Rule):\n    pass\n",
        ("write `from stepwatch import Rule` at the top", "line 1: class MyRule(Rule):"),
    ),
    "misspelt import": (
        "from stepwatch import Rul\n",
        ("did you mean 'Rule'?", "line 1: from stepwatch import Rul"),
    ),
    "misspelt module": (
        "import stepwach\n",
        ("did you mean 'stepwatch'?", "line 1: import stepwach"),
    ),
    "another class": (
        f"{HEAD.replace('MyRule', 'MyRuel')}{PASSES}",
        ("there is no rule 'MyRule'; did you mean 'MyRuel'?", "line 5: class MyRuel(Rule):"),
    ),
    "no class": ("x = 1\n", ("my_rule.py: there is no rule 'MyRule'; write `class MyRule(",)),
    "no rule": (
        "class MyRule:\n    pass\n",
        ("MyRule is not a rule; write `class MyRule(stepwatch.Rule):`", "line 1: class MyRule:"),
    ),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    trial = trial_in(folder / "run")
    for step in range(3):
        trial.step(step, {"layer.weight": np.float64([3, 12 + step]), "loss": np.float64(12.3)})
    trial.end()
    return folder / "run"


def without_frame(output: str) -> str:
    """Return what a command prints with the cells of tables on one line."""
    return re.sub(r" *│\n?[ │]*", " ", output)


def shown(run: Path, folder: Path, code: str, parameters: str = "") -> str:
    """Return what the command prints of a rule with a mistake, on one line."""
    file = folder / "my_rule.py"
    file.write_text(code)
    status, output = invoke("evaluate", run, "--rule", f"{file}:MyRule{parameters}")
    assert status == 2, output
    assert "error of Stepwatch" not in output
    assert "Traceback" not in output
    return without_frame(output)


@pytest.mark.parametrize("name", MISTAKES_OF_CHECK)
def test_a_mistake_in_check(run: Path, tmp_path: Path, name: str) -> None:
    body, expected = MISTAKES_OF_CHECK[name]
    output = shown(run, tmp_path, f"{HEAD}{CHECK}{body}")
    (line,) = [line for line in output.splitlines() if line.startswith("stepwatch: MyRule failed")]
    assert all(part in line for part in (*expected, "(my_rule.py, line ")), line


@pytest.mark.parametrize("name", MISTAKES_OF_CLASS)
def test_a_mistake_in_the_class(run: Path, tmp_path: Path, name: str) -> None:
    body, expected = MISTAKES_OF_CLASS[name]
    output = shown(run, tmp_path, f"{HEAD}{body}")
    assert all(part in output for part in (*expected, "(my_rule.py, line ")), output


@pytest.mark.parametrize("name", MISTAKES_OF_FILE)
def test_a_mistake_in_the_file(run: Path, tmp_path: Path, name: str) -> None:
    code, expected = MISTAKES_OF_FILE[name]
    output = shown(run, tmp_path, code)
    assert all(part in output for part in expected), output


def test_a_missing_import(run: Path, tmp_path: Path) -> None:
    code = HEAD.replace("import stepwatch\n", "").replace("IssueFound, ", "")
    output = shown(run, tmp_path, f"{code}{CHECK}        return IssueFound('high')\n")
    reported = without_frame(output)
    assert "name 'IssueFound' is not defined; write `from stepwatch import IssueFound`" in reported
    assert "line 6: return IssueFound('high')" in reported


def test_a_parameter_without_a_type(run: Path, tmp_path: Path) -> None:
    output = shown(run, tmp_path, f"{HEAD}    bound = 5.0\n{PASSES}", ":bound=3")
    assert "MyRule.bound is no parameter without a type; write `bound: float" in output
    assert "(my_rule.py, line 6: bound = 5.0)" in output


def test_a_misspelt_collection_is_named_and_nothing_is_judged(run: Path, tmp_path: Path) -> None:
    """It is no error, for a training script may fill a collection of its own."""
    body = "        rows = step.tensors(collections=self.collections)\n"
    body += "        return Passed() if rows else stepwatch.NotEvaluated('nothing saved')\n"
    output = shown(run, tmp_path, f"{HEAD}    collections = ('wieghts',)\n{CHECK}{body}")
    assert (
        "stepwatch: MyRule: hooks fill no collection 'wieghts'; did you mean 'weights'?" in output
    )
    assert "(my_rule.py, line 6: collections = ('wieghts',))" in output
    assert "there is no collection 'wieghts'; did you mean 'weights'?" in without_frame(output)


def test_a_tensor_that_does_not_exist_is_not_evaluated(run: Path, tmp_path: Path) -> None:
    output = shown(run, tmp_path, f"{HEAD}{CHECK}        return step.value('los')\n")
    assert "Value for tensor los is not available" in output
    assert "Did you mean 'loss'?" in output


def test_a_finding_may_be_a_text(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "my_rule.py"
    file.write_text(f"{HEAD}{CHECK}        return IssueFound('loss 12.3 above 5')\n")
    status, output = invoke("evaluate", run, "--rule", f"{file}:MyRule")
    assert status == 1
    assert "loss 12.3 above 5 (worker_0, TRAIN)" in output
    assert "Seen at 3 steps, 0 to 2." in " ".join(without_frame(output).split())


def test_a_misspelled_collection_is_refused_before_the_training(tmp_path: Path) -> None:
    file = tmp_path / "my_rule.py"
    file.write_text(f"{HEAD}    collections = ('wieghts',)\n{PASSES}")
    script, out_dir = tmp_path / "train.py", tmp_path / "session"
    script.write_text("open('trained', 'w')")
    status, output = invoke(
        *("run", "--rule", f"{file}:MyRule", "--out-dir", out_dir, "--", "python", script)
    )
    assert status == 2
    assert "MyRule: there is no collection 'wieghts'; did you mean 'weights'?" in output
    assert not out_dir.exists()


def test_a_required_parameter_is_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(f"{HEAD}    bound: float\n{PASSES}")
    trial_in(Path("run")).step(0, {"loss": [1.0]})
    assert invoke("evaluate", "run", "--rule", "mine.py:MyRule:bound=3")[0] == 0
    expected = "stepwatch: MyRule needs the parameter 'bound'\n"
    assert invoke("evaluate", "run", "--rule", "mine.py:MyRule") == (2, expected)
