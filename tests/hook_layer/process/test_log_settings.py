from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from hook_layer.errors import HookConfigurationError
from hook_layer.process.log_settings import apply_log_settings


@pytest.fixture(autouse=True)
def log() -> Iterator[logging.Logger]:
    log = logging.getLogger("stepwatch")
    level, handlers = log.level, list(log.handlers)
    yield log
    log.setLevel(level)
    for handler in set(log.handlers) - set(handlers):
        log.removeHandler(handler)
        handler.close()


@pytest.mark.parametrize(
    ("value", "loud", "quiet"),
    [("info", logging.INFO, logging.DEBUG), (" ERROR ", logging.ERROR, logging.WARNING)],
)
def test_the_level(log: logging.Logger, value: str, loud: int, quiet: int) -> None:
    apply_log_settings({"SMDEBUG_LOG_LEVEL": value})
    assert log.isEnabledFor(loud)
    assert not log.isEnabledFor(quiet)


def test_off_is_nothing_at_all(log: logging.Logger) -> None:
    apply_log_settings({"SMDEBUG_LOG_LEVEL": "off"})
    assert not log.isEnabledFor(logging.CRITICAL)


def test_without_variables_nothing_is_touched(log: logging.Logger) -> None:
    before = (log.level, list(log.handlers))
    apply_log_settings({})
    assert (log.level, log.handlers) == before


def test_a_level_that_is_none() -> None:
    with pytest.raises(HookConfigurationError, match="did you mean 'info'"):
        apply_log_settings({"SMDEBUG_LOG_LEVEL": "infoo"})


def test_the_file_gets_each_message_once(log: logging.Logger, tmp_path: Path) -> None:
    for _ in range(2):
        apply_log_settings({"SMDEBUG_LOG_PATH": str(tmp_path / "log")})
    log.error("the message")
    assert (tmp_path / "log").read_text().count("the message") == 1


def test_a_file_that_cannot_be_written_is_no_reason_to_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    apply_log_settings({"SMDEBUG_LOG_PATH": str(tmp_path / "missing" / "log")})
    assert "SMDEBUG_LOG_PATH" in caplog.text
