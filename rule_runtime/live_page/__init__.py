"""A page that shows a run while it trains (extra `ui`).

`follower.py` reads new data, `content.py` renders it, and `server.py` serves it to local browsers.
"""

from __future__ import annotations

__all__: list[str] = []
