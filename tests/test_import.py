"""Recordings that other tools made, as sessions: what is decoded of them is what `permille pt` says of the file."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.processes import PATIENCE_S, Process, await_true
from tests.whole_mesh import WholeMesh, new_mesh
from tests.whole_session import assert_whole

_SHARED = Path(os.environ.get("PERMILLE_SHARED", Path(__file__).parents[2] / "shared"))
GRIFFIN, LLDB = "griffin/hello.griffin.gz", "lldb/intelpt-multi-core-trace"
PERF, DYNAMORIO = "perf/perf.data.intel_pt-4.14", "dynamorio"
# Permille's own, of two cores and a thread that goes from one to the other.
CORES = str(Path(__file__).parents[1] / "services" / "decoder" / "tests" / "core_session" / "raw" / "two-threads")
RECORDINGS = [
    GRIFFIN,
    "griffin/last.griffin.gz",
    LLDB,
    "lldb/intelpt-trace/trace.json",
    "lldb/intelpt-trace-multi-file/multi-file-no-ld.json",
    PERF,
    DYNAMORIO,
    CORES,
]
PSB, PSBEND = bytes.fromhex("0282" * 8), bytes.fromhex("0223")


def reference(name: str) -> Path:
    """A recording among the reference data."""
    file = _SHARED / "data" / "pt" / name
    if not file.exists():
        pytest.skip(f"no reference data at {file}; set PERMILLE_SHARED")
    return file


def table_of_calls(mesh: WholeMesh, file: Path) -> Counter[tuple[str, str]]:
    """Calls, instructions and instructions with callees of each function, over all streams, as `permille pt` counts."""
    listed = mesh.command("pt", "calls", str(file), "--table", "--json").stdout.splitlines()
    counts: Counter[tuple[str, str]] = Counter()
    for row in map(json.loads, listed):
        for what in ("calls", "self_instructions", "total_instructions"):
            counts[row["function"], what] += row[what]
    return +counts


def functions_of(mesh: WholeMesh, session: str) -> Counter[tuple[str, str]]:
    """The same of a session."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in mesh.json("report", session, "--top", "0")["functions"]:
        for what in ("calls", "self_instructions", "total_instructions"):
            counts[row["name"], what] += row[what]
    return +counts


def told_line(process: Process, beginning: str) -> str:
    """The next line of standard error that begins so."""
    assert process.stderr is not None
    return next(line for line in process.stderr if line.startswith(beginning))


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_session_holds_what_the_file_holds(mesh: WholeMesh, name: str) -> None:
    file = reference(name)
    told = mesh.json("import", str(file))
    total = mesh.json("pt", "stat", str(file))["total"]
    session = told["session"].rpartition("/")[2]
    assert (told["raw_bytes"], told["instructions"]) == (total["bytes"], total["flow"]["instructions"])
    report = assert_whole(mesh, session)
    assert report["session"]["lost_bytes"] == total["flow"]["lost_bytes"]
    assert functions_of(mesh, session) == table_of_calls(mesh, file)
    (counted,) = mesh.rows(
        f"SELECT CAST(sum(branches) AS BIGINT) AS branches, CAST(sum(psb) AS BIGINT) AS psb FROM segments"
        f" WHERE session_id = '{session}'"
    )
    assert counted["branches"] == total["flow"]["conditional_branches"]
    assert counted["psb"] == total["packets"]["PSB"]
    assert all(row["reason"] for row in report["losses"])
    # What is stored can be looked into like the file.
    stored = mesh.json("pt", "stat", str(mesh.state / "store" / "raw" / session))["total"]
    assert stored["flow"] == total["flow"]


