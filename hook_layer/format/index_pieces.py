"""Splits an index file into pieces, most of which are the same in the next file of its rank.

Parsing equal pieces only once makes reading a long run fast. Only files in the format of
`json.dumps`, with the usual order of members, are split. Readers parse all other files as a whole.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from hook_layer.format.errors import IndexFileError
from hook_layer.format.json_document import load_object

__all__ = ["IndexPieces", "index_pieces", "members_of"]

_META: Final = re.compile(
    rb'\{"meta": \{"mode": "([A-Z]{1,16})", "mode_step": (0|[1-9][0-9]{0,17})'
    rb'(?:, "event_file_name": "([ !#-\[\]-~]{1,400})")?\}'
)
"""A flat JSON object of simple strings and a number, which needs no further validation."""
_NEXT: Final = b", "
_OWN: Final = b', "run": "'
_STATISTICS: Final = b', "statistics": {"version": 1, '
_CHECKSUMS: Final = b', "crc32c": ['
_VALUES: Final = b'], "values": "'
_END: Final = b'"}}'
_ELSEWHERE: Final = frozenset(("meta", "tensor_payload", "shape_payload", "statistics"))


class IndexPieces(NamedTuple):
    """Pieces of an index file. If each piece is valid, together they are the file.

    Attributes:
        content: All members except payloads and statistics, parsed.
        payload: Text of the members `tensor_payload` and `shape_payload`.
        description: Text of columns, tensors, dtypes and shapes of the statistics; None without
            statistics.
        checksums: Text between the brackets of `crc32c`.
        values: Text between the quotes of `values`.
    """

    content: dict[str, Any]
    payload: bytes
    description: bytes | None
    checksums: bytes
    values: bytes


def index_pieces(data: bytes) -> IndexPieces | None:
    """Return the pieces of an index file; None if it does not have the usual order.

    The members in `content` are valid JSON, and complete. The other pieces are not checked yet:
    their parsers must check for complete members or a complete list.
    """
    meta = _META.match(data)
    if meta is None or not data.endswith(b"}"):
        return None
    block = data.find(_STATISTICS, meta.end())
    end = len(data) - 1 if block < 0 else block
    own = data.rfind(_OWN, meta.end(), end)  # it is near the end
    own = end if own < 0 else own
    content = _content(meta, data[own:end])
    if content is None:
        return None
    if not data.startswith(_NEXT, meta.end()):
        return None
    payload = data[meta.end() + len(_NEXT) : own]
    if block < 0:
        return IndexPieces(content, payload, None, b"", b"")
    checksums = data.find(_CHECKSUMS, block)
    values = data.find(_VALUES, checksums)
    if checksums < 0 or values < 0 or not data.endswith(_END):
        return None
    return IndexPieces(
        content,
        payload,
        data[block + len(_STATISTICS) : checksums],
        data[checksums + len(_CHECKSUMS) : values],
        data[values + len(_VALUES) : -len(_END)],
    )


def members_of(piece: bytes) -> dict[str, Any]:
    """Return the members of an object, from a piece without braces.

    Raises:
        IndexFileError: The piece is invalid or empty.
    """
    found = load_object(b"{%b}" % piece, file="", error=IndexFileError, max_bytes=len(piece) + 2)
    if not found:
        raise IndexFileError("no member")
    return found


def _content(meta: re.Match[bytes], own: bytes) -> dict[str, Any] | None:
    mode, mode_step, event_file = meta.groups()
    about: dict[str, Any] = {"mode": mode.decode(), "mode_step": int(mode_step)}
    if event_file is not None:
        about["event_file_name"] = event_file.decode()
    try:
        members = members_of(own[len(_NEXT) :]) if own else {}
    except IndexFileError:
        return None
    if not _ELSEWHERE.isdisjoint(members):
        return None
    return {"meta": about, **members}
