"""What an imported session says of the recording that it was made of."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from permille.cli.capture_file import Given, open_capture
from permille.cli.session_import import session_content as module
from permille.cli.session_import.session_content import SessionContent, session_content
from permille.decoder.domain.manifest import read_manifest
from permille.mesh.errors import InvalidArgument
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


def test_code_that_cannot_be_where_it_was_given_is_refused(tmp_path: Path) -> None:
    file, code = tmp_path / "trace.pt", tmp_path / "code"
    file.write_bytes(bytes.fromhex("0282" * 8 + "0223"))
    code.write_bytes(bytes(16))
    with pytest.raises(InvalidArgument, match=f"{code}: 0x10 bytes .* reach to the last address"):
        open_capture(file, Given(images=[f"{code}:0:16:0xfffffffffffffff8"]))


SWITCH_CPU_WIDE, AUXTRACE = 15, 71


def records_of(data: bytearray) -> Iterator[tuple[int, int]]:
    """Where the records of a perf.data begin, and of which kind they are."""
    at, size = struct.unpack_from("<QQ", data, 40)
    end = at + size
    while at < end:
        kind, _, length = struct.unpack_from("<IHH", data, at)
        yield at, kind
        at += length
        if kind == AUXTRACE:
            at += struct.unpack_from("<Q", data, at - length + 8)[0]


def with_odd_threads(data: bytearray) -> int:
    """Gives the thread of every hundredth switch record a number that no thread has; how many there are then."""
    places = [at for at, kind in records_of(data) if kind == SWITCH_CPU_WIDE]
    odd = range(100, len(places) + 1, 100)
    for number in odd:
        # Behind the head and who comes or leaves: process and thread.
        struct.pack_into("<I", data, places[number - 1] + 20, 1 << 31 | number)
    return len(odd)


def test_an_odd_record_is_told_and_all_else_is_imported(tmp_path: Path) -> None:
    data = bytearray(reference("perf/perf.data.intel_pt-4.14").read_bytes())
    odd = with_odd_threads(data)
    assert odd == 1
    file = tmp_path / "perf.data"
    file.write_bytes(data)
    content = session_content(Capture(str(file)), file, tmp_path / "code", lambda *_: None)
    manifest = read_manifest(json.dumps(content.manifest).encode(), "manifest.json")
    (note,) = (note for note in manifest.notes if "no system has" in note)
    assert note.startswith("1 records ") and note.endswith(f", thread {1 << 31 | 100}")


def test_packets_of_a_thread_that_no_system_has_are_imported_as_those_of_another(tmp_path: Path) -> None:
    packets = bytes.fromhex("0282" * 8 + "0223")
    (tmp_path / "packets").write_bytes(packets)
    shutil.copy("/bin/true", tmp_path / "program")
    description = {
        "type": "intel-pt",
        "cpuInfo": {"vendor": "GenuineIntel", "family": 6, "model": 85, "stepping": 4},
        "processes": [
            {
                "pid": 1 << 31,
                "modules": [{"file": "program", "systemPath": "/program", "loadAddress": 4096}],
                "threads": [{"tid": (1 << 32) - 1, "iptTrace": "packets"}, {"tid": 7, "iptTrace": "packets"}],
            }
        ],
    }
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(description))
    content = session_content(Capture(str(file)), file, tmp_path / "code", lambda *_: None)
    manifest = read_manifest(json.dumps(content.manifest).encode(), "manifest.json")
    (process,) = json.loads(content.maps)["processes"]
    pids, tids = zip(*((segment.pid, segment.tid) for segment in manifest.segments), strict=True)
    assert set(pids) == {process["pid"]} and 7 in tids
    assert all(number < 1 << 31 for number in (*pids, *tids))
    (note,) = (note for note in manifest.notes if "a system has" in note)
    assert note.startswith("2 numbers of processes, threads or cores") and str(1 << 31) in note


def test_a_number_that_another_process_takes_over_is_a_thread_of_its_own(tmp_path: Path) -> None:
    data = bytearray(reference("perf/perf.data.intel_pt-4.14").read_bytes())
    places = [at for at, kind in records_of(data) if kind == SWITCH_CPU_WIDE]
    pid = tid = 3174
    # Behind the head and who comes or leaves: process and thread.
    of_thread = [at for at in places if struct.unpack_from("<II", data, at + 16) == (pid, tid)]
    for at in of_thread[len(of_thread) // 2 :]:
        struct.pack_into("<I", data, at + 16, pid + 1)
    file = tmp_path / "perf.data"
    file.write_bytes(data)
    content = session_content(Capture(str(file)), file, tmp_path / "code", lambda *_: None)
    manifest = read_manifest(json.dumps(content.manifest).encode(), "manifest.json")
    threads = {(segment.pid, segment.tid) for segment in manifest.segments}
    assert {(pid, tid), (pid + 1, tid)} <= threads
    assert threads == {(pid, tid) for segment in manifest.segments for _, pid, tid, *_ in segment.turns}
    sizes = {(segment.pid, segment.tid): segment.size_bytes for segment in manifest.segments}
    assert all(sizes[pid_there, tid] for pid_there in (pid, pid + 1))
