"""Collections files: which collections a worker saves, with the names seen so far."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hook_layer.format.errors import CollectionsFileError
from hook_layer.format.json_document import Document, load_object

__all__ = [
    "MAX_COLLECTIONS_BYTES",
    "CollectionEntry",
    "CollectionsFile",
    "LayerKind",
    "parse_collections",
]

MAX_COLLECTIONS_BYTES: Final = 8 << 20
"""Maximum size of a collections file. 5,000 tensors in three collections need about 1 MB."""


@dataclass(frozen=True)
class CollectionEntry:
    """A stored collection.

    Attributes:
        name: Name of the collection.
        include_regex: Regular expressions (searched, not anchored) of the tensors in it.
        tensor_names: The tensors seen when the file was written, sorted.
        reduction_config: `{"save_raw_tensor", "reductions", "save_shape"}` or None.
        save_config: The save configuration by mode name, or None.
        save_histogram: Whether histograms are exported to TensorBoard.
    """

    name: str
    include_regex: Sequence[str] = ()
    tensor_names: Sequence[str] = ()
    reduction_config: dict[str, Any] | None = None
    save_config: dict[str, Any] | None = None
    save_histogram: bool = True


@dataclass(frozen=True)
class LayerKind:
    """What a layer of the model is.

    Attributes:
        type: Name of its class, such as `Dense`.
        activation: Name of the activation that its output went through, such as `relu`; `linear`
            for none, "" if unknown.
    """

    type: str
    activation: str = ""


@dataclass(frozen=True)
class CollectionsFile:
    """Content of a collections file.

    Attributes:
        collections: All collections of the hook by name, also those that it does not save.
        num_workers: Number of workers that write.
        saved: Names of the saved collections, even if they have no tensor; None if unknown, as in
            files of the original client.
        layers: What the layers of the model are, by name; empty if unknown.
        gradient_stops: Parameters that get no gradient, by the operation that stops it, in words.
        script_lines: File and line of the script, by name, of `layers`, `losses` and `optimizers`.
            Of `operations`, by number: `log at train.py:9`.
    """

    collections: dict[str, CollectionEntry]
    num_workers: int = 1
    saved: Sequence[str] | None = None
    layers: Mapping[str, LayerKind] = field(default_factory=dict)
    gradient_stops: Mapping[str, Sequence[str]] = field(default_factory=dict)
    script_lines: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the file's bytes."""
        collections = {
            name: {**vars(entry), "tensor_names": sorted(entry.tensor_names)}
            for name, entry in self.collections.items()
        }
        meta: dict[str, Any] = {"num_workers": self.num_workers}
        if self.saved is not None:
            meta["saved"] = sorted(self.saved)
        if self.layers:
            meta["layers"] = {name: vars(kind) for name, kind in sorted(self.layers.items())}
        if self.gradient_stops:
            meta["gradient_stops"] = {by: [*names] for by, names in self.gradient_stops.items()}
        if self.script_lines:
            meta["script_lines"] = {kind: {**lines} for kind, lines in self.script_lines.items()}
        content = {"collections": collections, "_meta": meta}
        return json.dumps(content).encode()


def parse_collections(data: bytes, *, file: str) -> CollectionsFile:
    """Parse a collections file of Stepwatch or the original client.

    Raises:
        CollectionsFileError: It is not a collections file.
    """
    content = load_object(
        data, file=file, error=CollectionsFileError, max_bytes=MAX_COLLECTIONS_BYTES
    )
    document = Document(file, CollectionsFileError)
    unknown = sorted(set(content) - {"collections", "_meta"})
    if unknown:
        document.fail(f"{unknown[0][:40]!r} is neither collections nor _meta")
    meta = document.members(content.get("_meta", {}), "_meta")
    entries = document.members(content.get("collections", {}), "collections")
    num_workers = document.count(meta.get("num_workers", 1), "_meta.num_workers")
    collections = {
        name: _entry(name, document.members(entry, f"collections.{name}"), document)
        for name, entry in entries.items()
    }
    saved = None if "saved" not in meta else document.texts(meta["saved"], "_meta.saved")
    layers = {
        name: _layer(name, document.members(kind, f"_meta.layers.{name}"), document)
        for name, kind in document.members(meta.get("layers", {}), "_meta.layers").items()
    }
    stops = document.members(meta.get("gradient_stops", {}), "_meta.gradient_stops")
    names = {text: document.texts(of, "_meta.gradient_stops") for text, of in stops.items()}
    lines = {
        kind: _texts_by_name(document.members(of, f"_meta.script_lines.{kind}"), kind, document)
        for kind, of in document.members(meta.get("script_lines", {}), "_meta.script_lines").items()
    }
    return CollectionsFile(collections, max(num_workers, 1), saved, layers, names, lines)


def _texts_by_name(members: dict[str, Any], kind: str, document: Document) -> dict[str, str]:
    path = f"_meta.script_lines.{kind}"
    return {name: document.text(text, f"{path}.{name}") for name, text in members.items()}


def _layer(name: str, members: dict[str, Any], document: Document) -> LayerKind:
    path = f"_meta.layers.{name}"
    return LayerKind(
        document.text(members.get("type", ""), f"{path}.type"),
        document.text(members.get("activation", ""), f"{path}.activation"),
    )


def _entry(name: str, members: dict[str, Any], document: Document) -> CollectionEntry:
    path = f"collections.{name}"
    reduction, save = members.get("reduction_config"), members.get("save_config")
    return CollectionEntry(
        name=document.text(members.get("name", name), f"{path}.name"),
        include_regex=document.texts(members.get("include_regex") or [], f"{path}.include_regex"),
        tensor_names=document.texts(members.get("tensor_names") or [], f"{path}.tensor_names"),
        reduction_config=(
            None if reduction is None else document.members(reduction, f"{path}.reduction_config")
        ),
        save_config=None if save is None else document.members(save, f"{path}.save_config"),
        save_histogram=document.flag(members.get("save_histogram", True), f"{path}.save_histogram"),
    )
