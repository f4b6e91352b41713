"""Recordings made elsewhere, read without a mesh."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from elftools.elf.elffile import ELFFile
from permille.cli.rendering.undebugged_text import undebugged_text
from permille.ptcore import Capture

from .conftest import PERMILLE, await_true, permille_alone, plain_environment

PSB = bytes.fromhex("0282" * 8)
PSBEND = bytes.fromhex("0223")
MODE_64 = bytes.fromhex("9901")
PAD = b"\0"
# nop; jne +2; two nops; ret.
CODE = bytes.fromhex("90 7502 9090 c3")
BASE = 0x401000


def tip(kind: int, address: int) -> bytes:
    """A packet with an address of six bytes."""
    return bytes([0x60 | kind]) + address.to_bytes(6, "little")


def tsc(ticks: int) -> bytes:
    return b"\x19" + ticks.to_bytes(7, "little")


TAKEN = b"\x06"
ROUND = PSB + tsc(1000) + MODE_64 + PSBEND + MODE_64 + tip(0x11, BASE) + TAKEN + tsc(1400) + tip(0x01, 0x500000)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Packets alone: one branch and one return, from 1000 to 1400."""
    file = tmp_path / "trace.pt"
    file.write_bytes(ROUND)
    return file


@pytest.fixture
def image(tmp_path: Path) -> str:
    """Its code, as the option wants it."""
    file = tmp_path / "code.bin"
    file.write_bytes(b"...." + CODE)
    return f"{file}:4:{len(CODE)}:{BASE:#x}"


