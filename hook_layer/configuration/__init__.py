"""How a hook is configured: files, their JSON, the places they name, and mistakes in them."""

from __future__ import annotations
