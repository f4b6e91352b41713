"""The table `functions` has of each function as many blocks as branches of the truth log led into it."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from permille.controller.domain.archive import BINARIES, SwitchesOfSession, archive_files, raw_key, write_archive
from permille.controller.domain.mapped_binaries import MappedBinaries
from permille.controller.domain.session import Session
from permille.controller.domain.switches.switch_recorder import SwitchCounts
from permille.controller.domain.vpt_control import Control
from permille.controller.domain.vpt_layout import Flags
from permille.controller.domain.vpt_recording import VptRecording
from permille.decoder.domain.local_workers import LocalWorkers
from permille.decoder.domain.part_decoder import decode_part
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.session_decoder import SessionDecoder
from permille.mesh.store import ObjectStore, open_store
from permille.mesh.tables import Tables

# Of services/controller/vpt/include/permille/vpt.h.
TRIM, GAP, REPEATS = 2**32 - 1, 2**32 - 2, 1 << 31
FLAGS = Flags.BRANCH | Flags.TRUTH | Flags.TSC | Flags.MTC | Flags.CYC
INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t(?:bnd |notrack |repz )*(j|call|ret|loop)?")
THREADS = 4
# Blocks of a thread: all of its ways, on a machine that others use too.
ENOUGH = 5000


async def test_blocks_are_where_branches_that_ran_led(lab: Any, tmp_path: Path) -> None:
    program = lab.programs / "blocks"
    with lab.run(program, str(THREADS)) as target:
        tasks = Path(f"/proc/{target.process.pid}/task")
        lab.wait(lambda: len(list(tasks.iterdir())) >= THREADS + 1, "the program's threads")
        recording = target.record(FLAGS, period_ms=60, psb_freq=0)
        while sum(header.blocks > ENOUGH for header in recording.streams()) < THREADS:
            target.release()
            recording = target.record(FLAGS, period_ms=300, psb_freq=0)
        headers = recording.streams()
        assert not any(header.full for header in headers)
        with target.at_rest():
            reached = led_to(recording.folder, [header.index for header in headers], branches(program))
            store = open_store((tmp_path / "store").as_uri())
            await stored(store, recording.folder, tmp_path)
    pool = SegmentPool(decode_part, LocalWorkers(2))
    try:
        first, *others = [await functions(store, pool, tmp_path / str(threads), threads) for threads in (1, 3)]
    finally:
        pool.close()
    assert all(other == first for other in others)
    of_program = {row["name"]: row for row in first if row["module"] == str(program)}
    assert {"chosen", "again", "sorted", "order", "work"} <= set(of_program)
    cold = cold_parts(program)
    for name, row in of_program.items():
        within = [range(row["address"], row["address"] + row["size_bytes"]), cold.get(name, range(0))]
        if row["size_bytes"]:
            assert row["blocks"] == sum(address in part for part in within for address in reached), name
    # More than the cases that one thread takes, and one of them is away from the others.
    assert of_program["chosen"]["blocks"] > 8 and "chosen" in cold


def led_to(folder: Path, streams: list[int], branches: set[int]) -> set[int]:
    """Addresses that an instruction of `branches` was right before, in any of the streams."""
    blocks = list(defined(folder))
    reached = set()
    for stream in streams:
        words = [word for (word,) in struct.iter_unpack("=I", (folder / f"truth-{stream}.bin").read_bytes())]
        last, at = 0, 0
        while at < len(words):
            word, at = words[at], at + 1
            if word == GAP:
                last = 0
                continue
            ran = blocks[word]
            if at < len(words) and words[at] == TRIM:
                end = words[at + 1] | words[at + 2] << 32
                ran, at = [address for address in ran if address < end], at + 3
            if ran:
                if last in branches:
                    reached.add(ran[0])
                last = ran[-1]
    return reached


def defined(folder: Path) -> Iterator[list[int]]:
    data, at = (folder / "truth-blocks.bin").read_bytes(), 0
    while at + 8 <= len(data):
        (count,) = struct.unpack_from("=I", data, at + 4)
        count &= ~REPEATS
        yield list(struct.unpack_from(f"={count}Q", data, at + 8))
        at += 8 + 8 * count


def cold_parts(program: Path) -> dict[str, range]:
    """What the compiler moved away from its function, by the function's name."""
    with program.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        return {
            symbol.name.removesuffix(".cold"): range(symbol["st_value"], symbol["st_value"] + symbol["st_size"])
            for symbol in table.iter_symbols()
            if symbol.name.endswith(".cold")
        }


def branches(program: Path) -> set[int]:
    """Where the disassembler sees a branch."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(program)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found = (INSTRUCTION.match(line) for line in listed)
    return {int(instruction[1], 16) for instruction in found if instruction and instruction[2]}


async def stored(store: ObjectStore, folder: Path, scratch: Path) -> None:
    """The recording as a controller stores it."""
    recording = VptRecording(Control(folder))
    anchors = recording.realtime()
    session = Session(
        node="n",
        id="s1",
        request_id="r",
        pids=(recording.pid,),
        purpose="ON_DEMAND",
        period_ms=0,
        budget_bytes=0,
        target_name="blocks",
        start_ns=anchors.ns0,
        end_ns=anchors.ns1,
    )
    archive = scratch / "archive"
    archive.mkdir()
    write_archive(archive, session, [recording], SwitchesOfSession((), SwitchCounts(0, 0, 0)), MappedBinaries().find)
    for key, path in json.loads((archive / BINARIES).read_text()).items():
        await store.put_stream(key, zstandard.compress(Path(path).read_bytes()))
    for file in archive_files(archive):
        await store.put_stream(raw_key(session, file.name), file.read_bytes())


async def functions(store: ObjectStore, pool: Any, folder: Path, threads: int) -> list[dict[str, Any]]:
    folder.mkdir()
    tables = Tables(store)
    decoder = SessionDecoder(
        store, tables, pool, folder=folder, workers_folder=str(folder), debug_folder=folder, threads=threads
    )

    async def progress(done: int, total: int) -> None:
        pass

    await decoder.decode("s1", f"by-{threads}", progress)
    found = (await tables.session("functions", "s1")).to_table().to_pylist()
    return sorted(found, key=lambda row: int(row["function"]))
