"""Checks the installed packages and the environment variables for hooks."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import metadata
from typing import Final

from hook_layer.autopatch.startup_file import is_on
from hook_layer.configuration.configuration_file import read_configuration_file
from hook_layer.configuration.hook_json import load_hook_configuration
from hook_layer.configuration.job import hook_enabled
from hook_layer.errors import ConfigurationFileNotFoundError, HookConfigurationError
from hook_layer.frameworks import FRAMEWORKS
from hook_layer.install_hint import install_hint
from rule_runtime.doctor.finding import Finding, Verdict

__all__ = ["installation_findings", "library_version"]

_EXTRAS: Final = {
    "aws": ("boto3",),
    "cli": ("jinja2", "rich", "typer"),
    "report": ("jinja2", "matplotlib", "pandas"),
    "ui": ("jinja2", "starlette", "uvicorn"),
}


def library_version() -> str:
    """Return the installed version of Stepwatch."""
    return metadata.version("stepwatch")


def installation_findings() -> Iterator[Finding]:
    """Yield findings on this Python and its environment."""
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Finding("stepwatch", Verdict.OK, f"{library_version()}, Python {python}")
    yield _frameworks()
    for extra, distributions in _EXTRAS.items():
        missing = [name for name in distributions if _version(name) is None]
        if missing:
            yield Finding(
                f"extra {extra}",
                Verdict.NOTE,
                f"{', '.join(missing)} not installed",
                f"{install_hint(extra)}, if you need it",
            )
        else:
            yield Finding(f"extra {extra}", Verdict.OK, "installed")
    yield _original_client()
    yield _kill_switch()
    yield _configuration()
    text = "on: unchanged scripts are watched" if is_on() else "off"
    yield Finding("autopatch", Verdict.OK, text)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _frameworks() -> Finding:
    found = [
        f"{names[0]} {version}"
        for framework in FRAMEWORKS
        for names in framework.distributions
        if (version := next(filter(None, map(_version, names)), None)) is not None
    ]
    if found:
        return Finding("frameworks", Verdict.OK, ", ".join(found))
    return Finding(
        "frameworks",
        Verdict.NOTE,
        "none is installed: nothing can be captured here, but stored runs can be evaluated",
        f"{install_hint('torch')}, or another framework's extra, where you train",
    )


def _original_client() -> Finding:
    version = _version("smdebug")
    if version is None:
        return Finding("smdebug", Verdict.OK, "not installed, so it causes no conflict")
    return Finding(
        "smdebug",
        Verdict.NOTE,
        f"the original client {version} is installed: `import smdebug` means that one",
        "pip uninstall smdebug, or use our names (stepwatch.torch, stepwatch.create_trial)",
    )


def _kill_switch() -> Finding:
    if hook_enabled():
        return Finding("hooks", Verdict.OK, "on")
    value = os.environ.get("USE_SMDEBUG", "")
    return Finding(
        "hooks", Verdict.PROBLEM, f"USE_SMDEBUG={value} switches all hooks off", "unset it"
    )


def _configuration() -> Finding:
    try:
        name = read_configuration_file().name
        configuration = load_hook_configuration()
    except ConfigurationFileNotFoundError:
        text = "none: hooks take what their arguments say"
        return Finding("configuration file", Verdict.OK, text)
    except HookConfigurationError as error:
        return Finding("configuration file", Verdict.PROBLEM, str(error), "correct it")
    if configuration.warnings:
        text = f"{name}: {'; '.join(configuration.warnings)}"
        return Finding("configuration file", Verdict.PROBLEM, text, "correct it")
    return Finding("configuration file", Verdict.OK, name)
