"""Caches the id of this process.

Hooks check in every call whether they run in a forked child. A system call takes a microsecond, or
more in containers that trace system calls.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

__all__ = ["this_process"]


@dataclass
class _ThisProcess:
    """This process.

    Attributes:
        pid: Its id; also correct in a child that Python forked.
    """

    pid: int = field(default_factory=os.getpid)

    def renew(self) -> None:
        """Update the id."""
        self.pid = os.getpid()


this_process = _ThisProcess()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=this_process.renew)
