"""A store in memory that records what is read and listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hook_layer.storage.memory import MemoryStore

__all__ = ["CountingStore"]


class CountingStore(MemoryStore):
    """A store that records calls since the last reset.

    Attributes:
        calls: `GET key` and `LIST prefix`, in order.
        listed: Prefix and first key of each listing.
        num_listed: Number of listed keys.
    """

    def __init__(self, name: str = "counting") -> None:
        super().__init__(name)
        self.reset()

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self.calls.append(f"GET {key}")
        return super().get(key, start, length)

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        self.calls.append(f"LIST {prefix}")
        self.listed.append((prefix, after))
        for key in super().list(prefix, after):
            self.num_listed += 1
            yield key

    def reset(self) -> None:
        self.calls: list[str] = []
        self.listed: list[tuple[str, str | None]] = []
        self.num_listed = 0

    def gets(self, prefix: str = "") -> Sequence[str]:
        """Return the keys that were read, in order."""
        return [call[4:] for call in self.calls if call.startswith(f"GET {prefix}")]
