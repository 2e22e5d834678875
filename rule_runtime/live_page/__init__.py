"""A page that shows a run while it trains (extra `ui`).

`follower.py` keeps up with what is stored, `content.py` renders it, `server.py` serves it to
browsers of this machine.
"""

from __future__ import annotations

__all__: list[str] = []
