"""Which file configures a hook, and what becomes of files that are none."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hook_layer.configuration.configuration_file import (
    MAX_CONFIGURATION_BYTES,
    read_configuration_file,
)
from hook_layer.errors import ConfigurationFileNotFoundError, HookConfigurationError
from hook_layer.storage.base import open_store


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], str]:
    def write(name: str) -> str:
        (tmp_path / name).write_text(json.dumps({"LocalPath": name}))
        return str(tmp_path / name)

    return write


def test_the_code_comes_before_our_variable_before_the_originals(
    file: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "hook_layer.configuration.configuration_file.SAGEMAKER_FILE", file("sagemaker")
    )
    variables = {"STEPWATCH_CONFIG": file("own"), "SMDEBUG_CONFIG_FILE_PATH": file("original")}
    found = [read_configuration_file(path, variables) for path in (file("code"), None)]
    del variables["STEPWATCH_CONFIG"]
    found.append(read_configuration_file(None, variables))
    found.append(read_configuration_file(None, {}))
    assert [(f.document["LocalPath"], f.is_own) for f in found] == [
        ("code", False),
        ("own", True),
        ("original", False),
        ("sagemaker", False),
    ]


def test_a_file_may_be_an_object_of_a_store() -> None:
    root = f"memory://configuration-{uuid.uuid4()}/folder"
    open_store(root).put("hook.json", b'{"LocalPath": "/x"}')
    environ = {"STEPWATCH_CONFIG": f"{root}/hook.json"}
    assert read_configuration_file(None, environ).document == {"LocalPath": "/x"}
    environ = {"STEPWATCH_CONFIG": f"{root}/other.json"}
    with pytest.raises(HookConfigurationError, match=r"STEPWATCH_CONFIG=.*does not exist"):
        read_configuration_file(None, environ)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "hook.json"
    path.write_text('{"LocalPath": "/x"}', encoding="utf-8-sig")
    assert read_configuration_file(path).document == {"LocalPath": "/x"}
    path.write_text("", encoding="utf-8-sig")
    with pytest.raises(HookConfigurationError, match="is empty"):
        read_configuration_file(path)


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hook.json"
    path.write_text('{"HookParameters": {"save_interval": 1, "x": 2, "save_interval": 3}}')
    with pytest.raises(HookConfigurationError, match="'save_interval' occurs twice"):
        read_configuration_file(path)


def test_a_file_uri_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "with space.json").write_text('{"LocalPath": "/x"}')
    uri = (tmp_path / "with space.json").as_uri()
    assert read_configuration_file(None, {"STEPWATCH_CONFIG": uri}).document == {"LocalPath": "/x"}


def test_no_file_is_an_error_of_its_own_unless_our_variable_names_it(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.json")
    with pytest.raises(FileNotFoundError, match=r"missing\.json does not exist"):
        read_configuration_file(missing, {})
    with pytest.raises(ConfigurationFileNotFoundError, match="SMDEBUG_CONFIG_FILE_PATH="):
        read_configuration_file(None, {"SMDEBUG_CONFIG_FILE_PATH": missing})
    with pytest.raises(HookConfigurationError, match="STEPWATCH_CONFIG=") as caught:
        read_configuration_file(None, {"STEPWATCH_CONFIG": missing})
    assert not isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"{", "no JSON"),
        (b"[]", "a JSON object expected, list found"),
        (b"null", "a JSON object expected"),
        (b"\xff{}", "no UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "no JSON"),
        (b'{"a": "\\ud800"}', "half of a surrogate pair"),
        (b'{"a": "' + b"x" * MAX_CONFIGURATION_BYTES + b'"}', "longer than the 262144 bytes"),
    ],
)
def test_what_is_no_configuration_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "hook.json"
    path.write_bytes(content)
    with pytest.raises(HookConfigurationError, match=message) as caught:
        read_configuration_file(path, {})
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/stdin", "/", "s3://bucket", "ftp://x/y.json"])
def test_what_is_no_file_is_not_waited_for(path: str) -> None:
    with pytest.raises(HookConfigurationError, match="cannot be read"):
        read_configuration_file(path, {})


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(HookConfigurationError, match="it is not a file"):
        read_configuration_file(tmp_path / "pipe", {})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hook.json"
    path.write_bytes(content)
    try:
        document = read_configuration_file(path, {}).document
    except HookConfigurationError:
        return
    assert document == json.loads(content)


@given(path=st.text(max_size=30))
def test_any_path_is_read_or_refused(path: str) -> None:
    with pytest.raises(HookConfigurationError):
        read_configuration_file(f"/nowhere/{path}", {})


def test_without_any_file_the_error_names_the_variables() -> None:
    with pytest.raises(ConfigurationFileNotFoundError) as caught:
        read_configuration_file(environ={})
    message = str(caught.value)
    assert "debughookconfig.json does not exist" in message
    assert "STEPWATCH_CONFIG" in message
    assert "SMDEBUG_CONFIG_FILE_PATH" in message
