"""The layer's bill of materials, in CycloneDX's format."""

from __future__ import annotations

import argparse
import json
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["BILL_NAME", "bill_of_materials"]

BILL_NAME = "stepwatch-sbom.json"
"""Name of the bill in the layer, which Lambda unpacks to `/opt`."""


def bill_of_materials(folder: Path) -> str:
    """Return the packages in a folder; the text depends only on their names and versions."""
    found = metadata.distributions(path=[str(folder)])
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component("stepwatch", metadata.version("stepwatch"))},
        "components": sorted(
            (_component(each.name, each.version, each.metadata) for each in found),
            key=lambda component: str(component["bom-ref"]),
        ),
    }
    return json.dumps(bill, indent=1, sort_keys=True) + "\n"


def _component(name: str, version: str, described: Any = None) -> dict[str, Any]:
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    component = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    expression = described.get("License-Expression") if described else None
    return component | ({"licenses": [{"expression": expression}]} if expression else {})


def main() -> None:
    """Write the bill of the layer for one architecture."""
    from infra.packaging import PLATFORMS, prepare_wheels  # noqa: PLC0415 - packaging needs this

    parser = argparse.ArgumentParser(prog="python -m infra.bill_of_materials")
    parser.add_argument("path", type=Path)
    parser.add_argument("--architecture", choices=sorted(PLATFORMS), default="arm64")
    arguments = parser.parse_args()
    bill = bill_of_materials(prepare_wheels(arguments.architecture))
    arguments.path.write_text(bill, encoding="utf-8")


if __name__ == "__main__":
    main()
