"""What the manifest of an archived session says of its recording, beside packets and code (docs/design/0002)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from permille.cli.piped_recording import describing
from permille.mesh.errors import InvalidArgument

if TYPE_CHECKING:
    from permille.ptcore import Capture, Piece

_OF_TARGET = ("pids", "name", "command_line")
_OF_SESSION = ("start_ns", "end_ns", "period_ms", "stop_reason", "clock")
_OF_SWITCHES = ("dropped", "unseen", "unavailable")
_OF_BUFFER = ("buffer_bytes", "full", "overwritten", "lost_bytes", "lost_blocks")


@dataclass(frozen=True)
class ArchivedRecording:
    """`recorder`: what recorded it, whoever imported that before. `manifest`: {} of what is no archived session."""

    recorder: str
    manifest: Mapping[str, Any]

    @property
    def target(self) -> dict[str, Any]:
        """Who was recorded."""
        return _said(self.manifest.get("target", {}), _OF_TARGET)

    @property
    def session(self) -> dict[str, Any]:
        """When it was recorded, for how long, and why it ended."""
        return _said(self.manifest, _OF_SESSION)

    @property
    def notes(self) -> list[str]:
        """On the recording as a whole."""
        return list(self.manifest.get("notes", ()))

    @property
    def switches(self) -> dict[str, Any]:
        """Which switch records there are not."""
        return _said(self.manifest.get("switches", {}), _OF_SWITCHES)

    def add_buffers(self, segments: list[dict[str, Any]], pieces: Mapping[str, tuple[int, Piece]]) -> None:
        """Says of each stream's last segment what its buffer had no room for. `pieces`: stream and piece by key."""
        if not (buffers := self._buffers()):
            return
        last = {pieces[segment["key"]][0]: segment["key"] for segment in segments}
        for key, found in groupby(segments, itemgetter("key")):
            stream, piece = pieces[key]
            if last[stream] != key:
                continue
            there = list(found)
            there[-1].update(buffers[stream])
            if buffers[stream].get("full"):
                # The capture only knows that packets are missing there.
                for segment in there:
                    segment["lost_offsets"] = [at for at in segment["lost_offsets"] if at < piece.next - piece.begin]

    def _buffers(self) -> list[dict[str, Any]]:
        """In the order in which a capture has the streams."""
        # Threads of one core name the same object; what it lacks the first of them says, or the last of its import.
        found: dict[str, dict[str, Any]] = {}
        for segment in self.manifest.get("segments", ()):
            found.setdefault(segment["key"], {}).update(_said(segment, _OF_BUFFER))
        return list(found.values())


def archived_recording(capture: Capture, file: Path) -> ArchivedRecording:
    """Of the capture of `file`. Raises `InvalidArgument` for a manifest that is packed."""
    if capture.kind != "session":
        return ArchivedRecording(capture.kind, {})
    try:
        manifest = json.loads(describing(file).read_bytes())
    except ValueError:
        raise InvalidArgument(
            f"the manifest {describing(file)} is packed",
            reason="MANIFEST_PACKED",
            help="unpack it to manifest.json in the session's folder, and import that folder",
            metadata={"file": str(file)},
        ) from None
    return ArchivedRecording(str(manifest.get("backend") or capture.kind).removeprefix("imported:"), manifest)


def _said(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if values.get(name)}
