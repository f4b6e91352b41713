"""What an imported session says of the recording that it was made of."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from permille.cli.capture_file import Given, open_capture
from permille.cli.session_import import session_content as module
from permille.cli.session_import.session_content import SessionContent, session_content
from permille.ptcore import Capture

from .test_pt import reference

# As perf is asked for them: `notnt`, `noretcomp`.
INTEL_PT, WITHOUT_TNT = 6, 1 << 55 | 1 << 11


@pytest.mark.parametrize("without_tnt", [False, True])
def test_a_session_says_that_conditional_branches_were_not_traced(tmp_path: Path, *, without_tnt: bool) -> None:
    data = bytearray(reference("perf/perf.data.intel_pt-4.14").read_bytes())
    # Of the head the place of the events' attributes: each begins with type, size and config.
    (at,) = struct.unpack_from("<Q", data, 24)
    kind, _, config = struct.unpack_from("<IIQ", data, at)
    assert kind == INTEL_PT
    struct.pack_into("<Q", data, at + 8, config | WITHOUT_TNT if without_tnt else config)
    file = tmp_path / "perf.data"
    file.write_bytes(data)
    content = session_content(Capture(str(file)), file, tmp_path / "code", lambda *_: None)
    assert content.manifest["pt"].get("without_tnt", False) == without_tnt


def content_of(mebibytes: int, folder: Path, told: list[tuple[int, int]]) -> SessionContent:
    """Of a stream with a PSB in each MiB, and nothing but that."""
    piece = bytes.fromhex("0282" * 8 + "0223")
    file, code = folder / "trace.pt", folder / "code"
    file.write_bytes((piece + bytes((1 << 20) - len(piece))) * mebibytes)
    code.write_bytes(b"\xc3")
    given = Given(images=[f"{code}:0:1:0x1000"])
    return session_content(open_capture(file, given), file, folder / "listed", lambda *both: told.append(both))


def test_a_stream_is_one_segment_as_long_as_a_worker_decodes_it_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    whole = content_of(40, tmp_path, told)
    assert [segment["size_bytes"] for segment in whole.manifest["segments"]] == [40 << 20]
    assert told == [(mebibytes << 20, 40 << 20) for mebibytes in range(1, 41)]

    monkeypatch.setattr(module, "PIECE_BYTES", 16 << 20)
    cut = content_of(40, tmp_path, told)
    begins = [segment["stream_begin"] for segment in cut.manifest["segments"]]
    assert begins == [0, 16 << 20, 32 << 20]
    assert sum(segment["size_bytes"] for segment in cut.manifest["segments"]) == 40 << 20
    assert told[-1] == (40 << 20, 40 << 20)
