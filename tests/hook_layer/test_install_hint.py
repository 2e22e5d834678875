"""How messages say to install an extra: one constant decides for all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hook_layer import install_hint

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hook_layer", "rule_runtime", "stepwatch", "lambdas", "infra", "examples")


def test_a_checkout_is_named_until_an_index_has_stepwatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_hint, "IS_PUBLISHED", False)
    assert install_hint.install_hint("aws") == "pip install '.[aws]' in a checkout of Stepwatch"
    monkeypatch.setattr(install_hint, "IS_PUBLISHED", True)
    assert install_hint.install_hint("aws") == "pip install 'stepwatch[aws]'"
    assert install_hint.install_hint("cli", "aws") == "pip install 'stepwatch[cli,aws]'"


def test_pytorch_comes_without_cuda_where_there_is_no_gpu() -> None:
    assert (
        install_hint.install_command("torch", "cli", "report")
        == "pip install '.[torch,cli,report]'"
    )
    index = "--extra-index-url https://download.pytorch.org/whl/cpu"
    assert f"pip install {index} '.[torch,cli,report]'" == install_hint.install_command(
        "torch", "cli", "report", cpu=True
    )


def test_no_other_module_names_the_package_on_an_index() -> None:
    found = [
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if "stepwatch[" in path.read_text() and path.name != "install_hint.py"
    ]
    assert found == []


@pytest.mark.parametrize(
    ("missing", "module", "extra"),
    [("torch", "hook_layer.pytorch", "torch"), ("botocore", "hook_layer.storage.s3", "aws")],
)
def test_a_missing_package_is_named_with_its_extra(missing: str, module: str, extra: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith(install_hint.install_hint(extra))