def pt(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = permille_alone("pt", *arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in pt(*arguments, "--json").stdout.splitlines()]


def test_stat_counts_packets_and_flow(raw: Path, image: str) -> None:
    told = json.loads(pt("stat", raw, "--image", image, "--cpu", "6/94/3", "--json").stdout)
    assert (told["kind"], told["cpu"], told["warnings"]) == ("raw", "6/94/3", [])
    stream = told["streams"][0]
    assert stream["bytes"] == len(ROUND)
    assert stream["packets"] == {
        "MODE.Exec": 2, "PSB": 1, "PSBEND": 1, "TIP.PGD": 1, "TIP.PGE": 1, "TNT": 1, "TSC": 2,
    }  # fmt: skip
    assert (stream["first_tsc"], stream["last_tsc"], stream["tnt_bits"]) == (1000, 1400, 1)
    flow = stream["flow"]
    assert (flow["instructions"], flow["blocks"], flow["conditional_branches"], flow["returns"]) == (3, 2, 1, 1)
    assert (flow["error_count"], flow["lost_bytes"], stream["errors"]) == (0, 0, [])
    assert told["peak_memory_bytes"] > 1 << 20
    text = pt("stat", raw, "--image", image).stdout
    assert text.splitlines()[-1].startswith("peak memory: ")
    assert "conditional branches                 1\n" in text
    assert "time, TSC ticks                    400  (1000 to 1400)" in text


def test_dump_writes_a_packet_a_line(raw: Path) -> None:
    lines = pt("dump", raw).stdout.splitlines()
    assert lines[0].split() == ["0", "PSB"]
    assert lines[-1].split() == ["2e", "TIP.PGD", "0x500000"]
    assert [row["packet"] for row in rows("dump", raw)][-3:] == ["TNT", "TSC", "TIP.PGD"]


def test_flow_writes_instructions_or_blocks(raw: Path, image: str) -> None:
    lines = pt("flow", raw, "-i", image).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["[enabled", "401000", "401001", "401005", "[disabled"]
    assert "jne 0x401005" in lines[2]
    events = rows("flow", raw, "-i", image, "--blocks")
    assert {"enabled", "mode", "block", "disabled"} <= {row["event"] for row in events}
    blocks = [(row["first"], row["kind"]) for row in events if row["event"] == "block"]
    assert blocks == [("0x401000", "taken"), ("0x401005", "return")]


def test_functions_have_the_category_that_a_table_says(raw: Path, image: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.txt"
    rules.write_text("pricing  *401000\n")
    (function,) = rows("calls", raw, "-i", image, "--table", "--categories", rules)
    assert function["category"] == "pricing"
    assert " pricing " in pt("calls", raw, "-i", image, "--table", "--categories", rules).stdout
    rules.write_text("pricing  *401000\nPricing  *\n")
    refused = pt("calls", raw, "-i", image, "--table", "--categories", rules, code=2).stderr
    assert f"{rules}, line 2" in refused
    pt("calls", raw, "-i", image, "--table", "--categories", tmp_path / "absent", code=3)


def test_of_rules_without_end_no_more_than_may_be_is_read(raw: Path, image: str) -> None:
    command: list[str | Path] = [PERMILLE, "pt", "calls", raw, "-i", image, "--table", "--categories", "/dev/stdin"]
    done = subprocess.run(command, input=b"\n" * (17 << 20), capture_output=True, check=False, env=plain_environment())
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"/dev/stdin: more than 16 MiB of rules" in done.stderr


@pytest.mark.parametrize("options", [["--table", "--categories", "/dev/null"], ["--depth", str(1 << 32)]], ids=" ".join)
def test_what_cannot_be_meant_is_refused(raw: Path, image: str, options: list[str]) -> None:
    """Of a device that never ends nothing is read: it took all memory."""
    assert permille_alone("pt", "calls", raw, "--image", image, *options).returncode == 2


@pytest.mark.parametrize("options", [["--table", "--depth", "2"], ["--categories", "/dev/stdin"]], ids=" ".join)
def test_what_would_be_left_out_of_account_is_refused(raw: Path, image: str, options: list[str]) -> None:
    failed = pt("calls", raw, "--image", image, *options, code=2).stderr
    assert "--table" in failed and options[-2] in failed


def test_calls_are_listed_or_summed_up(raw: Path, image: str) -> None:
    (call,) = rows("calls", raw, "-i", image)
    assert (call["depth"], call["total_instructions"], call["begin_truncated"]) == (0, 3, True)
    assert "(began before" in pt("calls", raw, "-i", image).stdout
    (function,) = rows("calls", raw, "-i", image, "--table")
    assert (function["calls"], function["self_instructions"], function["category"]) == (1, 3, "other")


def test_calls_of_any_depth_are_listed(tmp_path: Path) -> None:
    raw, code = tmp_path / "deep.pt", tmp_path / "code.bin"
    code.write_bytes(bytes.fromhex("ffd0"))
    levels = 70_000
    raw.write_bytes(PSB + MODE_64 + PSBEND + MODE_64 + tip(0x11, BASE) + tip(0x0D, BASE) * levels)
    lines = pt("calls", raw, "-i", f"{code}:0:2:{BASE:#x}").stdout.splitlines()
    assert len(lines) == 1 + levels
    assert f" [depth {levels - 1}] " in lines[1]
    assert max(map(len, lines)) < 1000


def test_where_no_call_could_be_decoded_it_is_told(raw: Path, image: str, tmp_path: Path) -> None:
    elsewhere = f"{tmp_path / 'code.bin'}:4:{len(CODE)}:{BASE + 0x1000:#x}"
    for form in ([], ["--json"]):
        done = pt("calls", raw, "-i", elsewhere, *form)
        assert done.stdout == "" and "permille pt stat" in done.stderr
        assert pt("calls", raw, "-i", image, *form).stderr == ""


def test_a_program_gives_its_functions_names(raw: Path, tmp_path: Path) -> None:
    source, program = tmp_path / "a.s", tmp_path / "a.out"
    source.write_text(
        ".globl _start\n.type _start, @function\n_start: nop\njne last\nnop\nnop\nlast: ret\n.size _start, .-_start\n"
    )
    subprocess.run(["cc", "-nostdlib", "-static", f"-Wl,-Ttext={BASE:#x}", "-o", program, source], check=True)
    offset = program.read_bytes().index(CODE)
    told = pt("flow", raw, "--image", f"{program}:{offset}:{len(CODE)}:{BASE:#x}").stdout
    assert "_start+0x1" in told


def test_names_of_a_recording_do_nothing_to_a_terminal(raw: Path, tmp_path: Path) -> None:
    source, program = tmp_path / "a.s", tmp_path / "pro\n\x1bgram"
    source.write_text(
        ".globl evilXY\n.type evilXY, @function\nevilXY: nop\njne 1f\nnop\nnop\n1: ret\n.size evilXY, .-evilXY\n"
    )
    link = ["-nostdlib", "-static", "-Wl,-e,evilXY", f"-Wl,-Ttext={BASE:#x}"]
    subprocess.run(["cc", *link, "-o", program, source], check=True)
    program.write_bytes(program.read_bytes().replace(b"evilXY", b"evil\n\x1b"))
    image = f"{program}:{program.read_bytes().index(CODE)}:{len(CODE)}:{BASE:#x}"
    for command in (["flow"], ["flow", "--blocks"], ["calls"], ["calls", "--table"]):
        told = pt(*command, raw, "-i", image).stdout
        assert r"evil\x0a\x1b" in told
        assert "\x1b" not in told
    assert r"[pro\x0a\x1bgram]" in pt("calls", "--table", raw, "-i", image).stdout
    # Programs have the names themselves.
    assert {(row["function"], row["module"]) for row in rows("calls", raw, "-i", image)} == {
        ("evil\n\x1b", str(program))
    }
    assert r"\x1bgram.none" in pt("stat", f"{program}.none", code=3).stderr


def test_damaged_packets_are_errors_with_their_offset(raw: Path, image: str) -> None:
    raw.write_bytes(ROUND + b"\x05\x01\x02" + ROUND)
    told = json.loads(pt("stat", raw, "--image", image, "--json").stdout)
    (error,) = told["streams"][0]["errors"]
    assert (error["offset"], error["size_bytes"]) == (len(ROUND), 3)
    assert error["reason"].startswith("unknown-packet")
    flow = told["streams"][0]["flow"]
    assert (flow["instructions"], flow["lost_bytes"], flow["error_count"]) == (6, 3, 1)
    assert f"at offset {len(ROUND):#x}: unknown-packet" in pt("stat", raw, "--image", image).stdout
    assert "error: no packet begins with 05" in pt("dump", raw).stdout


def test_bytes_before_the_first_psb_are_no_packets(raw: Path, image: str) -> None:
    raw.write_bytes(ROUND[1:] + ROUND)
    (stream,) = json.loads(pt("stat", raw, "--image", image, "--json").stdout)["streams"]
    assert (stream["bad_packets"], stream["bad_packet_bytes"]) == (1, len(ROUND) - 1)
    assert (stream["tnt_bits"], stream["flow"]["lost_bytes"]) == (1, len(ROUND) - 1)
    assert stream["errors"][0]["reason"].startswith("before-first-psb")


def test_without_code_packets_are_counted_and_the_way_out_is_told(raw: Path, tmp_path: Path) -> None:
    done = pt("stat", raw)
    assert "instructions                         0" in done.stdout
    assert "--image" in done.stderr
    assert pt("stat", raw, "--packets-only").stderr == ""
    for layer in ("flow", "calls"):
        failed = pt(layer, raw, code=4)
        assert str(raw) in failed.stderr
        assert "--image FILE:OFFSET:SIZE:ADDRESS" in failed.stderr


def test_a_thread_of_a_stream_has_all_of_it(raw: Path, image: str) -> None:
    assert rows("dump", raw, "--thread", "0") == rows("dump", raw)
    (thread,) = json.loads(pt("stat", raw, "--image", image, "--json").stdout)["streams"][0]["threads"]
    assert (thread["tid"], thread["instructions"]) == (0, 3)


def test_what_cannot_be_read_is_named_with_a_way_out(raw: Path, tmp_path: Path) -> None:
    empty, text, short = tmp_path / "empty", tmp_path / "text", tmp_path / "short.gz"
    empty.touch()
    text.write_text("not a trace\n" * 10)
    short.write_bytes(gzip.compress(os.urandom(5000))[:2000])
    cases: list[tuple[list[str | Path], int, str]] = [
        ([empty], 2, "empty"),
        ([text], 2, "perf.data"),
        ([tmp_path], 2, "folder"),
        ([short], 9, "whole"),
        ([tmp_path / "none"], 3, "check the path"),
        ([raw, "--cpu", "skylake"], 2, "--cpu 6/94/3"),
        ([raw, "--timing", "3"], 2, "--timing 3,168/2,20"),
        ([raw, "--image", "a.out"], 2, "FILE:OFFSET:SIZE:ADDRESS"),
        ([raw, "--image", f"{tmp_path / 'none'}:0:1:0x1000"], 3, "none"),
        ([raw, "--image", f"{text}:0:0x1000:0x1000"], 2, "0x1000 bytes"),
        ([raw, "--stream", "7"], 3, "no stream 7"),
    ]
    for arguments, code, told in cases:
        failed = pt("stat", *arguments, code=code)
        assert told in failed.stderr, failed.stderr
        assert "what to do: " in failed.stderr
    failed = pt("stat", text, "--json", code=2)
    assert json.loads(failed.stderr)["error"]["reason"] == "CAPTURE_UNKNOWN"
    assert "thread 7" in pt("dump", raw, "--thread", "7", code=3).stderr


def test_a_packed_recording_that_is_damaged_or_far_larger_than_it_is_is_refused(raw: Path, tmp_path: Path) -> None:
    """4 GiB are the most; the sizes are told apart by what to do: what was cut off is lost, what is large is whole."""
    whole = zstandard.ZstdCompressor(write_checksum=True).compress(raw.read_bytes() + os.urandom(1 << 12))
    wrong = bytearray(gzip.compress(raw.read_bytes()))
    # Of the CRC32 behind the data (RFC 1952, section 2.3.1).
    wrong[-8] ^= 1
    for name, content in [("cut.zst", whole[:-1000]), ("wrong.gz", bytes(wrong))]:
        file = tmp_path / name
        file.write_bytes(content)
        error = json.loads(pt("stat", file, "--json", code=9).stderr)["error"]
        assert (error["reason"], error["metadata"]["file"]) == ("CAPTURE_DAMAGED", str(file))
        assert "data are cut off or damaged" in error["message"]
    bomb = tmp_path / "bomb.zst"
    bomb.write_bytes(zstandard.ZstdCompressor().compress(bytes((64 << 20) + 1)))
    error = json.loads(pt("stat", bomb, "--json", code=2).stderr)["error"]
    assert (error["reason"], error["help"]) == ("CAPTURE_PACKED", "unpack it to a file, and give that")
    assert error["message"].startswith(f"{bomb}: more than {64 << 20} bytes when unpacked")


def test_nothing_is_behind_a_file_or_at_a_path_that_no_system_has(raw: Path, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for file in (raw / "x", loop, tmp_path / ("x" * 300)):
        error = json.loads(pt("stat", file, "--json", code=3).stderr)["error"]
        assert (error["reason"], error["help"]) == ("NO_SUCH_FILE", "check the path")
        assert error["message"].startswith(f"there is no file {file}: ")


def words(size: int, *numbers: int) -> bytes:
    return b"".join(number.to_bytes(size, "little") for number in numbers)


def perf_of_large_pieces(tmp_path: Path) -> Path:
    """What `perf record -o -` writes: one core's packets in two pieces of 40 MiB, which are no blocks of the file."""
    piece = 40 << 20

    def record(kind: int, body: bytes) -> bytes:
        return words(4, kind) + words(2, 0, len(body) + 8) + body

    file = tmp_path / "large.data"
    with file.open("wb") as out:
        out.write(b"PERFILE2" + words(8, 16))
        out.write(record(64, words(4, 8, 64) + words(8, 0, 0, 0x86, 0, 1 << 18, 0, 0)))
        out.write(record(70, words(8, 1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1)))
        for number in range(2):
            out.write(record(71, words(8, piece, number * piece, 0) + words(4, 0, 0xFFFFFFFF, 0, 0)))
            out.seek(piece, os.SEEK_CUR)
        out.truncate()
    return file


def perf_of_a_core(tmp_path: Path, *, who_ran: bool) -> Path:
    """The same of one core's packets, whose code is not there. `who_ran`: its first record says which thread came."""
    packets = ROUND + PAD * (-len(ROUND) % 8)

    def record(kind: int, body: bytes) -> bytes:
        return words(4, kind) + words(2, 0, len(body) + 8) + body

    file = tmp_path / "core.data"
    written = b"PERFILE2" + words(8, 16) + record(64, words(4, 8, 64) + words(8, 0, 0, 0x86, 0, 1 << 18, 0, 0))
    written += record(70, words(8, 1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1))
    if who_ran:
        written += record(14, words(4, 7, 7) + words(8, 10) + words(4, 0, 0))
    written += record(71, words(8, len(packets), 0, 0) + words(4, 0, 0xFFFFFFFF, 0, 0)) + packets
    file.write_bytes(written)
    return file


def test_code_that_is_not_there_has_a_way_out_that_the_recording_takes(raw: Path, tmp_path: Path) -> None:
    assert "Name it with --image, or with --sideband and --symbols" in pt("stat", raw).stderr
    told = pt("stat", perf_of_a_core(tmp_path, who_ran=True)).stderr
    assert "core.data ran is not known. Name it with --symbols, or count packets alone" in told
    assert "--image" not in told
    told = pt("stat", perf_of_a_core(tmp_path, who_ran=False)).stderr
    assert "who ran in" in told
    assert "--symbols" not in told


def test_a_temporary_folder_that_cannot_take_the_packets_is_named(tmp_path: Path) -> None:
    file = perf_of_large_pieces(tmp_path)
    assert json.loads(pt("stat", file, "--json").stdout)["streams"][0]["bytes"] == 80 << 20
    nowhere = str(tmp_path / "nowhere")
    error = json.loads(permille_alone("pt", "stat", file, "--json", TMPDIR=nowhere).stderr)["error"]
    assert error["reason"] == "CAPTURE_TEMPORARY"
    assert nowhere in error["message"]
    assert "TMPDIR" in error["help"]


@pytest.mark.parametrize(
    "how", ["cat {} | permille pt dump -", "permille pt dump - < {}", "cat {} | permille pt dump /dev/stdin"]
)
def test_a_recording_comes_through_a_pipe(raw: Path, how: str) -> None:
    assert shell(how, raw).stdout == pt("dump", raw).stdout


def test_a_substituted_process_and_a_fifo_are_pipes(raw: Path, image: str, tmp_path: Path) -> None:
    assert shell("permille pt dump <(gzip -c {})", raw).stdout == pt("dump", raw).stdout
    fifo = tmp_path / "pipes" / raw.name
    fifo.parent.mkdir()
    os.mkfifo(fifo)
    command = f"cat {{}} > {fifo} & permille pt stat --json {fifo} --image {image}"
    told, expected = json.loads(shell(command, raw).stdout), json.loads(pt("stat", "--json", raw, "-i", image).stdout)
    assert (told["file"], told["streams"]) == (str(fifo), expected["streams"])


def test_what_is_wrong_with_a_pipe_is_told_by_its_name(raw: Path, tmp_path: Path) -> None:
    raw.write_text("not a trace\n" * 10)
    refused = shell("cat {} | TMPDIR=" + str(tmp_path) + " permille pt stat - ", raw, code=2)
    assert "permille: -: neither perf.data" in refused.stderr
    assert list(tmp_path.iterdir()) == [raw]
    device = pt("stat", "/dev/null", code=2).stderr
    assert "/dev/null is neither a file nor a pipe" in device
    assert "save the recording to a file" in device


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_pipe_without_room_names_the_folder(raw: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], check=True)
    try:
        full = shell(f"head -c 1M /dev/zero | cat {{}} - | TMPDIR={small} permille pt stat -", raw, code=8)
    finally:
        subprocess.run(["umount", "-l", small], check=True)
    assert f"no room in {small}" in full.stderr
    assert "TMPDIR" in full.stderr.partition("what to do")[2]


def shell(command: str, file: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """A line of bash that reads `{}`."""
    line = command.format(file).replace("permille ", f"{sys.executable} {PERMILLE} ")
    done = subprocess.run(
        ["bash", "-c", line], env=plain_environment(), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def denied() -> Iterator[Path]:
    """A recording of somebody else, in a folder of everybody."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        file = folder / "trace.pt"
        file.write_bytes(ROUND)
        file.chmod(0)
        yield file


def as_somebody_else(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of a user who is not root, for whom all files are open."""
    nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    try:
        subprocess.run([sys.executable, "-c", "import permille.cli"], check=True, capture_output=True, **nobody)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"nobody else may run what stands here: {error}")
    command = [sys.executable, PERMILLE, *arguments]
    return subprocess.run(command, env=plain_environment(), capture_output=True, text=True, check=False, **nobody)


@pytest.mark.parametrize("command", [["pt", "stat"], ["import"], ["sessions", "--config"]])
def test_a_file_of_somebody_else_is_denied(denied: Path, command: list[str]) -> None:
    done = as_somebody_else(*command, denied, "--json")
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["code"]) == (5, "PERMISSION_DENIED")
    assert str(denied) in error["message"]
    assert "Usage" not in as_somebody_else(*command, denied).stderr


@pytest.mark.parametrize("command", [["pt", "stat"], ["pt", "calls", "--thread", "5"], ["pt", "dump"], ["import"]])
def test_a_whole_perf_data_without_packets_is_no_damaged_one(tmp_path: Path, command: list[str]) -> None:
    # Its head, one attribute of 128 bytes with no ids, one record: COMM.
    numbers = (104, 144, 104, 144, 248, 24, 0, 0, 0, 0, 0, 0)
    head = b"PERFILE2" + b"".join(number.to_bytes(8, "little") for number in numbers)
    attribute = (0).to_bytes(4, "little") + (128).to_bytes(4, "little") + bytes(136)
    comm = b"".join(number.to_bytes(4, "little") for number in (3, 24 << 16, 7, 7)) + b"sleep\0\0\0"
    file = tmp_path / "perf.data"
    file.write_bytes(head + attribute + comm)
    done = permille_alone(*command, file, "--json")
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert (done.returncode, error["reason"], error["metadata"]["file"]) == (2, "NO_PROCESSOR_TRACE", str(file))
    assert str(file) in error["message"] and "perf record -e intel_pt" in error["help"]


@pytest.mark.parametrize("name", ["perf.data", "x.griffin.gz", "notes.txt"])
def test_a_recording_in_a_folder_that_is_none_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    error = json.loads(permille_alone("pt", "stat", tmp_path, "--json").stderr)["error"]
    told = "give perf.data, an LLDB" if name == "notes.txt" else f"give {tmp_path / name}"
    assert error["reason"] == "FOLDER" and error["help"].startswith(told)


@pytest.mark.parametrize("mode", [0, 0o600])
@pytest.mark.parametrize("command", [["pt", "stat"], ["import"]])
def test_a_folder_of_somebody_else_is_denied(denied: Path, command: list[str], mode: int) -> None:
    bundle = denied.parent / "bundle"
    bundle.mkdir()
    (bundle / "trace.json").write_text("{}")
    bundle.chmod(mode)
    done = as_somebody_else(*command, bundle, "--json")
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["reason"], error["help"].endswith(f"chmod a+rx {bundle}")) == (
        5,
        "FOLDER_DENIED",
        True,
    )


def test_a_recording_is_not_damaged_where_there_is_no_further_thread(denied: Path) -> None:
    denied.chmod(0o644)
    assert as_somebody_else("pt", "stat", denied).returncode == 0
    limited = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    command: list[str | Path] = [
        *limited,
        "bash",
        "-c",
        'ulimit -u 1; exec "$@"',
        "bash",
        sys.executable,
        PERMILLE,
        "pt",
        "stat",
        denied,
    ]
    done = subprocess.run([*command, "--json"], env=plain_environment(), capture_output=True, text=True, check=False)
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["reason"], error["metadata"]["lacks"]) == (8, "MACHINE_EXHAUSTED", "threads")