def test_an_imported_session_is_used_like_any_other(mesh: WholeMesh, tmp_path: Path) -> None:
    file = reference("griffin/ovf-01-ben.griffin.gz")
    done = mesh.command("import", str(file))
    assert "session nodes/imported/sessions/griffin-" in done.stdout
    session = done.stdout.split("permille report ")[1].strip()
    (listed,) = (one for one in mesh.sessions() if one["session_id"] == session)
    assert (listed["state"], listed["backend"]) == ("DECODED", "imported:griffin")
    text = mesh.command("report", session).stdout
    assert "griffin, imported" in text and "asked for" not in text
    mesh.command("report", session, "--html", str(tmp_path / "report.html"))
    assert session in (tmp_path / "report.html").read_text()
    for form in ("perfetto", "speedscope", "folded", "pprof", "csv"):
        output = tmp_path / f"export.{form}"
        mesh.command("export", session, "--format", form, "--output", str(output))
        assert output.stat().st_size > 0
    # It has no times: calls take the time of what they execute, within that of their callers.
    wrong = "c.start_ns < p.start_ns OR c.end_ns > p.end_ns OR c.end_ns - c.start_ns != c.total_instructions"
    nesting = mesh.rows(
        f"SELECT count(*) AS n, count(*) FILTER (WHERE {wrong}) AS wrong FROM calls c JOIN calls p"
        " ON c.session_id = p.session_id AND c.segment = p.segment AND c.parent = p.call"
        f" WHERE c.session_id = '{session}'"
    )
    assert nesting[0]["n"] > 10 and nesting[0]["wrong"] == 0
    stored = mesh.state / "store" / "raw" / session
    assert stored.is_dir()
    mesh.command("delete", session, "--yes")
    assert session not in {one["session_id"] for one in mesh.sessions()}
    assert not any(path.is_file() for path in stored.rglob("*"))
    # It comes back, decoded: the answer of the decode before the deletion is not taken for this one's.
    assert mesh.json("import", str(file))["existed"] is False
    assert_whole(mesh, session)


def test_the_threads_of_a_core_are_apart_and_on_it(mesh: WholeMesh) -> None:
    file = reference(LLDB)
    session = mesh.json("import", str(file))["session"].rpartition("/")[2]
    streams = mesh.json("pt", "stat", str(file))["streams"]
    expected = {
        (stream["core"], thread["tid"], thread["instructions"])
        for stream in streams
        for thread in stream["threads"]
        if thread["instructions"]
    }
    rows = mesh.rows(
        f"SELECT core, tid, instructions FROM segments WHERE session_id = '{session}' AND instructions > 0"
    )
    assert {(row["core"], row["tid"], row["instructions"]) for row in rows} == expected
    assert len({tid for _, tid, _ in expected}) > 1
    cores = mesh.rows(
        "SELECT DISTINCT c.core AS called_on, s.core AS stands_on FROM calls c JOIN segments s"
        f" ON c.session_id = s.session_id AND c.segment = s.segment WHERE c.session_id = '{session}'"
    )
    assert cores and all(row["called_on"] == row["stands_on"] for row in cores)


def test_times_are_those_of_the_recording(mesh: WholeMesh) -> None:
    file = reference(LLDB) / "trace.json"
    told = mesh.json("import", str(file))
    session = told["session"].rpartition("/")[2]
    (row,) = mesh.rows(f"SELECT start_ns, end_ns FROM sessions WHERE session_id = '{session}'")
    total = mesh.json("pt", "stat", str(file))["total"]
    conversion = json.loads(file.read_text())["tscPerfZeroConversion"]
    ticks = total["last_tsc"] - total["first_tsc"]
    elapsed = ticks * int(conversion["timeMult"]) >> int(conversion["timeShift"])
    assert abs(row["end_ns"] - row["start_ns"] - elapsed) < 1000
    assert any("last written" in note for note in told["notes"])
    # No times at all, and it says so.
    told = mesh.json("import", str(reference(GRIFFIN)))
    assert any("hold no times" in note for note in told["notes"])
    report = mesh.json("report", told["session"].rpartition("/")[2])
    assert report["losses"] == []
    assert any("hold no times" in note["text"] for note in report["notes"])


def test_the_same_file_twice_is_one_session(mesh: WholeMesh, tmp_path: Path) -> None:
    file = reference(GRIFFIN)
    first = mesh.json("import", str(file))
    copy = tmp_path / "copy.griffin.gz"
    shutil.copy(file, copy)
    again = mesh.json("import", str(copy))
    assert again["existed"] is True
    assert {again[what] == first[what] for what in ("session", "instructions", "calls")} == {True}
    assert "which was there already" in mesh.command("import", str(copy)).stdout
    assert [one["session_id"] for one in mesh.sessions()].count(first["session"].rpartition("/")[2]) == 1


