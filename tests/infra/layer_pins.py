"""The exact versions of the packages in the functions' layer."""

from __future__ import annotations

from infra.packaging import LAYER_REQUIREMENTS


def layer_pins() -> dict[str, str]:
    """Return the version of each package, by name."""
    lines = LAYER_REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    pins = (line.removesuffix(" \\").partition("==") for line in lines if "==" in line)
    return {name: version for name, _, version in pins}
