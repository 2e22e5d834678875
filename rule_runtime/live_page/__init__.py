"""The page over all runs (extra `ui`), and the data that follows a run while it trains.

`catalogue.py` lists runs, `opened_run.py` reads one, `run_data.py` answers what the page asks, and
`server.py` serves it with the files in `static/`.
"""

from __future__ import annotations

__all__: list[str] = []
