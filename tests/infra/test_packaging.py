"""Assets: what is in them, and that equal contents have equal names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from fnmatch import fnmatch
from pathlib import Path

import pytest

from infra import packaging
from infra.bill_of_materials import BILL_NAME
from infra.local.service_environment import service_environment
from lambdas.contracts import environment
from tests.infra.layer_pins import layer_pins

OF_THE_RUNTIME = {
    *("botocore", "boto3", "s3transfer", "jmespath", "urllib3", "dateutil", "six"),
    "backports",  # urllib3 looks there for zstd, which is optional
    "certifi",  # botocore takes it where it is installed, and else its own certificates
}
"""Third-party packages that Lambda's Python runtime brings along."""

PARTS = (
    "hook_layer.format",
    "rule_runtime.detectors",
    "rule_runtime.engine",
    "rule_runtime.facts",
    "rule_runtime.numerics",
    "rule_runtime.rules",
    "rule_runtime.trial",
)
LIST_IMPORTS = (
    f"PARTS = {PARTS!r}"
    """
import sys
before = set(sys.modules)  # of this environment, not of the handlers
import importlib, json, pkgutil
from types import SimpleNamespace
context = SimpleNamespace(
    function_name="f", memory_limit_in_mb=512, invoked_function_arn="arn", aws_request_id="1",
    get_remaining_time_in_millis=lambda: 60_000,
)
record = {"messageId": "1", "eventSource": "aws:sqs", "body": "{}"}  # tells of no object
events = {"evaluate_rule": {"Records": [record]}, "finish_job": {}, "notify": {}, "stop_job": {}}
for function in (*events, "sweep"):
    handler = importlib.import_module(f"lambdas.{function}.handler")
    handler._service()
    if function in events:  # a sweep asks the table whatever its event is
        handler.lambda_handler(events[function], context)
clients = importlib.import_module("lambdas.shared.clients")
for name in clients.__all__:
    if name != "forget":
        getattr(clients, name)()
for part in PARTS:  # what rules come to need later
    package = importlib.import_module(part)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{part}.{module.name}")
modules = {name: sys.modules[name] for name in sys.modules.keys() - before}
print(json.dumps({n: m.__file__ for n, m in modules.items() if getattr(m, "__file__", None)}))
"""
)


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
    assert {path.name for path in (folder / "python").iterdir()} == set(packaging.OWN_PACKAGES)


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


def test_two_folders_have_the_same_layer_with_its_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = []
    for name in ("one", "another folder"):
        venv.create(tmp_path / name / "venv", with_pip=False)
        monkeypatch.setenv("PYTHONPATH", sysconfig.get_path("purelib"))
        monkeypatch.setattr(sys, "executable", str(tmp_path / name / "venv/bin/python"))
        monkeypatch.setattr(packaging, "BUILD", tmp_path / name)
        packaging.prepare_wheels("arm64")
        layers.append(packaging.stage_layer("arm64"))
    assert packaging.digest_folder(layers[0]) == packaging.digest_folder(layers[1])
    bill = json.loads((layers[0] / BILL_NAME).read_text())
    purls = {f"pkg:pypi/{name}@{version}" for name, version in layer_pins().items()}
    assert {component["purl"] for component in bill["components"]} == purls


def test_the_layer_has_the_versions_of_the_constraints_each_with_digests() -> None:
    wheels = packaging.prepare_wheels("arm64")
    constraints = (packaging.ROOT / "constraints.txt").read_text().splitlines()
    pins = layer_pins()
    assert len(pins) == 7
    for name, version in pins.items():
        assert (wheels / f"{name.replace('-', '_')}-{version}.dist-info").exists()
        assert any(line.startswith(f"{name}=={version}") for line in constraints)
    entries = packaging.LAYER_REQUIREMENTS.read_text().split("==")[1:]
    assert all("--hash=sha256:" in entry for entry in entries)


def imported_by_the_handlers() -> dict[str, str]:
    """Return the files of all modules that the handlers have imported after a call, by name."""
    values = {
        environment.RULE_CONFIGURATION_NAME: "ExplodingTensor",
        environment.RULE_PARAMETERS: '{"rule_to_invoke": "ExplodingTensor"}',
        environment.STATE_TABLE_NAME: "states",
        environment.TENSOR_BUCKET_NAMES: "tensors",
        environment.RULE_QUEUE_URLS: '{"ExplodingTensor": "http://127.0.0.1:1/queue"}',
        environment.TOPIC_ARN: "arn:aws:sns:us-east-1:123456789012:alerts",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
    }
    done = subprocess.run(
        [sys.executable, "-c", LIST_IMPORTS],
        env={"PATH": os.environ["PATH"], **service_environment("http://127.0.0.1:1"), **values},
        cwd=packaging.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_layer_has_every_module_that_the_handlers_import() -> None:
    wheels = packaging.prepare_wheels("arm64")
    records = [path.read_text() for path in wheels.glob("*.dist-info/RECORD")]
    in_wheels = {line.partition(",")[0] for record in records for line in record.splitlines()}
    installed = Path(sysconfig.get_path("purelib"))
    missing, packages = [], set()
    for name, file in imported_by_the_handlers().items():
        top = name.partition(".")[0]
        if not Path(file).is_relative_to(installed) or top in OF_THE_RUNTIME:
            continue
        packages.add(top)
        path = Path(file).relative_to(installed)
        # The name of a compiled module names the platform.
        pattern = f"{path.name.partition('.')[0]}.*.so" if path.suffix == ".so" else path.name
        is_there = any((wheels / path.parent).glob(pattern))
        # Another Python has another version of numpy, with other modules in it.
        is_left_out = any(fnmatch(name, str(path.parent / pattern)) for name in in_wheels)
        if not is_there and (is_left_out or not (wheels / top).exists()):
            missing.append(path.as_posix())
    assert missing == []
    assert {"numpy", "aws_lambda_powertools", "google_crc32c"} <= packages
