"""The number of this process, known without asking the system each time.

Hooks ask in every call of theirs whether they are in a forked child. The system's answer takes a
microsecond or more where system calls are watched, as in many containers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

__all__ = ["this_process"]


@dataclass
class _ThisProcess:
    """This process.

    Attributes:
        pid: Its number; also right in a child that Python forked.
    """

    pid: int = field(default_factory=os.getpid)

    def renew(self) -> None:
        """Ask the system."""
        self.pid = os.getpid()


this_process = _ThisProcess()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=this_process.renew)
