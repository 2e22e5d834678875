"""The collection of inputs and outputs of modules, under its earlier place."""

from __future__ import annotations

from rule_runtime.facts.layers import MODULE_IO

__all__ = ["MODULE_IO"]