def test_a_denied_file_that_an_option_names_is_denied(denied: Path, raw: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        own = shutil.copy(raw, name)
        for option in ("--sideband", "--categories", "--vmlinux", "--kallsyms", "--kcore"):
            command = ["calls", "--table"] if option == "--categories" else ["stat"]
            done = as_somebody_else("pt", *command, own, option, denied)
            assert done.returncode == 5
            assert "chmod" in done.stderr
        denied.parent.chmod(0o700)
        done = as_somebody_else("pt", "stat", own, "--symbols", denied.parent)
        assert (done.returncode, "chmod a+rx" in done.stderr) == (5, True)


def endless(tmp_path: Path, size: int = 64 << 30) -> Path:
    """More packets than can be listed in a day, in a file without blocks."""
    file = tmp_path / "endless.pt"
    file.write_bytes(PSB)
    os.truncate(file, size)
    return file


def test_what_was_read_of_a_large_file_is_given_back(tmp_path: Path, image: str) -> None:
    file = tmp_path / "large.pt"
    with file.open("wb") as large:
        # Parts that several threads count, none of which holds a million packets.
        for begin in range(0, 1 << 30, 1 << 19):
            large.seek(begin)
            large.write(PSB)
    told = json.loads(pt("stat", file, "-i", image, "--json").stdout)
    assert told["total"]["packets"]["PSB"] == 1 << 11
    assert told["peak_memory_bytes"] < 512 << 20


def test_what_is_unpacked_does_not_stay_in_memory(tmp_path: Path, image: str) -> None:
    file, folder = tmp_path / "large.pt.gz", tmp_path / "temporary"
    folder.mkdir()
    with gzip.open(file, "wb", compresslevel=1) as large:
        for _ in range(64):
            large.write(PSB + bytes(4 << 20))
    done = permille_alone("pt", "stat", file, "-i", image, "--json", TMPDIR=str(folder))
    told = json.loads(done.stdout)
    assert told["total"]["packets"]["PSB"] == 64
    # Unpacked in memory it took twice its size and more, mapped it is once at most.
    assert told["peak_memory_bytes"] < 400 << 20
    assert list(folder.iterdir()) == []


def first_line_alone(*arguments: str | Path) -> str:
    """Reads one line, as `| head -1` does; the command has to end by itself, without a word about it."""
    with started(*arguments) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line: str = process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0
    return line


@pytest.mark.parametrize("arguments", [["dump"], ["dump", "--json"]])
def test_a_reader_that_has_seen_enough_ends_it(tmp_path: Path, arguments: list[str]) -> None:
    assert "PSB" in first_line_alone("pt", *arguments, endless(tmp_path))


def container(file: Path, *buffers: bytes, pads: int) -> Path:
    """A Griffin container: the packets of one thread, with so many PADs behind each buffer, and their code."""
    with file.open("wb") as out:
        out.write(words(4, 0x51C0FFEE, 1, 4, 32 + len(CODE)) + words(8, 7, BASE, len(CODE)) + CODE)
        for number, packets in enumerate(buffers):
            size = len(packets) + pads
            out.write(words(4, 0, 40 + size) + words(8, 7, 7, number, size) + packets)
            out.seek(pads, os.SEEK_CUR)
        out.truncate()
    return file


@pytest.mark.parametrize(
    ("arguments", "behind"),
    # Each PAD would be a line: behind what is no packet all of them are one.
    [(["dump"], bytes(9) + b"\x05"), (["flow"], b""), (["flow", "--blocks", "--json"], b"")],
    ids=["dump", "flow", "flow --blocks --json"],
)
def test_lines_come_before_pieces_are_put_together_and_are_those_of_the_whole(
    tmp_path: Path, arguments: list[str], behind: bytes
) -> None:
    one, pads = ROUND + behind, 24 << 20
    pieces = container(tmp_path / "pieces", ROUND * 8000 + behind, one, one, pads=pads)
    whole = container(tmp_path / "whole", ROUND * 7999 + (one + bytes(pads)) * 3, pads=0)
    told = pt(*arguments, pieces).stdout
    assert told == pt(*arguments, whole).stdout
    # Without a folder to put them together in.
    with started("pt", *arguments, pieces, TMPDIR=str(tmp_path / "nowhere")) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == told[: told.index("\n") + 1]
        process.stdout.close()
        process.wait(60)


@pytest.mark.parametrize(
    ("arguments", "first"), [(["calls"], "call"), (["calls", "--json"], "call"), (["flow"], "enabled")]
)
def test_what_ran_is_listed_as_it_is_decoded(tmp_path: Path, arguments: list[str], first: str) -> None:
    # call +2; jne back; ret: three rounds in each packet. No search of all behind them ends.
    code, trace = tmp_path / "loop", endless(tmp_path, 1 << 40)
    code.write_bytes(bytes.fromhex("e802000000 75f9 c3"))
    with trace.open("r+b") as file:
        file.write(PSB + tsc(1000) + MODE_64 + PSBEND + MODE_64 + tip(0x11, BASE) + b"\xfe" * 10_000)
    assert first in first_line_alone("pt", *arguments, "-i", f"{code}:0:8:{BASE:#x}", trace)


def test_ctrl_c_ends_the_wait_for_rules_from_a_pipe(raw: Path, image: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Somebody opens it and writes nothing.
    with started("pt", "calls", raw, "-i", image, "--table", "--categories", pipe) as process, pipe.open("wb"):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_ctrl_c_ends_a_long_count(tmp_path: Path) -> None:
    # It takes minutes already to see that no guest runs in it.
    with started("pt", "stat", endless(tmp_path, 1 << 40)) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whatever_ends_an_import_leaves_no_folder(tmp_path: Path, number: signal.Signals) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "temporary"
    os.mkfifo(pipe)
    folder.mkdir()
    # Nobody writes: it waits.
    with started("import", pipe, TMPDIR=str(folder)) as process:
        # A file that tries the folder out comes before.
        await_true(lambda: any(one.is_dir() for one in folder.iterdir()), 60, "its folder")
        process.send_signal(number)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert "the same command begins anew" in process.stderr.read()
    assert list(folder.iterdir()) == []


@contextlib.contextmanager
def started(*arguments: str | Path, **environment: str) -> Any:
    command = [sys.executable, PERMILLE, *arguments]
    process = subprocess.Popen(
        command, env=plain_environment() | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def reference(path: str) -> Path:
    """A reference trace; skips where there are none."""
    shared = os.environ.get("PERMILLE_SHARED") or Path(__file__).parents[3] / "shared"
    found = Path(shared) / "data/pt" / path
    if not found.exists():
        pytest.skip(f"no reference data at {found}: set PERMILLE_SHARED")
    return found


def griffin(name: str) -> Path:
    return reference(f"griffin/{name}.griffin.gz")


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("last", (171_568, 1_873_231, 314_466, 28_638, 341_137)),
        ("ovf-01-ben", (9_024, 176_141, 33_970, 827, 34_713)),
        ("cve-2004-0597-poc", (24_416, 472_852, 76_082, 3_490, 79_302)),
        ("cve-2005-0105-poc", (31_600, 671_163, 106_853, 5_982, 112_666)),
    ],
)
def test_real_traces_have_the_counts_that_libipt_gives(name: str, counts: tuple[int, ...]) -> None:
    told = json.loads(pt("stat", griffin(name), "--cpu", "6/94", "--json").stdout)["total"]
    flow = told["flow"]
    found = (told["bytes"], flow["instructions"], flow["conditional_branches"], flow["returns"], told["tnt_bits"])
    assert found == counts
    assert told["tnt_bits"] == flow["conditional_branches"] + flow["compressed_returns"]
    assert (flow["error_count"], flow["lost_bytes"], told["bad_packets"]) == (0, 0, 0)


def test_memory_accesses_by_class_and_width(raw: Path, image: str) -> None:
    told = json.loads(pt("stat", raw, "-i", image, "--json").stdout)
    # The return reads its address; nothing else touches memory.
    expected = [{"instruction_class": "stack", "width_bytes": 8, "reads": 1, "writes": 0}]
    assert told["streams"][0]["flow"]["accesses"] == told["total"]["flow"]["accesses"] == expected
    text = pt("stat", raw, "-i", image).stdout
    assert any(line.split() == ["stack,", "8", "bytes", "1", "read", "0", "written"] for line in text.splitlines())


INLINING = """
__attribute__((noinline)) int leaf(volatile int *x) { return *x; }
static inline __attribute__((always_inline)) int innermost(volatile int *x) { *x += 3; return *x * 5; }
static inline __attribute__((always_inline)) int middle(volatile int *x) { return leaf(x) ^ innermost(x); }
void _start(void) {
    volatile int x = 1;
    x = middle(&x);
    __asm__ volatile("syscall");
    __builtin_unreachable();
}
"""


@pytest.fixture
def inlining(tmp_path: Path) -> list[str | Path]:
    """A run of a program with inlined functions, with its code."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    return inlining_program(tmp_path)


def inlining_program(folder: Path, *options: str) -> list[str | Path]:
    source, program, packets = folder / "inlining.c", folder / "inlining", folder / "inlining.pt"
    source.write_text(INLINING)
    options = (*options, "-g", "-O1", "-nostdlib", "-static", "-no-pie", "-fcf-protection=none")
    subprocess.run(["gcc", *options, "-o", str(program), str(source)], check=True, cwd=folder)
    with program.open("rb") as file:
        elf = ELFFile(file)
        (code,) = (part for part in elf.iter_segments("PT_LOAD") if part["p_flags"] & 1)
        start = elf["e_entry"]
    packets.write_bytes(PSB + tsc(1000) + MODE_64 + PSBEND + MODE_64 + tip(0x11, start) + TAKEN + tsc(1400) + b"\x01")
    return [packets, "-i", f"{program}:{code['p_offset']:#x}:{code['p_filesz']:#x}:{code['p_vaddr']:#x}"]


def test_inlined_functions_are_told_where_they_call_and_how_much_of_a_function_they_are(
    inlining: list[str | Path],
) -> None:
    leaf, start = rows("calls", *inlining, "--inlined")
    assert (start["function"], start["inlined"], leaf["function"], leaf["inlined"]) == (
        "_start",
        [],
        "leaf",
        ["middle"],
    )
    assert "leaf  inlined: middle" in pt("calls", *inlining, "--inlined").stdout
    table = rows("calls", *inlining, "--inlined", "--table")
    own = {row["function"]: row["self_instructions"] for row in table if "inlined" not in row}
    inside = {tuple(row["inlined"]): row["self_instructions"] for row in table if "inlined" in row}
    assert set(inside) == {("middle",), ("middle", "innermost")}
    assert all(row["function"] == "_start" for row in table if "inlined" in row)
    assert 0 < sum(inside.values()) < own["_start"]
    assert "inlined: middle > innermost" in pt("calls", *inlining, "--inlined", "--table").stdout
    assert all("inlined" not in row for row in rows("calls", *inlining))


def test_a_file_with_inlined_functions_that_is_missing_is_named(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    program = inlining_program(tmp_path, "-gsplit-dwarf")
    (split,) = tmp_path.glob("*.dwo")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    split.rename(elsewhere / split.name)
    for form in ([], ["--table"]):
        told = pt("calls", *program, "--inlined", *form)
        (warning,) = (line for line in told.stderr.splitlines() if line.startswith("warning: "))
        assert f"inlining: debug information refers to {split.resolve()}: it is not there" in warning
        assert "--symbols" in told.stderr
        assert "middle" not in told.stdout
        assert pt("calls", *program, *form).stderr == ""
        found = pt("calls", *program, "--inlined", *form, "--symbols", elsewhere)
        assert (found.stderr, "middle" in found.stdout) == ("", True)


def test_binaries_without_debug_information_are_named_where_inlined_functions_are_wanted(
    inlining: list[str | Path],
) -> None:
    program = inlining[0].parent / "inlining"  # type: ignore[union-attr]
    subprocess.run(["strip", "--strip-debug", str(program)], check=True)
    for form in ([], ["--table"]):
        told = pt("calls", *inlining, "--inlined", *form)
        (warning,) = told.stderr.splitlines()
        assert warning == f"warning: without debug information nothing is known of what was inlined: {program}"
        assert "leaf" in told.stdout
        assert pt("calls", *inlining, *form).stderr == ""


def test_the_first_of_many_binaries_without_debug_information_are_named() -> None:
    told = undebugged_text(f"/lib/{letter}.so" for letter in "ebdac")
    assert told.endswith(": /lib/a.so, /lib/b.so, /lib/c.so and 2 more")
    assert undebugged_text(["/lib/b.so", "/lib/a.so"]).endswith(": /lib/a.so, /lib/b.so")


def test_the_layers_of_a_real_trace_agree() -> None:
    file = griffin("ovf-01-ben")
    stat = json.loads(pt("stat", file, "--json").stdout)
    told, thread = stat["total"], stat["streams"][0]["threads"][0]["tid"]
    assert len(pt("dump", file).stdout.splitlines()) == told["packet_count"]
    instructions = [row for row in rows("flow", file) if row["event"] == "instruction"]
    assert len(instructions) == told["flow"]["instructions"]
    blocks = [row for row in rows("flow", file, "--blocks") if row["event"] == "block"]
    assert len(blocks) == told["flow"]["blocks"]
    assert sum(row["instructions"] for row in blocks) == len(instructions)
    assert sum(row["self_instructions"] for row in rows("calls", file)) == len(instructions)
    assert sum(row["self_instructions"] for row in rows("calls", file, "--table")) == len(instructions)
    assert sum(row["event"] == "block" for row in rows("flow", file, "-b", "--thread", str(thread))) == len(blocks)


def test_a_core_is_divided_by_thread() -> None:
    file = reference("lldb/intelpt-multi-core-trace")
    streams = json.loads(pt("stat", file, "--json").stdout)["streams"]
    ran = {thread["tid"]: thread["instructions"] for stream in streams for thread in stream["threads"]}
    # As LLDB tells: about 61.8 and 19.5 thousand.
    assert (ran[3497497], ran[3497496]) == (61_825, 19_521)
    told = [row for row in rows("flow", file, "--thread", "3497496") if row["event"] == "instruction"]
    assert (len(told), {row["tid"] for row in told}) == (19_521, {3497496})
    assert {row["function"] for row in rows("calls", file)} == {"foo()", "bar()"}
    packets = sum(stream["packet_count"] + stream["bad_packets"] for stream in streams)
    assert len(rows("dump", file)) == packets
    assert 0 < len(rows("dump", file, "--thread", "3497496")) < packets


def test_a_thread_that_ran_elsewhere_is_missing_in_the_streams_named_alone() -> None:
    cores = Path(__file__).parents[2] / "services/decoder/tests/core_session/raw/two-threads"
    elsewhere = pt("dump", cores, "--thread", "91", "--stream", "1", code=3).stderr
    assert "thread 91 did not run in stream 1\n" in elsewhere
    assert "where it ran: stream 0\n" in elsewhere
    nowhere = pt("dump", cores, "--thread", "7", "--stream", "1", code=3).stderr
    assert "did not run in this recording" in nowhere and "91, 92" in nowhere


RECORDINGS = [
    *(f"griffin/{name}.griffin.gz" for name in ("last", "ovf-01-ben", "cve-2004-0597-poc", "hello")),
    "lldb/intelpt-multi-core-trace",
    "lldb/intelpt-trace",
    "perf/perf.data.intel_pt-4.14",
]


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("path", RECORDINGS)
def test_several_threads_tell_what_one_tells(tmp_path: Path, path: str, *, damaged: bool) -> None:
    file = reference(path)
    if damaged:
        if file.suffix == ".gz":
            file = damage(tmp_path / "griffin", gzip.decompress(file.read_bytes()))
        elif file.is_dir():
            shutil.copytree(file, tmp_path / "bundle")
            file = tmp_path / "bundle"
            for packets in (one for one in file.rglob("*") if one.suffix in (".trace", ".intelpt_trace")):
                damage(packets, packets.read_bytes())
        else:
            pytest.skip("its records are between the packets")
    capture = Capture(file)
    streams = range(len(capture.streams()))
    for number in streams:
        one = capture.stat(number, threads=1, part_bytes=1 << 40)
        assert one["flow"]["instructions"] > 0 or damaged or "perf" in path
        for part_bytes in (1, 1000, one["bytes"] // 2 + 1):
            assert capture.stat(number, threads=3, part_bytes=part_bytes) == one
    for json_rows in (False, True):
        for table in (False, True):
            told = [
                b"".join(capture.calls([*streams], table=table, inlined=True, json=json_rows, threads=threads))
                for threads in (1, 3)
            ]
            assert told[0] == told[1]


def damage(file: Path, content: bytes) -> Path:
    """Some bits are others, behind the head."""
    data = bytearray(content)
    for place in range(12):
        data[len(data) * (place + 4) // 17] ^= 1 << place % 8
    file.write_bytes(data)
    return file


def test_a_static_program_traced_with_clock_packets_alone() -> None:
    file, program = reference("dynamorio/pt.bin"), reference("dynamorio/hello")
    events = rows("flow", file, "--image", f"{program}:0x1000:0x27:0x401000")
    told = [row["text"] for row in events if row["event"] == "instruction"]
    assert len(told) == 8
    assert [number for number, text in enumerate(told) if text == "syscall"] == [4, 7]