def test_binaries_with_more_take_the_place_of_those_with_less(mesh: WholeMesh, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(reference("lldb/intelpt-trace"), bundle)
    program, recording = bundle / "a.out", str(bundle / "trace.json")
    # Of a build of its own: other tests store this program.
    whole = program.read_bytes().replace(bytes.fromhex("6aa9a4e26f282f33377d59fece874c715b41261a"), os.urandom(20))

    def functions(session: str) -> list[str]:
        return [row["name"] for row in mesh.json("report", session.rpartition("/")[2])["functions"]]

    program.write_bytes(whole[:1000])
    cut = mesh.json("import", recording)
    assert cut["instructions"] == 0
    assert any("a.out is left out: this file is cut off" in note for note in cut["notes"])
    program.write_bytes(whole)
    subprocess.run(["strip", program], check=True)
    stripped = mesh.json("import", recording)
    assert stripped["instructions"] > 0
    assert "main" not in functions(stripped["session"])
    program.write_bytes(whole)
    again = mesh.json("import", recording)
    # What was decoded with the stripped one is not taken for its answer.
    assert (again["session"], again["existed"]) == (stripped["session"], True)
    assert "main" in functions(again["session"])


def test_no_thread_of_a_core_loses_more_than_it_has(mesh: WholeMesh) -> None:
    told = mesh.json("import", str(reference(LLDB)))
    session = told["session"].rpartition("/")[2]
    rows = mesh.json("query", f"SELECT size_bytes, lost_bytes FROM segments WHERE session_id = '{session}'")["rows"]
    assert all(row["lost_bytes"] <= row["size_bytes"] for row in rows)
    assert sum(row["lost_bytes"] for row in rows) == told["lost_bytes"]
    lost = mesh.json("query", f"SELECT sum(size_bytes) AS bytes FROM losses WHERE session_id = '{session}'")["rows"]
    assert lost == [{"bytes": told["lost_bytes"]}]


def test_the_folder_that_perf_makes_with_the_kernel_is_the_recording_in_it(mesh: WholeMesh, tmp_path: Path) -> None:
    file = reference(PERF)
    folder = tmp_path / "perf.data"
    (folder / "kcore_dir").mkdir(parents=True)
    (folder / "data").symlink_to(file)
    first, again = mesh.json("import", str(file)), mesh.json("import", str(folder))
    assert (again["session"], again["existed"]) == (first["session"], True)


def test_the_same_recording_through_a_pipe_is_the_same_session(mesh: WholeMesh, tmp_path: Path) -> None:
    file, fifo = reference(GRIFFIN), tmp_path / "fifo"
    first = mesh.json("import", str(file))
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(file.read_bytes(),), daemon=True)
    writer.start()
    piped = mesh.json("import", str(fifo))
    assert (piped["session"], piped["existed"]) == (first["session"], True)


def test_with_other_binaries_it_is_another_session(mesh: WholeMesh, tmp_path: Path) -> None:
    packets, program = tmp_path / "pt.bin", tmp_path / "apart" / "hello"
    folder = reference(DYNAMORIO)
    for name in ("pt.bin", "primary.sideband.pevent", "secondary.sideband.pevent"):
        shutil.copy(folder / name, tmp_path / name)
    program.parent.mkdir()
    shutil.copy(folder / "hello", program)
    without = mesh.json("import", str(packets))
    assert without["instructions"] == 0 and without["lost_bytes"] > 0
    (loss,) = (one for one in mesh.json("report", without["session"].rpartition("/")[2])["losses"] if one["size_bytes"])
    assert "hello" in loss["reason"] and "--symbols" in loss["knob"]
    with_them = mesh.json("import", str(packets), "--symbols", str(program.parent))
    assert with_them["session"] != without["session"]
    assert with_them["instructions"] > 0


