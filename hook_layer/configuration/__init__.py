"""Configuration of a hook: files, their JSON, output locations, and validation."""

from __future__ import annotations
