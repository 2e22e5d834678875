"""Adds the findings of a watched command to the tools in which teams look at runs."""

from __future__ import annotations