def test_a_file_that_is_no_recording(mesh: WholeMesh, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("no packets")
    error = mesh.refusal("import", str(file), code=2)
    assert str(file) in error["message"] and "perf.data" in error["help"]
    assert mesh.refusal("import", str(tmp_path / "none"), code=3)["reason"] == "NO_SUCH_FILE"
    (tmp_path / "packets.pt").write_bytes(PSB + PSBEND)
    assert "--image" in mesh.refusal("import", str(tmp_path / "packets.pt"), code=4)["help"]


def test_a_perf_data_without_processor_trace(mesh: WholeMesh, tmp_path: Path) -> None:
    # Its head, one attribute of 128 bytes with no ids, one record: COMM.
    head = b"PERFILE2" + b"".join(
        number.to_bytes(8, "little") for number in (104, 144, 104, 144, 248, 24, 0, 0, 0, 0, 0, 0)
    )
    attribute = (0).to_bytes(4, "little") + (128).to_bytes(4, "little") + bytes(120) + bytes(16)
    comm = b"".join(number.to_bytes(4, "little") for number in (3, 24 << 16, 7, 7)) + b"sleep\0\0\0"
    file = tmp_path / "perf.data"
    file.write_bytes(head + attribute + comm)
    error = mesh.refusal("import", str(file), code=2)
    assert error["reason"] == "NO_PROCESSOR_TRACE"
    assert "perf record -e intel_pt" in error["help"]


def test_a_file_that_was_cut(mesh: WholeMesh, tmp_path: Path) -> None:
    whole = reference(PERF).read_bytes()
    cut = tmp_path / "perf.data"
    cut.write_bytes(whole[: len(whole) - 20_000])
    told = mesh.json("import", str(cut))
    assert any("the file ends at" in note for note in told["notes"])
    report = mesh.json("report", told["session"].rpartition("/")[2])
    assert any("the file ends at" in note["text"] for note in report["notes"])
    cut.write_bytes(whole[:90])
    assert str(cut) in mesh.refusal("import", str(cut), code=9)["message"]


def test_ctrl_c_leaves_nothing(mesh: WholeMesh, tmp_path: Path) -> None:
    known, before = {one["session_id"] for one in mesh.sessions()}, stored_files(mesh)
    for mebibytes in (64, 256, 1024, 1024, 1024):
        file, image = endless(tmp_path, mebibytes << 20)
        with mesh.started("import", str(file), "--image", image, "--json") as importing:
            await_true(lambda: any((mesh.state / "store" / ".partial").glob("*")), PATIENCE_S, "an upload that goes on")
            importing.send_signal(signal.SIGINT)
            done = mesh.finished(importing, code=None)
        if "is not imported" in done.stderr:
            break
        # It was over, or nearly so, before it was caught.
        if session := {one["session_id"] for one in mesh.sessions()} - known:
            mesh.command("delete", *session, "--yes")
    assert done.returncode == 130
    error = json.loads(done.stderr)["error"]
    assert error["reason"] == "INTERRUPTED" and str(file) in error["message"]
    await_true(lambda: stored_files(mesh) == before, PATIENCE_S, "what was stored to be removed")
    assert {one["session_id"] for one in mesh.sessions()} == known
    told = mesh.json("import", str(file), "--image", image)
    assert told["existed"] is False and told["raw_bytes"] == file.stat().st_size
    mesh.command("delete", told["session"], "--yes")


def test_a_stream_that_is_larger_than_a_worker_takes_at_once_is_cut(mesh: WholeMesh, tmp_path: Path) -> None:
    file, image = endless(tmp_path, 258 << 20, padding=1 << 20)
    told = mesh.json("import", str(file), "--image", image)
    session = told["session"].rpartition("/")[2]
    flow = mesh.json("pt", "stat", str(file), "--image", image)["total"]["flow"]
    assert (told["raw_bytes"], told["lost_bytes"]) == (file.stat().st_size, 0)
    assert told["instructions"] == flow["instructions"] > 256 * 6 * 4096
    # The one call goes on over the cut.
    calls = mesh.rows(
        f"SELECT segment, begin_truncated, end_truncated FROM calls WHERE session_id = '{session}' ORDER BY segment"
    )
    assert calls == [{"segment": segment, "begin_truncated": True, "end_truncated": True} for segment in range(2)]
    mesh.command("delete", told["session"], "--yes")


def test_a_kernel_of_which_no_code_is_known_cuts_no_call_and_is_told(mesh: WholeMesh, tmp_path: Path) -> None:
    # 401000: call 401007; jmp 401000; 401007: syscall; ret
    code = bytes.fromhex("e802000000 ebf9 0f05 c3")
    base, kernel, rounds = 0x401000, 0xFFFFFFFF81000000, 50
    (tmp_path / "code.bin").write_bytes(code)

    def target(packet: int, address: int) -> bytes:
        return bytes([6 << 5 | packet]) + address.to_bytes(8, "little")

    # Two branches of the kernel's; the return is compressed.
    there, back = target(0x0D, kernel) + bytes([0b1010]), target(0x0D, base + 9) + bytes([0b110])
    file = tmp_path / "packets.pt"
    file.write_bytes(PSB + bytes.fromhex("9901") + PSBEND + target(0x11, base) + (there + back) * rounds + there)
    told = mesh.json("import", str(file), "--image", f"{tmp_path / 'code.bin'}:0:{len(code)}:{base:#x}")
    session = told["session"].rpartition("/")[2]
    calls = mesh.rows(
        "SELECT begin_truncated OR end_truncated AS cut, count(*) AS calls,"
        " CAST(sum(total_instructions) AS BIGINT) AS ran"
        f" FROM calls WHERE session_id = '{session}' AND depth = 1 GROUP BY cut ORDER BY cut"
    )
    # The last one is under way.
    assert calls == [{"cut": False, "calls": rounds, "ran": 2 * rounds}, {"cut": True, "calls": 1, "ran": 1}]
    (loss,) = mesh.json("report", session)["losses"]
    assert loss["places"] == rounds + 1
    assert "no-kernel-code" in loss["reason"] and "--vmlinux" in loss["knob"]
    mesh.command("delete", session, "--yes")


def test_a_store_that_is_full(tmp_path: Path, small_store: Path) -> None:
    file = reference(PERF)
    state = tmp_path / "state"
    state.mkdir()
    mesh = new_mesh(state, PERMILLE_STORE=f"file://{small_store}")
    try:
        mesh.start()
        error = mesh.refusal("import", str(file), code=8)
        assert error["reason"] == "STORE_FULL" and error["help"]
        assert mesh.sessions() == []
        subprocess.run(["mount", "-o", "remount,size=256m", small_store], check=True)
        assert mesh.json("import", str(file))["existed"] is False
        mesh.stop()
    finally:
        mesh.close()


def test_without_a_mesh_it_says_so(tmp_path: Path) -> None:
    mesh = new_mesh(tmp_path)
    try:
        assert mesh.refusal("import", str(reference(GRIFFIN)), code=6)["help"]
    finally:
        mesh.close()


def endless(folder: Path, size: int, padding: int = 0) -> tuple[Path, str]:
    """Packets of a loop that never ends, and its code. `padding`: bytes behind each PSB+."""
    code = folder / "code.bin"
    # jne to itself; ret.
    code.write_bytes(bytes.fromhex("75fe c3"))
    base = 0x401000
    start = PSB + bytes.fromhex("9901") + PSBEND + b"\x71" + base.to_bytes(6, "little")
    status = bytes.fromhex("9901") + b"\x7d" + base.to_bytes(6, "little")
    round_ = b"\xfe" * 4096 + PSB + status + PSBEND + bytes(padding)
    file = folder / "packets.pt"
    with file.open("wb") as packets:
        packets.write(start)
        while packets.tell() < size:
            packets.write(round_)
    return file, f"{code}:0:3:{base:#x}"


def stored_files(mesh: WholeMesh) -> set[Path]:
    """All objects of sessions."""
    return {path for path in (mesh.state / "store" / "raw").rglob("*") if path.is_file()}


@pytest.fixture
def without_decoder(own_mesh: WholeMesh) -> Iterator[WholeMesh]:
    """Nobody starts it again before `permille up` goes on (SIGCONT)."""
    own_mesh.start()
    own_mesh.up.send_signal(signal.SIGSTOP)
    decoder = own_mesh.service("decoder")
    decoder.kill()
    await_true(lambda: decoder.status() == psutil.STATUS_ZOMBIE, PATIENCE_S, "the decoder's end")
    yield own_mesh
    own_mesh.up.send_signal(signal.SIGCONT)


def test_an_import_waits_for_a_decoder_that_is_away(without_decoder: WholeMesh) -> None:
    mesh, file = without_decoder, reference(LLDB)
    with mesh.started("import", str(file)) as importing:
        assert told_line(importing, "waiting: ")
        mesh.up.send_signal(signal.SIGCONT)
        session = mesh.finished(importing).stdout.split("permille report ")[1].strip()
    assert [one["session_id"] for one in mesh.sessions()] == [session]
    assert functions_of(mesh, session) == table_of_calls(mesh, file)
    # One folder with its files.
    raw = mesh.state / "store" / "raw" / session
    assert len([one for one in raw.iterdir() if one.is_dir()]) == 1
    assert mesh.json("import", str(file))["existed"] is True


def test_an_import_gives_up_when_its_patience_is_over(without_decoder: WholeMesh) -> None:
    told = without_decoder.command("import", str(reference(LLDB)), "--patience", "1", code=6).stderr
    assert "waiting: " in told
    assert "permille: " in told.partition("waiting: ")[2]
