"""How captured steps become stored files: threads, spool, retries and what is counted."""

from __future__ import annotations
