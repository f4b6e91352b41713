"""A session that is imported out of an archive: its manifest says more of the recording than packets do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import zstandard
from permille.cli.capture_file import Given, open_capture
from permille.cli.session_import import session_content as module
from permille.cli.session_import.session_content import session_content
from permille.decoder.domain.manifest import read_manifest
from permille.mesh.errors import InvalidArgument

CORES = Path(__file__).parents[2] / "services/decoder/tests/core_session"
ID = "two-threads"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A store with the session of two cores; what is returned is the session's folder."""
    store = tmp_path / "store"
    shutil.copytree(CORES, store)
    return store / "raw" / ID


def manifest_of(archive: Path) -> dict[str, Any]:
    return dict(json.loads((archive / "manifest.json").read_bytes()))


def imported(archive: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest of what is imported of the session, if its own is this one."""
    (archive / "manifest.json").write_text(json.dumps(manifest))
    content = session_content(open_capture(archive, Given()), archive, archive / "listed", lambda *_: None)
    read_manifest(json.dumps(content.manifest).encode(), "manifest.json")
    return content.manifest


def test_it_was_recorded_when_and_by_what_the_manifest_says(archive: Path) -> None:
    told = manifest_of(archive) | {"stop_reason": "TARGET_EXITED", "notes": ["one of its threads was not seen"]}
    told["switches"]["dropped"] = 3
    found = imported(archive, told)
    kept = ("start_ns", "end_ns", "clock", "period_ms", "stop_reason", "target")
    assert {name: found[name] for name in kept} == {name: told[name] for name in kept}
    assert found["backend"] == "imported:kmod"
    assert found["notes"] == told["notes"]
    assert found["switches"]["dropped"] == 3
    # It is no recording of this mesh, whatever it was.
    assert (found["node"], found["purpose"]) == ("imported", "IMPORT")


def test_what_was_imported_before_is_still_of_another_tool(archive: Path) -> None:
    guessed = ["when it was recorded is not in the file"]
    told = manifest_of(archive) | {"backend": "imported:perf.data", "stop_reason": "IMPORTED", "notes": guessed}
    found = imported(archive, told)
    assert (found["backend"], found["stop_reason"], found["notes"]) == ("imported:perf.data", "IMPORTED", guessed)


def test_what_a_threads_buffer_had_no_room_for_is_lost_behind_its_last_piece(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = manifest_of(archive)
    buffer = {"buffer_bytes": 4096, "full": True, "lost_bytes": 500, "lost_blocks": 7}
    for tid, segment in zip((91, 92), told["segments"], strict=True):
        segment |= {"kind": "thread", "pid": 91, "tid": tid}
    told["segments"][0] |= buffer
    monkeypatch.setattr(module, "PIECE_BYTES", 1024)
    found = imported(archive, told)["segments"]
    of_first = [segment for segment in found if segment["tid"] == 91]
    assert len(of_first) > 1
    assert [buffer.items() <= segment.items() for segment in of_first] == [False] * (len(of_first) - 1) + [True]
    assert sum(segment.get("lost_bytes", 0) for segment in found) == 500


def test_a_cores_full_buffer_is_told_once(archive: Path) -> None:
    told = manifest_of(archive)
    told["segments"][0]["full"] = True
    found = imported(archive, told)["segments"]
    assert [(segment["core"], segment["tid"]) for segment in found if segment.get("full")] == [(0, 92)]
    # In the order of the packets: there the buffer was full, and its size tells which would not be.
    assert not any(segment["lost_offsets"] for segment in found)
    assert found[1]["buffer_bytes"] == told["segments"][0]["buffer_bytes"]


def test_a_manifest_that_is_packed_is_refused(archive: Path) -> None:
    packed = archive / "manifest.json.zst"
    packed.write_bytes(zstandard.compress((archive / "manifest.json").read_bytes()))
    with pytest.raises(InvalidArgument, match=r"manifest\.json\.zst is packed"):
        session_content(open_capture(packed, Given()), packed, archive / "listed", lambda *_: None)
