"""The manifest of an uploaded session: what the client says of its files, held against what came."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from permille.mesh.errors import DataLoss, InvalidArgument


class StoredAs(Protocol):
    """A file that was received."""

    @property
    def key(self) -> str:
        """Where it is in the store."""

    @property
    def sha256(self) -> str:
        """Of what was sent."""

    @property
    def stored_bytes(self) -> int:
        """Its size in the store."""

    @property
    def stored_sha256(self) -> str:
        """Of what is in the store."""


def completed(text: bytes, session: str, files: Mapping[str, StoredAs]) -> dict[str, Any]:
    """The manifest with the files' keys instead of their names, and what they are in the store.

    Raises `InvalidArgument` for text that is no manifest of this session or names a file that did not come, `DataLoss`
    for a file that is not the one it names.
    """
    try:
        manifest: dict[str, Any] = json.loads(text)
        named = list(_named(manifest))
        if manifest["session"] != session or session.rpartition("/")[2] != manifest["session_id"]:
            raise _refused(f"it is that of {manifest['session']!r}, not of {session!r}")
        for entry in named:
            _locate(entry, files)
        _share(manifest["segments"], files)
        # An import has the names in its code already; these keys would be anybody's.
        manifest.pop("jit", None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _refused(f"{type(error).__name__}: {error}") from None
    return manifest


def _named(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from manifest["segments"]
    yield from (manifest["switches"], manifest["maps"], manifest["code"])


def _locate(entry: dict[str, Any], files: Mapping[str, StoredAs]) -> None:
    name = entry["key"]
    received = files.get(name)
    if received is None:
        raise _refused(f"it names the file {name!r}, which did not come")
    if received.sha256 != entry["sha256"]:
        raise DataLoss(
            f"{name} has another SHA-256 than the manifest says",
            reason="UPLOAD_DAMAGED",
            help="upload again; the recording must not change meanwhile",
            metadata={"file": name},
        )
    entry["key"] = received.key


def _share(segments: list[dict[str, Any]], files: Mapping[str, StoredAs]) -> None:
    """What is in the store: its SHA-256, and its bytes, divided among the segments of an object by their size."""
    stored = {file.key: file for file in files.values()}
    left = {key: file.stored_bytes for key, file in stored.items()}
    raw: dict[str, int] = {}
    for segment in segments:
        raw[segment["key"]] = raw.get(segment["key"], 0) + segment["size_bytes"]
    for segment in segments:
        key, size = segment["key"], segment["size_bytes"]
        segment["stored_bytes"] = left[key] * size // raw[key] if raw[key] else left[key]
        segment["stored_sha256"] = stored[key].stored_sha256
        left[key] -= segment["stored_bytes"]
        raw[key] -= size


def _refused(how: str) -> InvalidArgument:
    return InvalidArgument(
        f"the manifest cannot be taken: {how}",
        reason="UPLOAD_REFUSED",
        help="upload with `permille import` of the same version as the decoder",
    )
