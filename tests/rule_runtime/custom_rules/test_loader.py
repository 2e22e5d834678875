"""Loading rules from files: where from, which, and with which parameters."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hook_layer.storage.local import LocalStore
from hook_layer.storage.memory import MemoryStore
from rule_runtime import smdebug_alias
from rule_runtime.cli.evaluation import parse_rule
from rule_runtime.custom_rules.loader import CustomRuleError, load_custom_rule
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.testing.trial_builder import TrialBuilder
from tests.rule_runtime.processes import completed

RULES = Path(__file__).parent / "files"
PLAIN = """
    from rule_runtime import Rule
    from rule_runtime.engine.outcome import Passed


    class Fine(Rule):
        threshold: float = 1.0

        def check(self, step, memory):
            return Passed()
    """
ORIGINAL = """
    from typing import TYPE_CHECKING, Annotated
    from smdebug.rules import Rule
    from rule_runtime.engine.rule import AtLeast

    if TYPE_CHECKING:
        from smdebug.trials import Trial


    class Mine(Rule):
        def __init__(
            self,
            base_trial: Trial,
            bound: Annotated[float, AtLeast(0)],
            action_str: str | None = "",
            names: list[str] = (),
            sizes: set[int] = frozenset(),
            is_strict: bool = False,
            plain=7,
            pair: tuple = (),
            odd: dict = None,
        ):
            super().__init__(base_trial, action_str)
            self.arguments = (bound, names, sizes, is_strict, plain, pair)

        def invoke_at_step(self, step):
            return self.arguments


    class Half(Rule):
        pass


    NOT_A_CLASS = 3


    class NoRule:
        pass
    """


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(code: str = PLAIN, name: str = "mine.py") -> Path:
        path = tmp_path / "rules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(code))
        return path

    return written


def load(path: Path, name: str = "Mine", **parameters: Any) -> Any:
    return load_custom_rule(path, name, parameters, allowed=[path.parent])


class TestPlaces:
    def test_a_file_below_an_allowed_folder_is_loaded(self, write: Callable[..., Path]) -> None:
        path = write(name="deep/er/mine.py")
        for allowed in (path.parents[2], f"{path.parents[2]}/", f"file://{path.parents[2]}"):
            rule = load_custom_rule(path, "Fine", {"threshold": "2"}, allowed=[allowed])
            assert rule.threshold == 2.0  # type: ignore[attr-defined]
        assert load_custom_rule(f"file://{path}", "Fine", allowed=[path.parent])

    @pytest.mark.parametrize("way", ["..", "link", "sibling", "nowhere"])
    def test_a_file_elsewhere_is_not(
        self, write: Callable[..., Path], tmp_path: Path, way: str
    ) -> None:
        path = write()
        (tmp_path / "allowed").mkdir()
        (tmp_path / "allowed" / "link.py").symlink_to(path)
        (tmp_path / "allowed-not").mkdir()
        (tmp_path / "allowed-not" / "mine.py").write_text(path.read_text())
        source = {
            "..": tmp_path / "allowed" / ".." / "rules" / "mine.py",
            "link": tmp_path / "allowed" / "link.py",
            "sibling": tmp_path / "allowed-not" / "mine.py",
            "nowhere": path,
        }[way]
        allowed = [] if way == "nowhere" else [tmp_path / "allowed"]
        with pytest.raises(CustomRuleError, match="is not in a folder that rules may"):
            load_custom_rule(source, "Fine", allowed=allowed)

    def test_a_uri_below_an_allowed_one_is_loaded(self) -> None:
        MemoryStore.from_uri("memory://rules/team/").put("mine.py", textwrap.dedent(PLAIN).encode())
        uri = "memory://rules/team/mine.py"
        for allowed in ("memory://rules", "memory://rules/", "memory://rules/team/"):
            assert load_custom_rule(uri, "Fine", allowed=[allowed])
        for allowed in ("memory://rul", "memory://rules/te", "memory://other/", "/"):
            with pytest.raises(CustomRuleError, match="is not in a folder"):
                load_custom_rule(uri, "Fine", allowed=[allowed])

    def test_one_place_is_no_list_of_places(self, write: Callable[..., Path]) -> None:
        path = write()
        for allowed in (str(path.parent), path.parent, b"/rules"):
            with pytest.raises(TypeError, match=r"allowed is .*a list of folders and URIs"):
                load_custom_rule(path, "Fine", allowed=allowed)

    @pytest.mark.parametrize("place", ["", " ", ".", "rules", "..", "s3://", "file://", "file://a"])
    def test_a_place_is_named_in_full(
        self, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, place: str
    ) -> None:
        path = write()
        monkeypatch.chdir(path.parent)
        with pytest.raises(CustomRuleError, match="an absolute folder or a URI"):
            load_custom_rule(path, "Fine", allowed=[place])

    def test_everything_may_be_allowed(self, write: Callable[..., Path]) -> None:
        for place in ("/", "file:///"):
            assert load_custom_rule(write(), "Fine", allowed=[place])

    @pytest.mark.parametrize("path", ["team/../x.py", "team//x.py", "team/%2e%2e/x.py"])
    def test_a_uri_is_written_plainly(self, path: str) -> None:
        with pytest.raises(CustomRuleError, match="write the URI plainly"):
            load_custom_rule(f"memory://rules/{path}", "Fine", allowed=["memory://rules/team"])

    def test_only_an_existing_short_python_file_is_one(self, write: Callable[..., Path]) -> None:
        path = write()
        with pytest.raises(CustomRuleError, match="there is no such file"):
            load(path.with_name("other.py"))
        with pytest.raises(CustomRuleError, match=r"a Python file is expected, NAME\.py"):
            load(path.with_name("mine.pyc"))
        with pytest.raises(CustomRuleError, match="longer than 1048576 bytes"):
            load(write("#" * (1 << 20) + "\n", "long.py"))
        (path.parent / "folder.py").mkdir()
        with pytest.raises(CustomRuleError, match="there is no such file"):
            load(path.parent / "folder.py")

    def test_a_pinned_file_must_be_that_one(self, write: Callable[..., Path]) -> None:
        path = write()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        pinned = {"allowed": [path.parent], "sha256": digest.upper()}
        assert load_custom_rule(path, "Fine", **pinned)
        path.write_text(path.read_text() + "\n")
        with pytest.raises(CustomRuleError, match=f"but {digest.upper()} is pinned"):
            load_custom_rule(path, "Fine", **pinned)


class TestFiles:
    @pytest.mark.parametrize(
        ("code", "reported"),
        [
            (
                "x = 1\nclass A(:\n",
                r"SyntaxError: invalid syntax \(mine\.py, line 2: class A\(:\)",
            ),
            ("x = 1\n\ny = x / 0\n", r"division by zero \(mine\.py, line 3: y = x / 0\)"),
            ("import helpers_of_mine\n", r"No module named 'helpers_of_mine' \(mine\.py, line 1"),
            ("from . import other\n", "attempted relative import"),
            ("import sys\nsys.exit()\n", r"SystemExit \(mine\.py, line 2: sys\.exit\(\)\)"),
            ("x = '\0'\n", "cannot|source code|null"),
        ],
    )
    def test_code_that_fails_is_reported_with_its_line(
        self, write: Callable[..., Path], code: str, reported: str
    ) -> None:
        path = write()
        path.write_text(code)
        with pytest.raises(CustomRuleError, match=reported):
            load(path)

    def test_a_rule_is_found_by_its_name(self, write: Callable[..., Path]) -> None:
        path = write(ORIGINAL)
        with pytest.raises(CustomRuleError, match="there is no rule 'Mien'; did you mean 'Mine'"):
            load(path, "Mien")
        with pytest.raises(CustomRuleError, match="the rule Half lacks the method invoke_at_step"):
            load(path, "Half")
        for name in ("NOT_A_CLASS", "NoRule"):
            with pytest.raises(CustomRuleError, match=f"{name} is not a rule; write `class {name}"):
                load(path, name)

    def test_a_file_is_run_once_until_it_is_changed(self, write: Callable[..., Path]) -> None:
        path = write()
        first = load(path, "Fine")
        assert type(load(path, "Fine")) is type(first)
        path.write_text(path.read_text().replace("1.0", "3.0"))
        assert load(path, "Fine").threshold == 3.0
        assert type(load(write(name="copy.py"), "Fine")) is not type(first)

    def test_the_alias_is_on_only_for_files_that_ask_for_it(
        self, write: Callable[..., Path]
    ) -> None:
        load(write(), "Fine")
        assert not smdebug_alias.is_installed()
        load(write(ORIGINAL), bound="1")
        assert smdebug_alias.is_installed()


class TestParameters:
    def test_of_ours_are_coerced(self) -> None:
        rule: Any = load(RULES / "native.py", "QuietGradient", threshold="2", names="^a,b{1,2}")
        assert (rule.threshold, rule.patience, rule.names) == (2.0, 1, ("^a", "b{1", "2}"))
        with pytest.raises(ParameterError, match="parameter patience is 0, but must be at least 1"):
            load(RULES / "native.py", "QuietGradient", patience="0")
        with pytest.raises(ParameterError, match="no parameter 'treshold'; did you mean 'thresh"):
            load(RULES / "native.py", "QuietGradient", treshold="1")

    def test_of_the_originals_are_coerced_by_annotation(self, write: Callable[..., Path]) -> None:
        path = write(ORIGINAL)
        text = {"bound": "1e-3", "names": "a, b", "sizes": "1,2", "is_strict": "True"}
        rule = load(path, **text, plain="8", pair="x,y", rule_to_invoke="Mine", base_trial="x")
        run = TrialBuilder(MemoryStore())
        run.step(0, {"w": [1.0]})
        assert json.loads(run.evaluate(rule).memory["attributes"])["arguments"] == [
            "tuple",
            [0.001, ["list", ["a", "b"]], ["set", [1, 2]], True, "8", ["tuple", ["x", "y"]]],
        ]

    @pytest.mark.parametrize(
        ("parameters", "reported"),
        [
            ({}, "Mine needs the parameter 'bound'"),
            ({"bound": "high"}, "Mine: parameter bound is 'high', but must be a number"),
            ({"bound": "-1"}, "Mine: parameter bound is -1.0, but must be at least 0"),
            ({"bound": "1", "sizes": "1,b"}, "Mine: parameter sizes is '1,b', but must be"),
            (
                {"bound": "1", "is_strict": "oui"},
                "parameter is_strict is 'oui', but must be true or false",
            ),
            (
                {"bound": "1", "odd": "x"},
                "parameter odd is 'x', but parameters of type .*not supported",
            ),
            ({"bound": "1", "boundd": "1"}, "no parameter 'boundd'; did you mean 'bound'"),
            ({"bound": "1", "other_trial_0": "x"}, "Mine takes no other trials"),
            ({"bound": "1", "other_trials": "x"}, "other_trials.*other_trial_0, other_trial_1"),
            ({"bound": "1", "other_trial_x": "x"}, "Mine takes no parameter 'other_trial_x'"),
            ({"bound": "1", "start_step": "-1"}, "parameter start_step is -1"),
            ({"bound": "1", "action_json": "{"}, None),
        ],
    )
    def test_that_do_not_fit_are_reported(
        self, write: Callable[..., Path], parameters: dict[str, str], reported: str | None
    ) -> None:
        path = write(ORIGINAL)
        if reported is None:  # the class itself reads its actions, when it is made
            run = TrialBuilder(MemoryStore())
            run.step(0, {"w": [1.0]})
            assert "are not JSON" in run.evaluate(load(path, **parameters)).counts.failure
        else:
            with pytest.raises(ParameterError, match=reported):
                load(path, **parameters)

    def test_other_trials_are_named_one_by_one(self) -> None:
        for parameters in ({}, {"other_trials": "a,b"}, {"other_trials": ["a"]}):
            with pytest.raises(ParameterError, match="other_trial_0"):
                load(RULES / "required.py", "BehindTheOther", **parameters)
        assert load(RULES / "required.py", "BehindTheOther", other_trial_0="a")

    @pytest.mark.parametrize(
        "arguments", ["self", "self, **more", "self, *, base_trial", "", "*, a"]
    )
    def test_a_constructor_takes_the_trial(
        self, write: Callable[..., Path], arguments: str
    ) -> None:
        path = write(
            f"""
            from smdebug.rules import Rule

            class Mine(Rule):
                def __init__({arguments}):
                    pass

                def invoke_at_step(self, step):
                    return False
            """
        )
        with pytest.raises(ParameterError, match=r"Mine\.__init__ must take base_trial first"):
            load(path)

    def test_a_constructor_may_take_any_arguments(self, write: Callable[..., Path]) -> None:
        path = write(
            """
            from smdebug.rules import Rule

            class Mine(Rule):
                def __init__(self, *arguments, **more):
                    super().__init__(*arguments, **more)

                def invoke_at_step(self, step):
                    return len(self.other_trials) == 2
            """
        )
        rule = load(path, other_trial_0="a", other_trial_1="b")
        jobs = {}
        for name in ("a", "b", "mine"):
            jobs[name] = TrialBuilder(LocalStore(path.parent / "jobs" / name))
            jobs[name].step(0, {"w": [1.0]})
        assert jobs["mine"].evaluate(rule).status is RuleStatus.ISSUES_FOUND

    def test_keywords_of_any_name_may_be_taken(self, write: Callable[..., Path]) -> None:
        path = write(
            """
            from smdebug.rules import Rule

            class Mine(Rule):
                def __init__(self, base_trial, **more):
                    super().__init__(base_trial)
                    self.more = more

                def invoke_at_step(self, step):
                    return False
            """
        )
        rule = load(path, a="1", start_step="None")
        run = TrialBuilder(MemoryStore())
        run.step(0, {"w": [1.0]})
        more = json.loads(run.evaluate(rule).memory["attributes"])["more"]
        assert more == ["dict", [["a", "1"]]]


class TestCommandLine:
    def test_a_rule_of_a_file_is_named_by_it(self, write: Callable[..., Path]) -> None:
        path = write(name="my rule.py")
        name, rule = parse_rule(f"{path}:Fine:threshold=2.5")
        assert (name, rule.threshold) == (f"{path}:Fine:threshold=2.5", 2.5)  # type: ignore[attr-defined]
        relative = os.path.relpath(path)
        assert parse_rule(f"{relative}:Fine")[1].threshold == 1.0  # type: ignore[attr-defined]

    def test_a_link_to_a_rule_is_followed(
        self, write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        link = tmp_path / "link.py"
        link.symlink_to(write())
        assert parse_rule(f"{link}:Fine")[0] == f"{link}:Fine"
        monkeypatch.setenv("HOME", str(tmp_path))
        assert parse_rule("~/rules/mine.py:Fine")[0] == "~/rules/mine.py:Fine"

    def test_other_rules_are_named_as_before(self) -> None:
        name, _ = parse_rule("VanishingGradient:threshold=1e-8")
        assert name == "VanishingGradient:threshold=1e-8"

    @pytest.mark.parametrize(
        ("text", "reported"),
        [
            ("s3://bucket/mine.py:Mine", "copy it here first"),
            ("missing.py:Mine:a=1", "there is no such file"),
            ("mine.py:Mine:oops", "write parameters as"),
            ("VanishingGradient:names=a.py:b=3", "takes no parameter 'names'"),
        ],
    )
    def test_mistakes_are_reported(self, text: str, reported: str) -> None:
        with pytest.raises(ValueError, match=reported):
            parse_rule(text)

    def test_the_command_judges_by_it(self, tmp_path: Path) -> None:
        run = TrialBuilder(LocalStore(tmp_path / "run"))
        run.collections(gradients=("^gradient",))
        run.step(0, {"gradient/a": [1e-9]})
        run.end()
        done = completed(
            [
                *(sys.executable, "-c", "from rule_runtime.cli import main; main()"),
                *("evaluate", str(tmp_path / "run"), "--output", "json"),
                *("--rule", f"{RULES / 'documented.py'}:QuietGradientRule:threshold=1e-3"),
            ]
        )
        assert done.returncode == 1, done.stderr
        assert '"RuleEvaluationStatus": "IssuesFound"' in done.stdout


def test_a_real_run_by_the_public_names(tmp_path: Path) -> None:
    run = TrialBuilder(MemoryStore())
    run.step(0, {"gradient/a": [1e-9]})
    rule = load_custom_rule(RULES / "native.py", "QuietGradient", allowed=[RULES])
    assert run.evaluate(rule).status is RuleStatus.ISSUES_FOUND
