"""Recordings as sessions in an object store, as controllers and `permille import` put them there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import zstandard
from permille.cli.capture_file import Given, open_capture
from permille.cli.session_import.session_content import read_binary, session_content
from permille.controller.domain.archive import (
    BINARIES,
    MANIFEST,
    SwitchesOfSession,
    archive_files,
    raw_key,
    write_archive,
)
from permille.controller.domain.mapped_binaries import MappedBinaries
from permille.controller.domain.session import Session
from permille.controller.domain.switches.switch_recorder import SwitchCounts
from permille.controller.domain.vpt_control import Control
from permille.controller.domain.vpt_recording import VptRecording
from permille.decoder.domain.imported_manifest import completed
from permille.decoder.domain.manifest import manifest_key
from permille.decoder.service.session_upload import ReceivedFile
from permille.mesh.store import ObjectStore


async def store_recording(store: ObjectStore, name: str, place: Path, folder: Path) -> str:
    """Stores what vpt left in `place`; the session's id. `folder`: for temporary files."""
    recording = VptRecording(Control(place))
    anchors = recording.realtime()
    session = Session(
        node="bench",
        id=name,
        request_id=name,
        pids=(recording.pid,),
        purpose="ON_DEMAND",
        period_ms=0,
        budget_bytes=0,
        target_name=name,
        start_ns=anchors.ns0,
        end_ns=anchors.ns1,
    )
    archive = folder / name
    archive.mkdir()
    switches = SwitchesOfSession((), SwitchCounts(0, 0, 0))
    write_archive(archive, session, [recording], switches, MappedBinaries().find)
    for key, path in json.loads((archive / BINARIES).read_text()).items():
        await store.put_stream(key, packed(path))
    for file in archive_files(archive):
        await store.put_stream(raw_key(session, file.name), file.read_bytes())
    return name


async def store_several(store: ObjectStore, session_id: str, times: int) -> str:
    """A session with every segment of another one so many times, as if as many threads had done the same."""
    several = f"{session_id}-{times}"
    manifest = json.loads(await store.get(manifest_key(session_id)))
    segments: list[dict[str, Any]] = []
    for segment in manifest["segments"] * times:
        index = len(segments)
        key = f"raw/{several}/segment-{index}.pt.zst"
        await store.put_stream(key, await store.get(segment["key"]))
        segments.append(segment | {"index": index, "key": key})
    named = {"session": manifest["session"].removesuffix(session_id) + several, "session_id": several}
    text = json.dumps(manifest | named | {"segments": segments}).encode()
    await store.put_stream(manifest_key(several), text)
    return several


async def store_capture(store: ObjectStore, file: Path, folder: Path) -> str:
    """Stores what `permille import` makes of a file; the session's id."""
    content = session_content(open_capture(file, Given()), file, folder / f"{file.name}.code", lambda *_: None)
    session_id = content.name.rpartition("/")[2]
    for key, binary in content.binaries.items():
        await store.put_stream(key, zstandard.compress(b"".join(read_binary(binary))))
    files: dict[str, ReceivedFile] = {}
    for name, pieces in content.files():
        data = b"".join(pieces)
        if name == MANIFEST:
            await store.put_stream(manifest_key(session_id), json.dumps(completed(data, content.name, files)).encode())
            break
        key, stored = f"raw/{session_id}/{name}", zstandard.compress(data) if name.endswith(".zst") else data
        await store.put_stream(key, stored)
        files[name] = ReceivedFile(key, len(data), sha256(data), len(stored), sha256(stored))
    return session_id


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def packed(path: str) -> bytes:
    return zstandard.compress(Path(path).read_bytes())
