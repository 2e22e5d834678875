"""Assets: what is in them, and that equal contents have equal names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from infra import packaging


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build folder of the test's own."""
    monkeypatch.setattr(packaging, "BUILD", tmp_path)
    return tmp_path


def test_function_asset_is_the_package_without_caches(build: Path) -> None:
    folder = packaging.stage_function()
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert "lambdas/contracts/environment.py" in names
    assert {name.split("/")[0] for name in names} == {"lambdas"}
    assert not [name for name in names if "__pycache__" in name]


def test_layer_without_wheels_holds_our_packages_only(build: Path) -> None:
    folder = packaging.stage_layer("arm64", with_wheels=False)
    assert {path.name for path in (folder / "python").iterdir()} == {"hook_layer", "rule_runtime"}


def test_staging_twice_gives_the_same_folder(build: Path) -> None:
    first = packaging.stage_function()
    assert packaging.stage_function() == first
    assert [path.name for path in build.iterdir()] == ["assets"]


def test_digest_covers_names_and_contents(tmp_path: Path) -> None:
    folder, other = tmp_path / "a", tmp_path / "b"
    folder.mkdir()
    (folder / "x.py").write_text("1")
    shutil.copytree(folder, other)
    digest = packaging.digest_folder(folder)
    assert packaging.digest_folder(other) == digest
    (other / "x.py").write_text("2")
    assert packaging.digest_folder(other) != digest
    (other / "x.py").write_text("1")
    (other / "x.py").rename(other / "y.py")
    assert packaging.digest_folder(other) != digest


def test_missing_wheels_say_what_to_run(build: Path) -> None:
    with pytest.raises(packaging.PackagingError, match=r"python -m infra.packaging --arch.* arm64"):
        packaging.stage_layer("arm64")


def test_wheels_are_for_the_functions_platform() -> None:
    wheels = packaging.prepare_wheels("arm64")
    compiled = [path.name for path in wheels.rglob("*.so")]
    assert compiled
    assert not [name for name in compiled if "x86_64" in name]
    assert [name for name in compiled if "cpython-314-aarch64" in name]
    assert {"numpy", "aws_lambda_powertools", "google_crc32c"} <= {p.name for p in wheels.iterdir()}
    assert not (wheels / "boto3").exists()
    assert not list(wheels.rglob("tests"))
    total = sum(path.stat().st_size for path in wheels.rglob("*") if path.is_file())
    assert total < 60 * 2**20, "unzipped functions and layers may not exceed 250 MiB together"


def test_pins_are_those_of_the_constraints_file() -> None:
    wheels = packaging.prepare_wheels("arm64")
    pins = packaging.CONSTRAINTS.read_text().splitlines()
    for name in ("aws-lambda-powertools", "google-crc32c", "typing-extensions"):
        (version,) = [pin.split("==")[1] for pin in pins if pin.startswith(f"{name}==")]
        assert (wheels / f"{name.replace('-', '_')}-{version}.dist-info").exists()
